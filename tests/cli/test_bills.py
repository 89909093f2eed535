# ruff: noqa: E501 - rows of a bill are long
"""`cnllm logs cost --against`: bills in the shape of each vendor's export, made up here, against calls of the log.

Each amount is computed by hand in the comment beside it.
"""

from __future__ import annotations

import csv
import datetime
import io
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cnllm.bills import built_in_exports
from cnllm.registry.flags import Price
from cnllm.store import Store
from cnllm.store.records import TurnError, price_column
from cnllm.store.text import as_json
from cnllm.types import Cost, Usage

from .support import ANSWER, Done, Machine, Server

SECRET = "sk-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
YUAN = Price(currency="CNY", input=2.0, cached=0.5, output=8.0)
MARKED = Price(currency="CNY", input=2.0, cached=0.5, cached_by_mark=0.25, output=8.0)
DOLLAR = Price(currency="USD", input=2.0, cached=0.2, cache_write=2.5, cache_write_1h=4.0, output=10.0)

Log = Callable[..., None]


@pytest.fixture
def log(machine: Machine) -> Log:
    """Write a call to the log as it would stand there at another time."""

    def write(
        began: str,
        model: str,
        usage: Usage | None,
        cost: str | Cost | None,
        price: Price = YUAN,
        reply_id: str | None = None,
        reply_model: str | None = None,
        origin: str = "endpoint",
        error: TurnError | None = None,
    ) -> None:
        known = Cost(Decimal(cost), price.currency or "") if isinstance(cost, str) else cost
        with Store.open(machine.data / "conversations.db") as store, store.file.writing() as file:
            file.execute("INSERT OR IGNORE INTO conversations (id, began) VALUES ('a', ?)", (began,))
            row = {
                "conversation": "a",
                "began": f"{began}.000+00:00",
                "state": "done",
                "model": model,
                "origin": origin,
                "usage": None if usage is None else as_json(usage),
                "error": None if error is None else as_json(error),
                "cost": None if known is None else str(known.amount),
                "currency": None if known is None else known.currency,
                "bill": None if known is None or known.complete else as_json(known),
                "reply_id": reply_id,
                "reply_model": reply_model,
                "price": price_column(file, price),
            }
            file.execute(f"INSERT INTO turns ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", (*row.values(),))

    return write


def against(machine: Machine, *args: str, status: int) -> dict[str, Any]:
    done = machine.run("logs", "cost", "--json", "--against", *args)
    assert done.status == status, done
    assert SECRET not in done.out + done.err
    report: dict[str, Any] = done.json()
    return report


def rows(report: dict[str, Any]) -> list[tuple[str | None, ...]]:
    """What a row says: its time, model, state and both amounts."""
    return [(row["period"], row["model"], row["state"], row["bill"], row["ours"]) for row in report["rows"]]


def codes(report: dict[str, Any], number: int = 0) -> list[str]:
    return [cause["code"] for cause in report["rows"][number]["causes"]]


# ── a bill in two files, with sums by day, model, key and kind of token ──────────────────────────────────────────────

AMOUNT_HEAD = "user_id,start_time_iso,end_time_iso,model,api_key_name,api_key,type,price,amount\n"
COST_HEAD = "user_id,start_time_iso,end_time_iso,model,wallet_type,cost,currency\n"


def amounts(day: int, kind: str, price: str, amount: int, key: str = "one", model: str = "deepseek-v4-pro") -> str:
    times = f"2026-08-{day:02}T00:00:00+08:00,2026-08-{day + 1:02}T00:00:00+08:00"
    return f"u-1,{times},{model},{key},{SECRET},{kind},{price},{amount}\n"


def costs(day: int, cost: str, wallet: str = "Paid", model: str = "deepseek-v4-pro") -> str:
    times = f"2026-08-{day:02}T00:00:00+08:00,2026-08-{day + 1:02}T00:00:00+08:00"
    return f"u-1,{times},{model},{wallet},{cost},CNY\n"


def two_days(log: Log) -> tuple[str, str]:
    """Three calls on two days in the zone of the bill, and the two files that have them."""
    # 1 August: 1,000 of input × 2 + 100 of output × 8 = 2,800 a million; 600 fresh × 2 + 400 cached × 0.5 = 1,400
    log("2026-08-01T01:00:00", "deepseek/deepseek-v4-pro", Usage(input=1000, cached=0, output=100), "0.0028")
    log("2026-08-01T15:59:59", "deepseek/deepseek-v4-pro", Usage(input=1000, cached=400, output=0), "0.0014")
    # 16:00 UTC is 2 August there: 500 × 2 + 50 × 8 = 1,400
    log("2026-08-01T16:00:00", "deepseek/deepseek-v4-pro", Usage(input=500, cached=0, output=50), "0.0014")
    amount = AMOUNT_HEAD + amounts(1, "input_cache_miss_tokens", "0.000002", 1000)
    amount += amounts(1, "input_cache_miss_tokens", "0.000002", 600, key="two")
    amount += amounts(1, "input_cache_hit_tokens", "0.0000005", 400, key="two")
    amount += amounts(1, "output_tokens", "0.000008", 100) + amounts(1, "request_count", "", 2)
    amount += amounts(2, "input_cache_miss_tokens", "0.000002", 500) + amounts(2, "output_tokens", "0.000008", 50)
    return amount, COST_HEAD + costs(1, "0.0040000000000000") + costs(1, "0.0002", "Granted") + costs(2, "0.0014")


