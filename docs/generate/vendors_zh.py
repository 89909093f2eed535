"""A page in Chinese for each vendor in China: how to ask it, its models, where it differs, from the registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from cnllm.cli.language.messages import translate_issue, translate_to
from cnllm.cli.output.format import format_count, format_price, to_plain
from cnllm.model_facts.known_issues import KnownIssue, known_issues
from cnllm.registry.model import Model
from docs.generate.builtin import registry
from docs.generate.markdown import code, table
from docs.generate.provider_pages import example

__all__ = ["VENDORS", "in_chinese", "pages"]


class Vendor(NamedTuple):
    """A vendor: its title, and its endpoints with what each is (the first in China)."""

    title: str
    endpoints: dict[str, str]


VENDORS = {
    "deepseek": Vendor("DeepSeek 深度求索", {"deepseek": "开放平台"}),
    "zhipu": Vendor(
        "智谱 GLM",
        {
            "zhipuai": "智谱开放平台（国内站）",
            "zai": "Z.AI（海外站）",
            "zhipuai-coding-plan": "编程套餐（限编程工具），国内站",
            "zai-coding-plan": "编程套餐（限编程工具），海外站",
        },
    ),
    "minimax": Vendor(
        "MiniMax 稀宇",
        {
            "minimax-cn": "国内站",
            "minimax": "海外站",
            "minimax-cn-coding-plan": "Token 套餐，国内站",
            "minimax-coding-plan": "Token 套餐，海外站",
        },
    ),
    "moonshot": Vendor(
        "月之暗面 Kimi",
        {"moonshotai-cn": "国内站", "moonshotai": "海外站", "kimi-for-coding": "Kimi Code 套餐（限指定的编程助手）"},
    ),
    "alibaba": Vendor(
        "阿里云百炼（通义千问）",
        {
            "alibaba-cn": "国内站（北京）",
            "alibaba": "海外站（新加坡）",
            "alibaba-hk": "香港",
            "alibaba-us": "美国（弗吉尼亚）",
            "alibaba-coding-plan-cn": "编程套餐（限编程工具），国内站",
            "alibaba-coding-plan": "编程套餐（限编程工具），海外站",
            "alibaba-token-plan-cn": "Token 套餐，国内站",
            "alibaba-token-plan": "Token 套餐，海外站",
        },
    ),
    "volcengine": Vendor(
        "火山方舟（豆包）",
        {
            "volcengine": "火山方舟（国内站）",
            "byteplus": "BytePlus（海外站）",
            "volcengine-coding-plan": "编程套餐（限编程工具），国内站",
            "volcengine-agent-plan": "Agent 套餐（限智能体），国内站",
            "byteplus-coding-plan": "编程套餐（限编程工具），海外站",
        },
    ),
    "tencent": Vendor(
        "腾讯混元",
        {
            "tencent": "TokenHub（国内站）",
            "tencent-intl": "TokenHub（海外站）",
            "hunyuan": "混元大模型（2025 年的接口）",
            "tencent-coding-plan": "编程套餐（限编程工具）",
            "tencent-token-plan": "Token 套餐",
        },
    ),
    "baidu": Vendor(
        "百度千帆（文心）",
        {
            "baidu": "千帆",
            "baidu-coding-plan": "编程套餐（限编程工具，已停售）",
            "baidu-token-plan": "Token 套餐（个人版）",
        },
    ),
    "stepfun": Vendor(
        "阶跃星辰",
        {
            "stepfun": "国内站",
            "stepfun-ai": "海外站",
            "stepfun-plan": "Step Plan（限编程工具），国内站",
            "stepfun-ai-plan": "Step Plan（限编程工具），海外站",
        },
    ),
    "xiaomi": Vendor(
        "小米 MiMo",
        {
            "xiaomi": "开放平台",
            "xiaomi-token-plan-cn": "Token 套餐，国内",
            "xiaomi-token-plan-sgp": "Token 套餐，新加坡",
            "xiaomi-token-plan-ams": "Token 套餐，欧洲",
        },
    ),
    "siliconflow": Vendor("硅基流动", {"siliconflow-cn": "国内站", "siliconflow": "海外站"}),
}
"""Name of a page in docs/zh/vendors → the vendor."""

_REASONING = {"never": "不思考", "always": "始终思考", "toggle": "可开关", "unknown": "?"}
_INPUT = {"text": "文本", "image": "图像", "audio": "音频", "video": "视频", "file": "文件"}
_HOW = {
    "docs": "文档",
    "code": "代码",
    "catalogue": "模型列表",
    "issue": "issue",
    "recorded": "录制",
    "inferred": "推断",
}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page, and its text: the index first."""
    yield "index", _index()
    for name, vendor in VENDORS.items():
        yield name, _page(vendor)


