"""The language of the command line: help and messages are in the user's, everything that programs read is English."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm.cli.language import messages
from cnllm.cli.language.catalogue import Catalogue, read_catalogue
from cnllm.cli.language.messages import language
from cnllm.cli.output.help import wrap
from cnllm.cli.output.terminal import display_width

from .support import Machine, on_terminal, read_terminal, terminal

ENGLISH, CHINESE = "C.UTF-8", "zh_CN.UTF-8"
PO = Path(messages.__file__).with_name("zh_CN.po")
HAN = re.compile(r"[\u4e00-\u9fff]")
TRANSLATE = Catalogue(read_catalogue(PO.read_text(encoding="utf-8"))).translate


@pytest.fixture
def chinese(machine: Machine) -> Machine:
    machine.env = {name: value for name, value in machine.env.items() if not name.startswith("LC_")}
    machine.env["LANG"] = CHINESE
    return machine


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, None),
        ({"LANG": "C"}, None),
        ({"LANG": "C.UTF-8"}, None),
        ({"LANG": "POSIX", "LANGUAGE": "zh_CN"}, None),
        ({"LANG": "en_US.UTF-8"}, None),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LANG": "zh_TW.UTF-8"}, None),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.GB18030"}, "zh_CN"),
        ({"LANG": "zh_SG.UTF-8"}, "zh_CN"),
        ({"LANG": "zh-Hans_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, None),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, None),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "de:zh_CN:en"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en_US:zh_CN"}, None),
    ],
)
def test_the_variables_of_gettext_choose_the_language(variables: dict[str, str], name: str | None) -> None:
    assert language(variables) == name


def test_help_is_chinese(chinese: Machine) -> None:
    done = chinese.run("--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("用法：cnllm [OPTIONS] COMMAND [ARGS]...\n")
    for words in ("选项：\n", "命令：\n", "示例：\n", "向模型提问并打印回答\n", "显示这份帮助并退出\n"):
        assert words in done.out
    assert 'cnllm "为什么天空是蓝色的？"' in done.out
    call = chinese.run("call", "--help-all")
    assert "[默认：ask]" in call.out
    assert "模型参数：\n" in call.out
    assert "  模型参数：--temperature" in chinese.run("call", "--help").out


def test_a_group_lists_its_commands_in_chinese(chinese: Machine) -> None:
    for group in ("models", "serve", "keys", "logs", "registry"):
        listing = chinese.run(group, "--help").out.partition("命令：\n")[2].partition("\n\n")[0]
        assert listing, group
        assert all(HAN.search(line) for line in listing.splitlines()), listing


def test_an_error_and_its_hint_are_chinese(chinese: Machine) -> None:
    chinese.run("call", "-m", "glm-9", "hi").fails(2, "没有名为“glm-9”的模型\n", "是不是想用 glm")
    chinese.run("call", "-m", "glm-4.7", "hi").fails(
        2, "没有 zai 的密钥：ZAI_API_KEY", "没有设置", "cnllm keys set ZAI_API_KEY"
    )
    chinese.run("call", "--timeout", "soon", "hi").fails(
        2, "'--timeout' 的值无效：'soon' 不是数字", "--timeout S：等待接口的秒数"
    )
    chinese.run("batch", "no.jsonl", "-m", "glm-4.7", "-o", "out.jsonl").fails(2, "no.jsonl：没有这个文件或文件夹")


@pytest.mark.parametrize(
    "args",
    [("--key", "a key"), ("--key", "a\nkey"), ("--store", "ftp://host"), ("--public", "--public-url", "host")],
)
def test_a_gateway_that_does_not_start_says_why_in_chinese(chinese: Machine, args: tuple[str, ...]) -> None:
    done = chinese.run("serve", "--simulate", "--port", "0", *args)
    assert done.status == 2
    assert HAN.search(done.err)
    assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", done.err), done.err


def test_a_missing_choice_and_a_port_in_use_are_chinese_as_a_whole(chinese: Machine) -> None:
    assert chinese.run("registry", "rollback").err.splitlines()[0] == "cnllm: 缺少参数 '{updates|release}'"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = chinese.run("simulate", "--port", str(port))
    assert (done.status, done.err.splitlines()[0]) == (2, f"cnllm: 无法监听端口 {port}：地址已被占用")


def test_c_is_english_whatever_lang_says(chinese: Machine) -> None:
    chinese.run("call", "-m", "glm-9", "hi", env={"LC_ALL": "C.UTF-8"}).fails(2, "no model is called glm-9")


def test_notes_and_usage_are_chinese_and_the_answer_is_the_same(machine: Machine) -> None:
    call = ("call", "-m", "deepseek-flash", "--simulate", "-p", "foo=1", "--no-log", "hi")
    english, chinese = (machine.run(*call, env={"LANG": name}) for name in (ENGLISH, CHINESE))
    assert chinese.out == english.out
    assert re.search(r"^说明：params：foo=1 → 原样发送：.*（providers\.toml:\d+）$", chinese.err, re.MULTILINE)
    assert re.search(r"deepseek-flash · 输入 \d+ · 输出 \d+（思考 \d+）", chinese.err)


def test_the_line_of_a_simulated_answer_is_chinese(chinese: Machine) -> None:
    err = chinese.run("call", "-m", "glm-4.7", "--simulate", "hi").err
    assert err.splitlines()[0] == "cnllm: 模拟：回答由本机生成，没有请求任何模型"


@pytest.mark.parametrize("args", [("--json",), ("--events",), ("--plan",)])
def test_json_is_the_same_in_every_language(machine: Machine, args: tuple[str, ...]) -> None:
    call = ("call", "-m", "glm-4.7", "--simulate", "--no-log", "-p", "foo=1", *args, "hi")
    english, chinese = (machine.run(*call, env={"LANG": name}) for name in (ENGLISH, CHINESE))
    timing = re.compile(r'"(first|total|id)": ?[^,}]*|chatcmpl-\w+')
    assert timing.sub("", chinese.out) == timing.sub("", english.out)
    assert not HAN.search(chinese.out)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("models", "show", "glm-4.7"), ("接口", "可开关，默认开启", "（每百万 token）", "\n  不支持 ")),
        (("models", "list", "--provider", "deepseek"), ("模型", "价格/百万 入/出", "文本", "可开关")),
        (("call", "--quote", "-m", "glm-4.7", "hi"), ("没有发送任何请求", "（通常误差在 ", "费用：至少")),
        (("logs", "list"), ("轮数", "模拟")),
        (("keys", "list"), ("密钥来自", "这个文件")),
    ],
    ids=lambda value: "-".join(value[:2]),
)
def test_a_table_is_chinese_on_a_terminal_and_english_in_a_pipe(
    chinese: Machine, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    chinese.run("keys", "set", "ZAI_API_KEY", stdin="k")
    chinese.run("call", "-m", "glm-4.7", "--simulate", "hi")
    with terminal(chinese, *args, columns=120) as (master, _):
        shown = read_terminal(master)
    assert [word for word in words if word not in shown] == []
    piped = chinese.run(*args)
    assert piped.out == chinese.run(*args, env={"LANG": ENGLISH}).out != ""
    assert not HAN.search(piped.out)


def test_the_number_of_a_note_and_its_origin_have_brackets_of_their_own() -> None:
    catalogue = Catalogue(read_catalogue(PO.read_text(encoding="utf-8")))
    for text, expected in (
        ("zai/glm-4.7 · 5 in · 7 out · 0.2 s to the first token", "zai/glm-4.7 · 输入 5 · 输出 7 · 首 token 0.2 秒"),
        (
            "messages: cache_control (3 times) → left out (a.toml:12)",
            "messages：cache_control（3 次） → 已去掉（a.toml:12）",
        ),
        (
            "replay: messages[1] has no reasoning; 3 more, the last in messages[7] → sent with ' ' (a.toml:7)",
            "replay：messages[1] 没有思考内容；另有 3 处，最后一处在 messages[7] → 带 ' ' 发送（a.toml:7）",
        ),
    ):
        assert catalogue.translate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "every model; 0 of 200 requests a minute; 0 of 200,000 tokens a minute; 0 of 2 requests in flight",
            "所有模型；每分钟请求 0 / 200；每分钟 token 0 / 200,000；同时请求 0 / 2",
        ),
        (
            "0.00 of 20.00 CNY a month, warns at 16.00; until 2027-01-01 00:00",
            "每月 0.00 / 20.00 CNY，达到 16.00 时提醒；有效期至 2027-01-01 00:00",
        ),
        ("10,000 requests a minute; 20.00 CNY a day", "每分钟请求 10,000；每天 20.00 CNY"),
        (
            "0 of 1 request a minute; 1 token a minute; 1 request in flight",
            "每分钟请求 0 / 1；每分钟 token 1；同时请求 1",
        ),
        ("revoked 2026-11-27 00:10", "已吊销（2026-11-27 00:10）"),
    ],
)
def test_a_template_cuts_no_number_and_reads_a_time(text: str, expected: str) -> None:
    assert TRANSLATE(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 done, 0 failed in o2.jsonl; 0 s", "完成 2，失败 0，结果在 o2.jsonl；0 秒"),
        (
            "2 done, 0 failed in o2.jsonl (0 of them in this run); 0 s",
            "完成 2，失败 0，结果在 o2.jsonl（本次 0 行）；0 秒",
        ),
        (
            "call: tools → left out: it takes no tools (a.toml:3)",
            "call：tools → 已去掉：它不支持工具（a.toml:3）",
        ),
        (
            "status: alibaba-cn/glm-4.7 → retired since 2026-10-10; use alibaba-cn/glm-5.1",
            "status：alibaba-cn/glm-4.7 → 自 2026-10-10 起下线；请改用 alibaba-cn/glm-5.1",
        ),
    ],
)
def test_a_value_of_a_short_template_holds_no_other_message(text: str, expected: str) -> None:
    assert TRANSLATE(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "p.toml:2: models.\"zai/glm-4.7\" has no flag 'context'. Did you mean 'limits.context'? (and 2 more)",
            "p.toml:2：models.\"zai/glm-4.7\" 没有配置项 'context'。是不是想用 'limits.context'？（另有 2 处）",
        ),
        ("a.toml:3: x = 'a'; a list or a text is expected, not a table", "a.toml:3: x = 'a'；应为列表或文本，而不是表"),
        ("a.toml:3: the head of a table ends with ]; a quote is missing", "a.toml:3：表头要以 ] 结尾；缺少一个引号"),
        (
            "weights=list; a list of 2 numbers from 0, one for each target and not all 0, is expected",
            "weights=list；应为 2 个不小于 0 的数组成的列表：每个目标一个，不能全为 0",
        ),
    ],
)
def test_a_fault_of_a_registry_file_is_chinese(text: str, expected: str) -> None:
    assert TRANSLATE(text) == expected


def test_a_check_of_files_is_chinese_on_a_terminal(chinese: Machine) -> None:
    path = chinese.file("my.toml", '[models."zai/glm-4.7"]\ncontext = 5\n')
    shown = on_terminal(chinese, "registry", "check", path, columns=200)
    assert "没有配置项 'context'。是不是想用 'limits.context'？" in shown
    assert "请写：limits.context = 5" in shown
    assert "has no flag 'context'" in chinese.run("registry", "check", path).out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none of ZAI_API_KEY, ZHIPU_API_KEY is set", "ZAI_API_KEY、ZHIPU_API_KEY 都没有设置"),
        ("notes: retired 2, simulated 1,200", "说明：retired 2、simulated 1,200"),
        ("did you mean zhipuai or zhipuai-coding-plan?", "是不是想用 zhipuai 或 zhipuai-coding-plan？"),
        ("no key for zhipuai: A_KEY or B_KEY or C_KEY", "没有 zhipuai 的密钥：A_KEY、B_KEY 或 C_KEY"),
    ],
)
def test_a_list_has_the_signs_of_chinese(text: str, expected: str) -> None:
    assert TRANSLATE(text) == expected


def test_names_of_keys_and_teams_are_refused_in_chinese() -> None:
    for text in (
        "a key in use is called ann",
        "choose another name, or revoke that key first",
        "no team in use is called nobody",
        "cnllm serve teams list shows the names",
    ):
        assert not re.search(r"[a-z]+ (?:in|shows|another)\b", TRANSLATE(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.json:1:3: not valid JSON: expecting ',' delimiter", "a.json:1:3：不是合法的 JSON：缺少逗号 ','"),
        ("[Errno 111] Connection refused", "连接被拒绝（errno 111）"),
        ("schema is not a JSON Schema: x", "schema 不是合法的 JSON Schema：x"),
        ("too many brackets, at character 11", "括号太多（第 11 个字符）"),
        ("≥ 0.5 CNY (unknown for 3 turns)", "≥ 0.5 CNY（3 轮未知）"),
        ("12 done · 0.0/s", "完成 12 · 0.0 行/秒"),
        ("latency: p50 0.00 s, p95 0.12 s", "延迟：p50 0.00 秒，p95 0.12 秒"),
        ("failed with BadRow: 3; the first: line 2: x", "BadRow：失败 3 行，首个在第 2 行：x"),
        (
            "line 3: not valid JSON: JSON is malformed: invalid character (byte 0)",
            "第 3 行：不是合法的 JSON：JSON 格式有误：无效字符（第 0 字节）",
        ),
        (
            "zhipuai is not a host of these weights, as far as the registry knows",
            "据注册表所知，“zhipuai”不提供这份权重的模型",
        ),
        ("it takes no images", "它不支持图片"),
        (
            "simulated: http://127.0.0.1:1/PROVIDER answers for every provider; Ctrl-C ends it",
            "模拟：http://127.0.0.1:1/PROVIDER 模拟每家服务商；按 Ctrl-C 结束",
        ),
        ("cnllm serve teams has add, list, set", "cnllm serve teams 的子命令：add、list、set"),
        (
            "did you mean list? cnllm models has add, list",
            "是不是想用 list？cnllm models 的子命令：add、list",
        ),
        (
            "note: params.temperature: temperature=9 → 1 (providers.toml:11)",
            "说明：params.temperature：temperature=9 → 1（providers.toml:11）",
        ),
        (
            "refuses tool_choice none, a named tool; cnllm sends auto",
            "`tool_choice` 不能是 none、指定的工具；cnllm 改为 auto",
        ),
        (
            "x/y: base_url: localhost:1: it is not an HTTP URL (the call)",
            "x/y：base_url：localhost:1：不是 HTTP URL（本次调用）",
        ),
        (
            "q.csv: not JSON: JSON is malformed: invalid character (byte 0)",
            "q.csv：不是 JSON：JSON 格式有误：无效字符（第 0 字节）",
        ),
        ("--map x: there is no encoding 'a'", "--map x：没有“a”这种编码"),
        (
            "2 disagreements; 1 of 1210 models are in the list; values compared: 5",
            "2 处不一致；列表里有 1210 个模型中的 1 个；比较了 5 个值",
        ),
        ("sources older than 9 days: 2", "查阅时间超过 9 天的出处：2"),
        (
            "the vendor's results cannot be written beside a.jsonl: No space left on device",
            "无法把服务商的结果写到 a.jsonl 旁边：磁盘空间不足",
        ),
    ],
)
def test_a_message_is_chinese_as_a_whole(text: str, expected: str) -> None:
    assert TRANSLATE(text) == expected


@pytest.mark.parametrize("args", [("compare",), ("keys", "test"), ("registry", "update")])
def test_help_has_no_space_after_a_chinese_mark(chinese: Machine, args: tuple[str, ...]) -> None:
    shown = chinese.run(*args, "--help").out
    assert not re.search(r"[。；，] \S", shown)


def test_known_issues_are_chinese_on_a_terminal(chinese: Machine) -> None:
    shown = on_terminal(chinese, "models", "show", "zhipuai/glm-4.7", "--issues", columns=200)
    assert "不接受 developer 角色；cnllm 改为 system" in shown
    assert "不思考时：不接受之前各轮的思考内容" in shown
    assert "cnllm sends" not in shown


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("args", "words", "english"),
    [
        (
            ("compare", "glm-4.7", "--hosts", "zai,zhipuai", "-n", "1", "--simulate"),
            ("没有出错的请求", "13 / 13", "没有发现与 zai/glm-4.7 的差别"),
            "without an error",
        ),
        (("probe", "zai", "--dry-run"), ("依次测试以下各项", "关闭思考", "上下文窗口"), "reasoning off"),
    ],
    ids=["compare", "probe"],
)
def test_a_report_is_chinese_on_a_terminal(
    chinese: Machine, args: tuple[str, ...], words: tuple[str, ...], english: str
) -> None:
    with terminal(chinese, *args, columns=120) as (master, _):
        shown = read_terminal(master)
    assert [word for word in words if word not in shown] == []
    assert english not in shown
    assert english in chinese.run(*args).out


def test_a_wrong_name_is_shown_as_it_was_typed(chinese: Machine) -> None:
    chinese.run("serve", "keys", "add", "张三").fails(2, "'张三' 不能用作名称")
    chinese.run("serve", "keys", "add", "x", "--time-zone", "北京").fails(2, "本机没有时区 '北京'")


def test_a_warning_of_the_log_is_chinese(chinese: Machine) -> None:
    # It is said once in a process: no other test has this name.
    done = chinese.run("call", "-m", "glm-4.7", "--simulate", "--no-log", "hi", env={"CNLLM_IDLE_TIMOUT": "3"})
    assert (
        "cnllm 没有 CNLLM_IDLE_TIMOUT 这项设置：是不是想写 CNLLM_IDLE_TIMEOUT？" in done.err
    )  # said once in a process


def test_an_exception_is_english(chinese: Machine) -> None:
    program = "import cnllm\ntry: cnllm.call('glm-9', 'hi')\nexcept cnllm.UnknownModel as error: print(error)"
    path = chinese.file("program.py", program)
    done = subprocess.run([sys.executable, path], env=chinese.env, capture_output=True, text=True, check=True)
    assert done.stdout == "no model is called glm-9\n"


def test_english_loads_no_catalogue(machine: Machine) -> None:
    program = (
        "import sys\nfrom cnllm.cli import main\n"
        "main(['call', '--help'])\n"
        "print([name for name in sys.modules if name in ('cnllm.cli.language.catalogue', 'cnllm.cli.output.help')])"
    )
    for name, loaded in ((ENGLISH, 0), (CHINESE, 2)):
        env = {**machine.env, "LANG": name}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1].count("cnllm.") == loaded


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_help_fits_the_terminal(chinese: Machine, columns: int, flag: str) -> None:
    shown = on_terminal(chinese, "call", flag, columns=columns)
    assert HAN.search(shown)
    for line in shown.partition("示例")[0].splitlines():
        assert display_width(line) <= columns or " " not in line.strip(), line


@given(text=st.text(st.sampled_from("中文，。（a1 -")), width=st.integers(10, 40))
def test_wrapped_text_is_the_same_text(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert not line[0].isspace()
        assert line == line.rstrip()
    for before, line in pairwise(lines):
        assert line[0] not in "，。"
        assert unicodedata.category(before[-1]) != "Ps"