def test_an_archive_of_two_files_agrees_to_the_last_digit(machine: Machine, log: Log) -> None:
    amount, cost = two_days(log)
    path = machine.home / "usage.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("usage/amount-2026-08.csv", amount)
        archive.writestr("usage/cost-2026-08.csv", cost)
        archive.writestr("usage/readme.pdf", b"%PDF")
    report = against(machine, str(path), status=0)
    assert rows(report) == [
        ("2026-08-01", "deepseek-v4-pro", "matched", "0.0042", "0.0042"),
        ("2026-08-02", "deepseek-v4-pro", "matched", "0.0014", "0.0014"),
    ]
    assert report["rows"][0]["tokens"] == {"prompt": ["2000", 2000], "cached": ["400", 400], "output": ["100", 100]}
    assert report["unread"] == ["readme.pdf"]
    done = machine.run("logs", "cost", "--against", str(path))
    assert done.status == 0
    assert done.out.splitlines()[1].split() == ["matched", "2", "0.0056", "CNY", "0.0056", "CNY", "0", "CNY"]


def test_a_folder_a_file_and_the_older_header_are_read_too(machine: Machine, log: Log) -> None:
    amount, cost = two_days(log)
    (machine.home / "bill" / "more").mkdir(parents=True)
    machine.file("bill/amount.csv", "\ufeff" + amount.replace("\n", "\r\n"))
    machine.file("bill/more/cost.csv", cost)
    assert against(machine, str(machine.home / "bill"), status=0)["totals"][0]["rows"] == 2
    assert against(machine, machine.file("cost.csv", cost), status=0)["rows"][0]["tokens"] == {}
    tokens = against(machine, machine.file("amount.csv", amount), status=0)
    assert rows(tokens)[0] == ("2026-08-01", "deepseek-v4-pro", "matched", None, "0.0042")
    # the older export has days of UTC: all three calls are of 1 August
    old = "user_id,utc_date,model,wallet_type,cost,currency\nu,20260801,deepseek-v4-pro,Paid,0.0056,CNY\n"
    assert rows(against(machine, machine.file("old.csv", old), status=0)) == [
        ("2026-08-01", "deepseek-v4-pro", "matched", "0.0056", "0.0056")
    ]


def test_rows_of_one_side_alone_are_named(machine: Machine, log: Log) -> None:
    _, cost = two_days(log)
    log("2026-08-02T20:00:00", "deepseek/deepseek-v4-pro", Usage(input=10, output=1), "0.000028")  # 3 August there
    log("2026-08-02T20:00:00", "deepseek/deepseek-v4-pro", Usage(input=10, output=1), "0.000028", origin="simulated")
    log("2026-08-02T20:00:00", "zai/glm-5", Usage(input=10, output=1), "0.000028")  # another vendor's
    log("2026-08-09T20:00:00", "deepseek/deepseek-v4-pro", Usage(input=10, output=1), "0.000028")  # behind the bill
    path = machine.file("cost.csv", cost + costs(4, "1.5", model="deepseek-v4-flash"))
    report = against(machine, path, status=3)
    assert rows(report)[2:] == [
        ("2026-08-03", "deepseek-v4-pro", "ours-only", None, "0.000028"),
        ("2026-08-04", "deepseek-v4-flash", "bill-only", "1.5", None),
    ]
    assert codes(report, 2) == codes(report, 3) == ["calls"]
    text = machine.run("logs", "cost", "--against", path)
    assert text.status == 3
    assert [line.split()[:2] for line in text.out.splitlines()[1:4]] == [
        ["matched", "2"],
        ["bill", "only"],
        ["ours", "only"],
    ]
    assert "2026-08-04  deepseek-v4-flash  bill only" in text.out
    since = against(machine, path, "--since", "2026-08-03", status=3)
    assert [row[0] for row in rows(since)] == ["2026-08-04"]
    listed = list(csv.DictReader(io.StringIO(machine.run("logs", "cost", "--csv", "--against", path).out)))
    assert [row["state"] for row in listed] == ["matched", "matched", "ours-only", "bill-only"]
    assert (listed[3]["bill"], listed[3]["currency"]) == ("1.5", "CNY")


# ── causes ────────────────────────────────────────────────────────────────────────────────────────────────────────

DAY = "2026-08-01T04:00:00"
MODEL = "deepseek/deepseek-v4-pro"
MILLION = Usage(input=1_000_000, cached=0, output=0)


def difference(machine: Machine, cost: str, *lines: str) -> dict[str, Any]:
    """Compare one day with a bill of one amount."""
    folder = machine.home / "bill"
    folder.mkdir()
    machine.file("bill/cost.csv", COST_HEAD + costs(1, cost))
    if lines:
        machine.file("bill/amount.csv", AMOUNT_HEAD + "".join(lines))
    return against(machine, str(folder), status=3)