def _index() -> str:
    rows = [
        [
            f"[{vendor.title}]({name}.md)",
            ", ".join(map(code, vendor.endpoints)),
            code(_keys(next(iter(vendor.endpoints)))[0]),
        ]
        for name, vendor in VENDORS.items()
    ]
    menu = "\n".join(VENDORS)
    return (
        "# 国内厂商\n\n每家的接口、密钥、模型，以及与协议规定不同之处，都来自注册表。\n\n"
        f"{table(['厂商', '服务商', '环境变量'], rows)}\n\n"
        "全部服务商见[服务商列表](../../reference/providers.md)。两个站点怎么选，见[国内站点与代理](../how-to/china.md)。\n\n"
        f"```{{toctree}}\n:hidden:\n\n{menu}\n```\n"
    )


def _page(vendor: Vendor) -> str:
    main = next(iter(vendor.endpoints))
    names = [name for name in registry().names() if name.partition("/")[0] == main]
    models = [model for name in names if not _is_retired(model := registry().resolve(name))]
    parts = [f"# {vendor.title}", *_access(vendor, main, models), "## 模型", _models(models)]
    parts += ["## 与协议规定不同之处", *_issues(registry().resolve(f"{main}/any")), "## 出处"]
    parts.append(
        f"每条事实的出处见[英文页](../../reference/providers/{main}.md)，或运行 `cnllm models show 模型 --explain`。"
    )
    return "\n\n".join(parts) + "\n"


def _is_retired(model: Model) -> bool:
    return model.flags.status is not None and model.flags.status.is_ == "retired"


def _keys(provider: str) -> list[str]:
    return registry().resolve(f"{provider}/any").flags.keys or [""]


def _access(vendor: Vendor, main: str, models: list[Model]) -> Iterator[str]:
    """Yield how to ask the vendor: commands, endpoints with their addresses and keys."""
    yield f'```sh\ncnllm keys set {main}\ncnllm -m {example(main, models)} "你好"\n```'
    rows = []
    for provider, what in vendor.endpoints.items():
        for wire in registry().wires(f"{provider}/any"):
            flags = registry().resolve(f"{provider}/any", protocol=wire).flags
            rows.append([code(provider), what, wire, code(flags.base_url or ""), code(_keys(provider)[0])])
    yield table(["服务商", "说明", "协议", "地址", "环境变量"], rows)
    yield f"`cnllm keys test {main}` 会发一个费用很低的请求，告诉你密钥是否有效。"


def _models(models: list[Model]) -> str:
    return table(["模型", "上下文", "最长输出", "输入", "思考", "价格（输入 / 输出，每百万 token）"], map(_row, models))


def _row(model: Model) -> list[str]:
    flags = model.flags
    mode = flags.reasoning.mode
    return [
        code(model.id),
        format_count(flags.limits.context),
        format_count(flags.limits.output),
        "、".join(_INPUT.get(kind, kind) for kind in flags.input or ["?"]),
        _REASONING.get(mode, mode) if mode else "?",
        format_price(to_plain(flags.price)),
    ]


def _issues(model: Model) -> Iterator[str]:
    """Yield where the endpoint differs from its protocol, and what cnllm does."""
    found = known_issues(model)
    if not found:
        yield "没有已知的不一致。"
        return
    yield "\n".join(_issue(issue) for issue in found)
    yield "各个模型可能还有不同：`cnllm models show 模型 --issues`。“推断”表示没有出处明确写明。"


def in_chinese(text: str) -> str:
    """Return the sentence of a known issue in Chinese. Raises `LookupError` where it has none."""
    translated = translate_issue(text, partial(translate_to, "zh_CN"))
    if translated == text:
        raise LookupError(f"cnllm/cli/language/zh_CN.po: no Chinese for {text!r}")
    return translated


def _issue(issue: KnownIssue) -> str:
    source = f"<{issue.source}>" if (issue.source or "").startswith("http") else code(issue.source or "")
    details = [_HOW.get(issue.how or "", issue.how), issue.seen, source]
    return f"- {in_chinese(issue.text)}（{'，'.join(part for part in details if part)}）"