def test_another_price_of_the_bill_is_a_price_that_changed(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "2")
    report = difference(machine, "3", amounts(1, "input_cache_miss_tokens", "0.000003", 1_000_000))
    assert codes(report) == ["price"]
    assert "input: the bill has 3 for a million tokens" in report["rows"][0]["causes"][0]["detail"]
    assert "the price in force was 2" in report["rows"][0]["causes"][0]["detail"]
    assert report["rows"][0]["difference"] == "1"


def test_both_prices_of_a_cache_are_in_force(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, Usage(input=1_000_000, cached=1_000_000, output=0), "0.25", MARKED)
    report = difference(machine, "0.5", amounts(1, "input_cache_hit_tokens", "0.0000005", 1_000_000))
    assert [cause["detail"] for cause in report["rows"][0]["causes"]] == [
        "the bill has the price of a cache that was not marked"
    ]


def test_a_price_of_todays_registry_explains_the_bill(machine: Machine, log: Log) -> None:
    machine.overlay("http://127.0.0.1:9", 'price = { currency = "USD", input = 3.0, output = 10.0 }')
    log(DAY, "home/m", MILLION, "2", DOLLAR)
    bill = machine.file("bill.csv", "Tag,Modell,Betrag\n2026-08-01,m,3\n")
    report = against(machine, bill, "--columns", machine.file("columns.toml", OWN), status=3)
    assert report["rows"][0]["causes"] == [{"code": "price", "detail": "the bill has today's price", "certain": True}]


def test_hours_tiers_and_the_cache_are_told_from_the_price_in_force(machine: Machine, log: Log) -> None:
    hours = {"peak": ["09:00-18:00"], "zone": "+08:00", "input": 1.0, "output": 4.0, "cached": 0.25}
    for number, (price, usage, cost, billed, code) in enumerate(
        (
            # a call at noon there, billed as if it were night: 1 million × 1
            (Price(currency="CNY", input=2.0, output=8.0, cached=0.5, off_peak=hours), MILLION, "2", "1", "hour"),
            # an input above the tier, billed by the price of a short one: 1 million × 2
            (
                Price(currency="CNY", input=2.0, output=8.0, tiers=[{"above": 1000, "input": 4.0, "output": 16.0}]),
                MILLION,
                "4",
                "2",
                "tier",
            ),
            # a service tier at half the price
            (
                Price(currency="CNY", input=2.0, output=8.0, service={"flex": {"input": 1.0, "output": 4.0}}),
                MILLION,
                "2",
                "1",
                "tier",
            ),
            # tokens of the cache at the price of input: 1 million × 2, not × 0.5
            (YUAN, Usage(input=1_000_000, cached=1_000_000, output=0), "0.5", "2", "cache"),
            # a cache that the request did not mark: 1 million × 0.5, not × 0.25
            (MARKED, Usage(input=1_000_000, cached=1_000_000, output=0), "0.25", "0.5", "cache"),
        )
    ):
        machine.env["CNLLM_DATA_DIR"] = str(machine.home / f"data{number}")
        _write_elsewhere(machine, number, price, usage, cost)
        report = against(machine, machine.file(f"cost{number}.csv", COST_HEAD + costs(1, billed)), status=3)
        assert report["rows"][0]["causes"][0]["code"] == code, report["rows"]
        assert report["rows"][0]["causes"][0]["certain"] is True


def _write_elsewhere(machine: Machine, number: int, price: Price, usage: Usage, cost: str) -> None:
    path = Path(machine.env["CNLLM_DATA_DIR"]) / "conversations.db"
    with Store.open(path) as store, store.file.writing() as file:
        file.execute("INSERT INTO conversations (id, began) VALUES ('a', ?)", (DAY,))
        file.execute(
            "INSERT INTO turns (conversation, began, state, model, origin, usage, cost, currency, price) "
            "VALUES ('a', ?, 'done', ?, 'endpoint', ?, ?, 'CNY', ?)",
            (f"{DAY}.000+00:00", MODEL, as_json(usage), cost, price_column(file, price)),
        )


def test_tokens_that_differ_are_calls_or_the_cache(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, Usage(input=1000, cached=400, output=10), "0.00148")  # 600 × 2 + 400 × 0.5 + 10 × 8 = 1,480
    report = difference(
        machine,
        "0.00208",  # 1,000 × 2 + 10 × 8 = 2,080
        amounts(1, "input_cache_miss_tokens", "0.000002", 1000),
        amounts(1, "output_tokens", "0.000008", 10),
    )
    assert codes(report)[0] == "cache"
    assert "0 tokens in the bill, 400 in the log" in str(report["rows"][0]["causes"])


def test_calls_that_the_log_does_not_have(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, Usage(input=1000, cached=0, output=10), "0.00208")
    lines = [amounts(1, "input_cache_miss_tokens", "0.000002", 3000), amounts(1, "output_tokens", "0.000008", 30)]
    report = difference(machine, "0.00624", *lines, amounts(1, "request_count", "", 3))
    assert set(codes(report)) == {"calls"}
    assert "the bill has 3 requests, the log 1 call" in str(report["rows"][0]["causes"])
    assert "2,000 more tokens of input" in str(report["rows"][0]["causes"])


def test_a_cost_that_leaves_something_out_agrees_with_nothing(machine: Machine, log: Log) -> None:
    part = Cost(Decimal("0.002"), "CNY", missing=("cached",), at_most=Decimal("0.004"))
    log(DAY, MODEL, Usage(input=2000, cached=1000, output=0), part)
    report = difference(machine, "0.003")
    assert rows(report)[0][2] == "different"
    assert "leaves out cached; the bill is within what that can be" in str(report["rows"][0]["causes"])


def test_another_currency_is_never_added(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "2", Price(currency="USD", input=2.0, output=8.0))
    report = difference(machine, "2")
    assert [(row["currency"], row["bill"], row["ours"]) for row in report["rows"]] == [
        ("CNY", "2", None),
        ("USD", None, "2"),
    ]
    assert codes(report) == ["currency"]


def test_a_call_near_midnight_on_another_day_of_the_bill(machine: Machine, log: Log) -> None:
    log("2026-08-01T15:59:59", MODEL, MILLION, "2")
    log("2026-08-02T04:00:00", MODEL, MILLION, "2")
    report = against(machine, machine.file("cost.csv", COST_HEAD + costs(1, "0") + costs(2, "4")), status=3)
    assert [codes(report, number)[0] for number in range(2)] == ["day", "day"]


# ── each vendor's export ──────────────────────────────────────────────────────────────────────────────────────────

ZHIPU = """账期(自然日),客户id,模型编码（推理专用）,价格类型,用量,单价,单价单位,已付款金额
2026-08-01,77,glm-5,输入,"600,000",0.002,千token,1.2
2026-08-01,77,glm-5,缓存命中,400000,0.0005,千token,0.2
2026-08-01,77,glm-5,输出,1000,0.008,千token,0.008
合计,,,,,,,1.408
"""
ALIBABA = f"""标识信息/账单明细ID,身份信息/资源购买账号ID,账单信息/账单月份,账单信息/账单日期,产品信息/产品名称,资源信息/实例ID（出账粒度）,用量信息/用量,用量信息/用量单位,费用信息/目录总价,应付信息/应付金额（含税）,定价信息/定价币种
1,{SECRET},202608,20260801,百炼大模型,4906;ws-x;qwen3.7-plus;context_0-256k_input_token;;0,600.5,千tokens,1.201,1.201,CNY
2,{SECRET},202608,20260801,百炼大模型,4906;ws-x;qwen3.7-plus;context_0-256k_output_token;;0,1,千tokens,0.008,0.008,CNY
3,{SECRET},202608,20260801,云服务器ECS,i-2ze,24,小时,99.9,99.9,CNY
"""
MOONSHOT = f"""时间范围,用户ID,组织ID,客户主体,充值账户消耗（元）,赠送账户消耗（元）
2026-08-01 00:00:00 - 2026-08-31 23:59:59,{SECRET},org,某公司,2.00,0.80
"""
VOLCENGINE = f"""账务账期,日期,Payer账号,产品,配置名称,计费单元,单价,用量,原价,折后价,应付金额
2026-08,2026-08-01,{SECRET},火山方舟大模型服务平台,x,y,0.002,1,2.000000,2.000000,2.00
2026-08,2026-08-01,{SECRET},火山方舟大模型服务平台,x,z,0.002,1,0.800000,0.800000,0.80
2026-08,2026-08-01,{SECRET},云服务器,x,z,0.002,1,9,9,9
"""
OPENAI_COST = f"""start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,quantity,quantity_unit,line_item,user_id,api_key_id,project_id,organization_id
1785542400,1785628800,2026-08-01T00:00:00+00:00,2026-08-02T00:00:00+00:00,1.2000000000000000,usd,600000,tokens,"gpt-5.6-2026-03-17, input",,{SECRET},p,o
1785542400,1785628800,2026-08-01T00:00:00+00:00,2026-08-02T00:00:00+00:00,0.08,usd,400000,tokens,"gpt-5.6-2026-03-17, cached input",,{SECRET},p,o
1785542400,1785628800,2026-08-01T00:00:00+00:00,2026-08-02T00:00:00+00:00,0.01,usd,1000,tokens,"gpt-5.6-2026-03-17, output",,{SECRET},p,o
1785628800,1785715200,2026-08-02T00:00:00+00:00,2026-08-03T00:00:00+00:00,,,,,,,,,
"""
OPENAI_USAGE = f"""start_time\tend_time\tstart_time_iso\tend_time_iso\tproject_id\tnum_model_requests\tapi_key_id\tmodel\tbatch\tservice_tier\tinput_tokens\toutput_tokens\tinput_cached_tokens
1785542400\t1785628800\t2026-08-01\t2026-08-02\tp\t1.0\t{SECRET}\tgpt-5.6-2026-03-17\tFALSE\tdefault\t1000000.0\t1000.0\t400000.0
1785628800\t1785715200\t2026-08-02\t2026-08-03\t\t\t\t\t\t\t\t\t
"""
ANTHROPIC_COST = f"""usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type,inference_geo,speed
2026-08-01,Claude Opus 4.6,Default,{SECRET},message,≤ 200k,input_no_cache,1.20,1.20,token,global,
2026-08-01,Claude Opus 4.6,Default,{SECRET},message,≤ 200k,input_cache_read,0.08,0.08,token,global,
2026-08-01,Claude Opus 4.6,Default,{SECRET},message,≤ 200k,output,0.01,0.01,token,global,
"""
ANTHROPIC_TOKENS = f"""usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,web_search_count,inference_geo,speed
2026-08-01,claude-opus-4-6-20260205,{SECRET},Default,standard,≤ 200k,600000,0,0,400000,1000,0,not_available,
"""
GOOGLE = """Date,Service description,Service ID,SKU description,SKU ID,Usage amount,Usage unit,List cost ($),Unrounded subtotal ($),Subtotal ($)
2026-07-31,Gemini API,A,Generate content input token count gemini 3.5 flash text,B,"600,000",count,1.2,1.200000,1.20
2026-07-31,Gemini API,A,Generate content cached input token count gemini 3.5 flash text,C,"400,000",count,0.08,0.080000,0.08
2026-07-31,Gemini API,A,Generate content output token count gemini 3.5 flash text,D,"1,000",count,0.01,0.010000,0.01
2026-07-31,Compute Engine,A,N2 Instance Core,D,"1,000",hour,9,9.000000,9
,,,,,,Subtotal,,1.29,1.29
"""
OPENROUTER = f"""generation_id,created_at,cost_total,cost_web_search,tokens_prompt,tokens_completion,tokens_reasoning,tokens_cached,model_permaslug,provider_name,variant,user,api_key_name
gen-1,2026-08-01 10:00:00.000,1.29,,1000000,1000,0,400000,deepseek/deepseek-v4-pro-0813,X,standard,{SECRET},mine
"""

BOTH = Usage(input=1_000_000, cached=400_000, output=1000)
WRITES = Usage(input=1_000_000, cached=400_000, cache_write=0, cache_write_1h=0, output=1000)
# CNY: 600,000 × 2 + 400,000 × 0.5 + 1,000 × 8 = 1.408; USD: 600,000 × 2 + 400,000 × 0.2 + 1,000 × 10 = 1.29
EXPORTS = {
    "zhipu-detail": (ZHIPU, "zhipuai/glm-5", BOTH, "1.408", YUAN, "2026-08-01"),
    "zhipu-month": (
        "账期(月),目录总价,总消费金额,信用支付金额,赠金抵扣金额,应付金额,已付款金额,待付款金额,结算状态\n"
        "2026-08,1.408,1.408,0,0,1.408,1.408,0,已结清\n",
        *("zhipuai/glm-5", BOTH, "1.408", YUAN, "2026-08"),
    ),
    "moonshot-summary": (MOONSHOT, "moonshotai-cn/kimi-k3", MILLION, "2.8", YUAN, "2026-08"),
    # 600,500 × 2 + 1,000 × 8 = 1.209
    "alibaba-consumption": (
        ALIBABA,
        *("alibaba-cn/qwen3.7-plus", Usage(input=600_500, cached=0, output=1000), "1.209", YUAN, "2026-08-01"),
    ),
    "volcengine-detail": (VOLCENGINE, "volcengine/doubao-seed-1-6", MILLION, "2.8", YUAN, "2026-08-01"),
    "openai-cost": (OPENAI_COST, "openai/gpt-5.6", BOTH, "1.29", DOLLAR, "2026-08-01"),
    "openai-usage": (OPENAI_USAGE, "openai/gpt-5.6", BOTH, "1.29", DOLLAR, "2026-08-01"),
    "anthropic-cost": (ANTHROPIC_COST, "anthropic/claude-opus-4-6", WRITES, "1.29", DOLLAR, "2026-08-01"),
    "anthropic-tokens": (ANTHROPIC_TOKENS, "anthropic/claude-opus-4-6", WRITES, "1.29", DOLLAR, "2026-08-01"),
    "google-reports": (GOOGLE, "google/gemini-3.5-flash", BOTH, "1.29", DOLLAR, "2026-07-31"),
    "openrouter-activity": (
        OPENROUTER,
        *("openrouter/deepseek/deepseek-v4-pro", BOTH, "1.29", DOLLAR, "2026-08-01"),
    ),
    "deepseek-amount": (
        AMOUNT_HEAD + amounts(1, "input_cache_miss_tokens", "0.000002", 1_000_000),
        *(MODEL, MILLION, "2", YUAN, "2026-08-01"),
    ),
    "deepseek-cost": (COST_HEAD + costs(1, "2"), MODEL, MILLION, "2", YUAN, "2026-08-01"),
}


def test_every_export_of_the_package_has_a_sample_here_and_a_public_source() -> None:
    assert {*EXPORTS} == {*built_in_exports()}
    assert all(export.source for export in built_in_exports().values())


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_an_export_of_each_vendor_agrees_and_no_key_of_it_is_shown(machine: Machine, log: Log, name: str) -> None:
    text, model, usage, cost, price, period = EXPORTS[name]
    began = "2026-08-01T03:00:00"  # in Los Angeles it is still July
    log(began, model, usage, cost, price)
    encodings = ("utf-8", "utf-8-sig", "gb18030") if "账期" in text or "时间" in text else ("utf-8",)
    for encoding in encodings:
        report = against(machine, machine.file(f"bill-{encoding}.csv", text.encode(encoding)), status=0)
        assert [(row["period"], row["state"]) for row in report["rows"]] == [(period, "matched")], report
        assert report["rows"][0]["ours"] == cost
        assert report["rows"][0]["bill"] in (cost, None)
        assert all(theirs == str(ours) for theirs, ours in report["rows"][0]["tokens"].values())
        assert report["exports"] == [built_in_exports()[name].title]
    for args in ((), ("--csv",)):
        done = machine.run("logs", "cost", "--against", str(machine.home / "bill-utf-8.csv"), *args)
        assert SECRET not in done.out + done.err


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_a_call_too_many_is_seen_in_every_export(machine: Machine, log: Log, name: str) -> None:
    text, model, usage, cost, price, _ = EXPORTS[name]
    log("2026-08-01T03:00:00", model, usage, cost, price)
    log("2026-08-01T03:00:01", model, Usage(input=100_000, cached=0, output=100), "0.3", price)
    report = against(machine, machine.file("bill.csv", text), status=3)
    assert "different" in [row["state"] for row in report["rows"]]


def test_totals_and_rows_of_other_products_are_counted_and_left_out(machine: Machine, log: Log) -> None:
    text, model, usage, cost, price, _ = EXPORTS["google-reports"]
    log("2026-08-01T03:00:00", model, usage, cost, price)
    done = machine.run("logs", "cost", "--against", machine.file("bill.csv", text))
    assert done.status == 0
    assert "rows of other products: 2 left out" in done.err  # of Compute Engine, and the total
    text = EXPORTS["zhipu-detail"][0]
    done = machine.run("logs", "cost", "--against", machine.file("bill.csv", text))
    assert "rows without a time, which are totals: 1 left out" in done.err


# ── by the id of a request ────────────────────────────────────────────────────────────────────────────────────────


def test_fees_in_rows_of_their_own_are_told(machine: Machine, log: Log) -> None:
    log("2026-08-01T03:00:00", "openai/gpt-5.6", BOTH, "1.31", DOLLAR)  # 1.29, and two searches at 0.01
    fee = (
        OPENAI_COST.splitlines()[1]
        .replace("1.2000000000000000", "0.02")
        .replace('"gpt-5.6-2026-03-17, input"', "web search tool calls")
    )
    fee = fee.replace("600000,tokens", "2,")
    report = against(machine, machine.file("bill.csv", f"{OPENAI_COST}{fee}\n"), status=3)
    assert [(row["model"], row["bill"], row["ours"]) for row in report["rows"]] == [
        ("gpt-5.6-2026-03-17", "1.29", "1.31"),
        ("web search tool calls", "0.02", None),
    ]
    assert [report["rows"][number]["causes"][0] for number in range(2)] == 2 * [
        {"code": "fee", "detail": "the bill has the fees of these calls in rows of their own", "certain": True}
    ]


def test_failed_requests_count_where_the_endpoint_may_charge_them(machine: Machine, log: Log) -> None:
    known = Cost(Decimal(2), "CNY", complete=False, missing=("request",))
    log(DAY, MODEL, MILLION, known)
    log(DAY, MODEL, None, None, error=TurnError("RateLimited", "slow down"))
    path = machine.file("cost.csv", COST_HEAD + costs(1, "3"))
    (row,) = against(machine, path, status=3)["rows"]
    assert (row["state"], row["ours"], row["calls"]) == ("different", "2", 1)
    assert row["causes"][0]["detail"] == "the log leaves out requests that were made again"
    log(DAY, MODEL, None, None, error=TurnError("RateLimited", "slow down", charged=True))
    (row,) = against(machine, path, status=3)["rows"]
    assert row["calls"] == 2
    assert row["causes"][0]["detail"] == "the log does not know the cost of 1 call"


def test_two_names_of_a_model_are_told_by_their_amount(machine: Machine, log: Log) -> None:
    log(DAY, "deepseek/deepseek-chat", MILLION, "2")
    log(DAY, "deepseek/deepseek-reasoner", MILLION, "3")
    path = machine.file("cost.csv", COST_HEAD + costs(1, "2") + costs(1, "4", model="deepseek-v4-flash"))
    report = against(machine, path, status=3)
    found = {row["model"]: row["causes"][0] for row in report["rows"]}
    assert found["deepseek-v4-pro"] == {
        "code": "name",
        "detail": "the log has the same amount for deepseek-chat: it may be another name of the model",
        "certain": True,
    }
    assert found["deepseek-chat"]["detail"].startswith("the bill has the same amount for deepseek-v4-pro:")
    assert found["deepseek-reasoner"]["code"] == found["deepseek-v4-flash"]["code"] == "calls"


def test_a_kind_of_token_that_is_not_described_is_never_zero(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "2")
    (machine.home / "bill").mkdir()
    machine.file("bill/cost.csv", COST_HEAD + costs(1, "2"))
    lines = amounts(1, "input_cache_miss_tokens", "0.000002", 999_000) + amounts(
        1, "input_dream_tokens", "0.000002", 1000
    )
    machine.file("bill/amount.csv", AMOUNT_HEAD + lines)
    report = against(machine, str(machine.home / "bill"), status=0)
    assert (report["unknown"], report["rows"][0]["tokens"]) == (["input_dream_tokens"], {})
    assert "input_dream_tokens" in machine.run("logs", "cost", "--against", str(machine.home / "bill")).err


def test_what_a_bill_says_is_shown_without_keys_formulas_and_controls(machine: Machine) -> None:
    names = (f"deepseek {SECRET}", "=HYPERLINK(1)", "\x1b[31mred")
    path = machine.file("cost.csv", COST_HEAD + "".join(costs(1, "1", model=name) for name in names))
    for args in ((), ("--csv",), ("--json",)):
        done = machine.run("logs", "cost", "--against", path, *args)
        assert done.status == 3
        assert SECRET not in done.out
        assert "deepseek [redacted]" in done.out
        assert "\x1b" not in done.out
        assert args != ("--csv",) or ",'=HYPERLINK(1)," in done.out


def test_requests_are_compared_by_their_ids_and_the_rest_by_sums(machine: Machine, log: Log) -> None:
    head, row = OPENROUTER.splitlines()
    model = "openrouter/deepseek/deepseek-v4-pro"
    for number, cost in (("1", "1.29"), ("2", "1.29"), ("3", "1.30")):
        log(f"2026-08-01T0{number}:00:00", model, BOTH, cost, DOLLAR, reply_id=f"gen-{number}")
    log("2026-08-01T04:00:00", model, BOTH, "1.29", DOLLAR, reply_id="another")
    lines = [row.replace("gen-1", f"gen-{number}") for number in (1, 2, 3, 9)]
    report = against(machine, machine.file("bill.csv", "\n".join([head, *lines])), status=3)
    found = [(row["id"], row["state"], row["bill"], row["ours"], row["calls"]) for row in report["rows"]]
    assert found == [
        (None, "matched", "2.58", "2.58", 2),
        (None, "matched", "1.29", "1.29", 1),  # gen-9 and `another`: other ids, but the same sum
        ("gen-3", "different", "1.29", "1.3", 1),
    ]


# ── the user's own description ────────────────────────────────────────────────────────────────────────────────────

OWN = """[home]
title = "The bill of a server at home"
providers = ["home"]
source = []
header = ["Tag", "Modell", "Betrag"]
keys = ["Schlüssel"]
time = "Tag"
zone = "UTC"
model = "Modell"
models = { "Das Modell" = "m" }
amount = ["Betrag"]
currency = "USD"
"""


def test_columns_of_the_user_and_a_real_call(machine: Machine) -> None:
    with Server(ANSWER) as peer:
        machine.overlay(peer.url, 'price = { currency = "USD", input = 1.0, output = 10.0 }')
        assert machine.run("call", "--model", "home/m", "Hello").status == 0  # 12 in, 34 out
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    bill = machine.file("bill.csv", f"Tag;Modell;Schlüssel;Betrag\n{today};Das Modell;{SECRET};$0.000352\n")
    columns = machine.file("columns.toml", OWN)
    assert rows(against(machine, bill, "--columns", columns, status=0)) == [
        (today, "m", "matched", "0.000352", "0.000352")
    ]
    machine.run("logs", "cost", "--against", bill).fails(2, "no known export", "--columns FILE")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("describes no export",)),
        ("[a]\ntitle = 1", ("title", "columns.toml")),
        ("no toml", ("columns.toml",)),
        (OWN.replace('zone = "UTC"', 'zone = "Nowhere/City"'), ("home", "zone Nowhere/City")),
        (OWN.replace('keys = ["Schlüssel"]', 'keys = ["Modell"]'), ("modell is among keys",)),
        (OWN.replace('currency = "USD"', ""), ("amount needs currency",)),
        (OWN + "pattern = { Modell = '(?P<other>.*)' }", ("the group other",)),
        (OWN + "pattern = { Modell = '(' }", ("pattern of Modell",)),
        (OWN.replace('header = ["Tag", "Modell", "Betrag"]', "header = []"), ("header is empty",)),
        (OWN + "colour = 1", ("colour",)),
        (OWN + f"rate_for = {'1' * 5000}", ("columns.toml", "5000 digits")),
        (OWN + f"x = {'[' * 5000}", ("columns.toml", "recursion")),
        (OWN + "pattern = { Modell = 'a{99999999999999999999}' }", ("pattern of Modell",)),
        (OWN + f"pattern = {{ Modell = '{'(' * 5000}{')' * 5000}' }}", ("pattern of Modell",)),
    ],
)
def test_a_description_with_a_fault_says_where(machine: Machine, text: str, words: tuple[str, ...]) -> None:
    bill = machine.file("bill.csv", "Tag;Modell;Betrag\n")
    machine.run("logs", "cost", "--against", bill, "--columns", machine.file("columns.toml", text)).fails(2, *words)


def test_options_that_do_not_go_together(machine: Machine) -> None:
    machine.run("logs", "cost", "--columns", "x.toml").fails(2, "--columns", "--against BILL")
    machine.run("logs", "cost", "--against", "x.csv", "--by", "model").fails(2, "--by")
    machine.run("logs", "cost", "3f2a", "--against", "x.csv").fails(2, "leave out ID")
    machine.run("logs", "cost", "--against", "x.csv").fails(2, "x.csv", "No such file")


# ── bad bills ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (costs(1, f"{SECRET}"), ("line 2", "column cost: no number")),
        (costs(1, "1,234"), ("line 2", "8 fields", "7 columns")),
        (costs(1, '"1.2.3"'), ("line 2", "cost")),
        (costs(1, '"0,123"'), ("line 2", "column cost: no number")),
        (costs(1, "1e999"), ("line 2", "cost")),
        (costs(1, "1").replace("2026-08-01T", f"2026-99-{SECRET}T"), ("line 2", "column start_time_iso: no time")),
        (costs(1, "1").replace("2026-08-02T", "2026-07-01T"), ("line 2", "no time")),
        (costs(1, "1").replace("+08:00", "+24:00", 1), ("line 2", "no time")),
        (costs(1, "1").replace("CNY", ""), ("line 2", "currency")),
        ('u,"never closed,' + "x" * (2 << 20), ("longer than",)),
        ('u,"never closed' + "\nx" * (1 << 20), ("not valid CSV",)),
    ],
)
def test_a_value_that_cannot_be_read_is_named_and_not_repeated(
    machine: Machine, line: str, words: tuple[str, ...]
) -> None:
    done = machine.run("logs", "cost", "--against", machine.file("cost.csv", COST_HEAD + line))
    done.fails(2, "cost.csv", *words)
    assert SECRET not in done.err


@pytest.mark.parametrize("amount", ["0,123", "1,234", "-1,234 €"])
def test_a_comma_that_may_stand_for_the_point_is_not_read_as_thousands(machine: Machine, amount: str) -> None:
    bill = machine.file(
        "bill.csv", (COST_HEAD + costs(1, amount.replace(",", "#"))).replace(",", ";").replace("#", ",")
    )
    machine.run("logs", "cost", "--against", bill).fails(2, "bill.csv", "line 2", "cost", "stand for the point")


def test_amounts_may_have_separators_signs_and_full_width_digits(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "1234567.5")
    for amount in ('"1,234,567.5"', "¥1234567.50", '"￥1，234，567.5"', "1.2345675E6", '" 1234567.5 元"'):
        against(machine, machine.file("cost.csv", COST_HEAD + costs(1, amount)), status=0)


def test_hostile_archives_are_refused(machine: Machine) -> None:
    path = machine.home / "bill.zip"

    def fails(*words: str) -> None:
        machine.run("logs", "cost", "--against", str(path)).fails(2, "bill.zip", *words)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cost.csv", COST_HEAD + "0" * (65 << 20))
    fails("would unpack to")
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(1001):
            archive.writestr(f"{number}.csv", "")
    fails("1,000 files")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "")
    fails("workbook", "save it as CSV")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cost.csv", COST_HEAD + costs(1, "2"))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Paid,2,", b"Paid,3,"))  # damaged
    fails("CRC")
    path.write_bytes(whole[:-30])
    fails("whole")
    central = whole.index(b"PK\x01\x02") + 42  # where it says that the file begins
    path.write_bytes(whole[:central] + b"\xf0\xff\xff\x7f" + whole[central + 4 :])
    fails("bill.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.zip", whole)
    fails("no table", "inner.zip")


def test_names_in_an_archive_lead_nowhere(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "2")
    path = machine.home / "in" / "bill.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../\x1b[31mcost.csv", COST_HEAD + costs(1, "2"))
        archive.writestr("/etc/other.csv", "a,b\n1,2\n")
    before = sorted(machine.home.rglob("*.csv"))
    done = machine.run("logs", "cost", "--against", str(path))
    assert done.status == 0
    assert "other.csv is not a known export" in done.err
    assert "\x1b" not in done.out + done.err
    assert sorted(machine.home.rglob("*.csv")) == before


def test_the_same_file_twice_counts_once_and_an_overlap_is_named(machine: Machine, log: Log) -> None:
    log(DAY, MODEL, MILLION, "2")
    (machine.home / "bill").mkdir()
    for name in ("a.csv", "a (1).csv"):
        machine.file(f"bill/{name}", COST_HEAD + costs(1, "2"))
    report = against(machine, str(machine.home / "bill"), status=0)
    assert report["repeated"] == ["a.csv"]
    machine.file("bill/b.csv", COST_HEAD + costs(1, "2.0"))
    report = against(machine, str(machine.home / "bill"), status=3)
    assert report["overlaps"] == [["a (1).csv", "b.csv"]]


def test_a_long_bill_is_read_as_a_stream(machine: Machine, log: Log) -> None:
    """Many rows of one day become one sum; the amounts stay exact."""
    log(DAY, MODEL, MILLION, "0.02")
    lines = "".join(costs(1, "0.000001", f"w{number}") for number in range(20_000))
    report = against(machine, machine.file("cost.csv", COST_HEAD + lines), status=0)
    assert rows(report) == [("2026-08-01", "deepseek-v4-pro", "matched", "0.02", "0.02")]


def test_nothing_to_compare(machine: Machine) -> None:
    done: Done = machine.run("logs", "cost", "--against", machine.file("cost.csv", COST_HEAD))
    assert done.status == 0
    assert "the bill has no row" in done.out
    only_a_total = COST_HEAD + "u,total,,,,3,CNY\n"
    assert machine.run("logs", "cost", "--against", machine.file("cost.csv", only_a_total)).status == 3
