"""I: usage, cost, cache, retries, overflow."""

import copy
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cases import each

import cnllm
from cnllm import Client, Registry

from .support import (
    Answer,
    Json,
    Server,
    Wire,
    anywhere,
    chunk,
    failed,
    home,
    http,
    model,
    ok,
    overlay,
    plan,
    play,
    python,
    read_body,
    read_whole,
    result_turn,
    text_chunks,
    tool,
    whole_body,
)

COUNTS: Json = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


# ── I1 ───────────────────────────────────────────────────────────────────────
@each("name", ["moonshotai/kimi-k3", "alibaba/qwen3.7-plus", "deepseek/deepseek-flash"])
def test_I1_usage_is_asked_for_when_streaming(name: str) -> None:
    assert plan(name, stream=True).body["stream_options"] == {"include_usage": True}


def test_I1_the_caller_may_decide_otherwise() -> None:
    body = plan("deepseek/deepseek-flash", stream=True, extra_body={"stream_options": {"include_usage": False}}).body
    assert body["stream_options"] == {"include_usage": False}


@each("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}])
def test_I1_unknown_is_not_zero(usage: Json | None) -> None:
    whole = read_whole("moonshotai/kimi-k3", {"content": "x"}, usage=usage)
    streamed = play("moonshotai/kimi-k3", [*text_chunks("x"), chunk(finish="stop", usage=usage)]).reply
    for reply in (whole, streamed):
        seen = reply.usage
        assert (seen.input, seen.output, seen.total) == (None, None, None)
        assert (seen.reasoning, seen.cached, seen.cache_write) == (None, None, None)
        assert reply.cost is None


def test_I1_zero_is_not_unknown() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
    seen = read_whole("openai/gpt-6-sol", {"content": "x"}, usage=usage).usage
    assert (seen.input, seen.output, seen.cached, seen.reasoning) == (5, 0, 0, None)


@each("odd", [{"prompt_tokens": 7, "prompt_tokens_details": None}, {"prompt_tokens": 7, "x": [1]}])
def test_I1_half_a_usage_is_half_known(odd: Json) -> None:
    seen = read_whole("moonshotai/kimi-k3", {"content": "x"}, usage=odd).usage
    assert (seen.input, seen.output, seen.cached) == (7, None, None)


def test_I1_usage_is_found_inside_the_choice() -> None:
    last = chunk(finish="stop")
    last["choices"][0]["usage"] = {**COUNTS, "cached_tokens": 64}
    for name in ("moonshotai/kimi-k3", "moonshotai-cn/kimi-k2.6"):
        played = play(name, [*text_chunks("x"), last])
        seen = played.reply.usage
        assert (seen.input, seen.output, seen.total, seen.cached) == (100, 20, 120, 64)
        assert [e for e in played.events if isinstance(e, cnllm.UsageSeen)]


# ── I2 ───────────────────────────────────────────────────────────────────────
HIT: Json = {**COUNTS, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}


@each("name", ["deepseek/deepseek-flash", "deepseek/deepseek-v4-pro"])
def test_I2_cached_tokens_are_read_from_the_declared_path(name: str) -> None:
    for usage in (HIT, {**HIT, "prompt_tokens_details": {"cached_tokens": 64}}):
        seen = read_whole(name, {"content": "x"}, usage=usage).usage
        assert (seen.input, seen.cached, seen.output) == (100, 64, 20)
        assert not seen.cache_write, "a miss is no cache write"


def test_I2_cached_tokens_are_part_of_the_input_and_billed_once(tmp_path: Path) -> None:
    flags = 'price = { input = 1.0, output = 2.0, cached = 0.1, currency = "USD" }'
    target = home(tmp_path, 'usage.cached = ["prompt_cache_hit_tokens"]', more=f'[models."home/m"]\n{flags}')
    cost = read_whole(target, {"content": "x"}, usage=HIT).cost
    assert cost is not None
    assert cost.amount == (36 * Decimal(1) + 64 * Decimal("0.1") + 20 * Decimal(2)) / 1_000_000


@each(
    "name, where",
    [
        ("moonshotai/kimi-k3", {"cached_tokens": 64}),
        ("zai/glm-4.7", {"prompt_tokens_details": {"cached_tokens": 64}}),
        ("openai/gpt-6-sol", {"prompt_tokens_details": {"cached_tokens": 64}}),
        ("alibaba/qwen3.7-plus", {"prompt_tokens_details": {"cached_tokens": 64}}),
        ("openai-compatible", {"prompt_tokens_details": {"cached_tokens": 64}}),
    ],
)
def test_I2_each_endpoint_has_its_own_place_for_them(name: str, where: Json) -> None:
    target = anywhere() if name == "openai-compatible" else model(name)
    seen = read_whole(target, {"content": "x"}, usage={**COUNTS, **where}).usage
    assert (seen.input, seen.cached) == (100, 64)


# ── I3 ───────────────────────────────────────────────────────────────────────
def test_I3_price_comes_from_the_registry_in_its_own_currency(tmp_path: Path) -> None:
    flags = 'price = { input = 2.0, output = 8.0, cached = 0.5, currency = "CNY" }'
    target = home(tmp_path, more=f'[models."home/m"]\n{flags}')
    cost = read_whole(target, {"content": "x"}, usage=COUNTS).cost
    assert cost == cnllm.Cost(Decimal("0.00036"), "CNY")


def test_I3_a_user_edits_the_price_of_a_built_in_model(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text('[models."zai/glm-4.7"]\nprice = { input = 10.0, output = 20.0, currency = "USD" }\n')
    target = Registry.load(str(path)).resolve("zai/glm-4.7")
    cost = read_whole(target, {"content": "x"}, usage=COUNTS).cost
    assert cost == cnllm.Cost(Decimal("0.0014"), "USD")


def test_I3_a_price_that_no_one_knows_is_unknown_and_not_free() -> None:
    assert read_whole(anywhere(), {"content": "x"}, usage=COUNTS).cost is None
    assert read_whole(model("deepseek/deepseek-v99"), {"content": "x"}, usage=COUNTS).cost is None


def test_I3_a_built_in_price() -> None:
    cost = read_whole("zai/glm-4.7", {"content": "x"}, usage=COUNTS).cost
    assert cost == cnllm.Cost(Decimal("0.000104"), "USD")


@each("tokens, amount", [(100_000, "0.0312"), (600_000, "0.3624")])
def test_I3_a_long_prompt_pays_the_price_of_its_tier(tokens: int, amount: str) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": 1000}
    cost = read_whole("minimax/MiniMax-M3", {"content": "x"}, usage=usage).cost
    assert cost == cnllm.Cost(Decimal(amount), "USD")


# ── I4 ───────────────────────────────────────────────────────────────────────
FIRST: list[Any] = [{"role": "system", "content": "规则"}, {"role": "user", "content": "天空"}]
OFFERED = [tool("zeta"), tool("alpha", {"type": "object", "properties": {"b": {}, "a": {}}})]
NAMES = [
    "deepseek/deepseek-flash",
    "zai/glm-4.7",
    "moonshotai/kimi-k3",
    "minimax/MiniMax-M3",
    "openai/gpt-6-sol",
]


@each("name", NAMES)
def test_I4_the_same_input_gives_the_same_bytes(name: str) -> None:
    one = plan(name, FIRST, tools=OFFERED, stream=True)
    two = plan(name, copy.deepcopy(FIRST), tools=copy.deepcopy(OFFERED), stream=True)
    assert one.content == two.content
    assert json.loads(one.content) == one.body


def test_I4_the_same_bytes_in_every_process() -> None:
    code = (
        "import json, sys, hashlib; from cnllm import Registry, engine\n"
        "messages, tools = json.loads(sys.argv[1])\n"
        "model = Registry.load().resolve('moonshotai/kimi-k3')\n"
        "made = engine.build_request(model, messages, tools=tools, temperature=.5, stop=['b', 'a'])\n"
        "print(hashlib.sha256(made.content).hexdigest())"
    )
    runs = [python(code, json.dumps([FIRST, OFFERED]), PYTHONHASHSEED=seed) for seed in ("0", "1", "2")]
    assert len({run.stdout for run in runs}) == 1, runs
    assert runs[0].stdout.strip(), runs[0].stderr


@each("name", NAMES)
def test_I4_a_longer_conversation_keeps_the_prefix_as_it_was(name: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "alpha", "arguments": '{"b": 1,  "a":"二"}'}}
    reply = read_whole(name, {"content": None, "reasoning_content": "想", "tool_calls": [call]}, "tool_calls")
    turns = [*FIRST, reply.message, result_turn("c1")]
    plans = [plan(name, turns[:count], tools=OFFERED) for count in (2, 4)]
    longer = plan(
        name, [*turns, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}], tools=OFFERED
    )
    for shorter in plans:
        kept = len(shorter.body["messages"])
        assert longer.body["messages"][:kept] == shorter.body["messages"]
        assert longer.body["tools"] == shorter.body["tools"]
    sent = longer.body["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert sent == '{"b": 1,  "a":"二"}', "a call goes back byte for byte"


# ── I5 ───────────────────────────────────────────────────────────────────────
def test_I5_repeated_usage_replaces_and_input_holds_the_cached_part() -> None:
    opening = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    partway = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    final = {**COUNTS, "prompt_tokens_details": {"cached_tokens": 64}}
    payloads = [
        chunk({"content": "x"}, usage=opening),
        chunk({"content": "y"}, usage=partway),
        chunk(finish="stop", usage=final),
        {"id": "r1", "model": "m", "choices": [], "usage": final},
    ]
    for target in (anywhere(), model("deepseek/deepseek-flash"), model("openrouter/moonshotai/kimi-k3")):
        seen = play(target, payloads).reply.usage
        assert (seen.input, seen.output, seen.total, seen.cached) == (100, 20, 120, 64)


def test_I5_a_later_null_does_not_erase_what_was_seen() -> None:
    payloads = [
        *text_chunks("x"),
        chunk(finish="stop", usage=COUNTS),
        {"id": "r1", "choices": [], "usage": None},
    ]
    seen = play(anywhere(), payloads).reply.usage
    assert (seen.input, seen.output) == (100, 20)


# ── I6 ───────────────────────────────────────────────────────────────────────
REFUSED = json.dumps({"error": {"message": "not now"}}).encode()
GOOD = http(200, whole_body({"content": "hi"}))


def _client(tmp_path: Path, server: Server, *, cap: float = 5) -> Client:
    registry = Registry.load(str(overlay(tmp_path, base_url=server.url)))
    return Client(registry, retry=cnllm.Retry(attempts=3, base=0.01, cap=cap))


def test_I6_retry_after_is_honoured(tmp_path: Path) -> None:
    with (
        Server([http(429, REFUSED, {"Retry-After": "1"})], [GOOD]) as server,
        _client(tmp_path, server) as client,
    ):
        assert client.call("home/m", "hi").text == "hi"
        first, second = server.received
    assert second.at - first.at >= 0.95
    assert first.body == second.body


def test_I6_a_retry_never_comes_earlier_than_the_endpoint_said(tmp_path: Path) -> None:
    with (
        Server([http(429, REFUSED, {"Retry-After": "3600"})], [GOOD]) as server,
        _client(tmp_path, server, cap=0.1) as client,
    ):
        with pytest.raises(cnllm.RateLimited) as caught:
            client.call("home/m", "hi")
        assert len(server.received) == 1
    assert caught.value.retry_after == 3600
    assert caught.value.message == "not now"


@each("status", [408, 409, 429, 500, 502, 503, 529])
def test_I6_what_can_succeed_is_tried_again(tmp_path: Path, status: int) -> None:
    with (
        Server([http(status, REFUSED)], [http(status, REFUSED)], [GOOD]) as server,
        _client(tmp_path, server) as client,
    ):
        assert client.call("home/m", "hi").text == "hi"
        assert len(server.received) == 3


@each("status", [400, 401, 402, 403, 404, 413, 422])
def test_I6_what_cannot_succeed_is_not(tmp_path: Path, status: int) -> None:
    with Server([http(status, REFUSED)], [GOOD]) as server, _client(tmp_path, server) as client:
        with pytest.raises(cnllm.EndpointError) as caught:
            client.call("home/m", "hi")
        assert len(server.received) == 1
    assert caught.value.status == status
    assert caught.value.retryable is False


def test_I6_attempts_are_bounded_and_the_last_error_is_told(tmp_path: Path) -> None:
    with Server([http(503, REFUSED)]) as server, _client(tmp_path, server) as client:
        with pytest.raises(cnllm.EndpointError) as caught:
            client.call("home/m", "hi")
        assert len(server.received) == 3
    assert caught.value.status == 503


def _error(**fields: Any) -> Json:
    return {"error": fields}


KINDS: list[tuple[str, Answer, str]] = [
    ("zai/glm-4.7", failed(429, _error(code="1113", message="Insufficient balance")), "QuotaExceeded"),
    (
        "zai-coding-plan/glm-4.7",
        failed(429, _error(code="1308", message="Usage limit reached")),
        "QuotaExceeded",
    ),
    ("zai/glm-4.7", failed(429, _error(code="1302", message="High concurrency")), "RateLimited"),
    ("zai/glm-4.7", failed(429, _error(code="1305", message="Overloaded")), "Overloaded"),
    (
        "moonshotai/kimi-k3",
        failed(429, _error(type="exceeded_current_quota_error", message="check your billing")),
        "QuotaExceeded",
    ),
    (
        "moonshotai/kimi-k3",
        failed(429, _error(type="rate_limit_reached_error", message="max RPM: 3")),
        "RateLimited",
    ),
    ("moonshotai/kimi-k3", failed(429, _error(type="engine_overloaded_error", message="busy")), "Overloaded"),
    ("deepseek/deepseek-flash", failed(402, _error(message="Insufficient Balance")), "QuotaExceeded"),
    ("deepseek/deepseek-flash", failed(429, _error(message="concurrency")), "RateLimited"),
    ("deepseek/deepseek-flash", failed(503, _error(message="Service is too busy")), "Overloaded"),
    (
        "openai/gpt-6-sol",
        failed(429, _error(code="insufficient_quota", type="insufficient_quota", message="exceeded your quota")),
        "QuotaExceeded",
    ),
    ("alibaba/qwen3.7-plus", failed(400, _error(code="Arrearage", message="Access denied")), "QuotaExceeded"),
    (
        "openrouter/moonshotai/kimi-k3",
        failed(402, _error(code=402, message="Insufficient credits")),
        "QuotaExceeded",
    ),
]


@each("name, answer, kind", KINDS)
def test_I6_quota_rate_and_overload_are_told_apart_and_a_balance_is_not_retried(
    name: str, answer: Answer, kind: str
) -> None:
    wire = Wire(answer, ok(whole_body({"content": "hi"})))
    retry = cnllm.Retry(attempts=2, base=0.001, cap=0.01)
    expected: type[cnllm.EndpointError] = getattr(cnllm, kind)
    with pytest.raises(expected) as caught:
        read_body(model(name), answer.body, answer.status)
    assert type(caught.value) is expected
    assert caught.value.retryable is (kind != "QuotaExceeded")
    with Client(transport=wire.transport, api_key="k", retry=retry) as client:
        if kind == "QuotaExceeded":
            with pytest.raises(cnllm.QuotaExceeded):
                client.call(name, "hi")
            assert len(wire.requests) == 1
        else:
            assert client.call(name, "hi").text == "hi"
            assert len(wire.requests) == 2


# ── I7 ───────────────────────────────────────────────────────────────────────
VLLM_WORDS = "This model's maximum context length is 32768 tokens. However, you requested 40001 tokens."
OVERFLOWS: list[tuple[str, int, Json, str]] = [
    ("zai/glm-4.7", 400, _error(code="1261", message="Prompt too long"), ""),
    ("zhipuai/glm-4.7", 400, _error(code="1261", message="Prompt exceeds max length"), ""),
    (
        "moonshotai/kimi-k3",
        400,
        _error(
            type="invalid_request_error",
            message="Your request exceeded model token limit: 262144 (requested: 300001)",
        ),
        "300001",
    ),
    (
        "minimax/MiniMax-M3",
        400,
        {
            "type": "error",
            "error": {
                "type": "bad_request_error",
                "message": "invalid params, context window exceeds limit (2013)",
                "http_code": "400",
            },
        },
        "2013",
    ),
    (
        "alibaba/qwen3.7-plus",
        400,
        _error(
            code="invalid_parameter_error",
            type="invalid_request_error",
            message="<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]",
        ),
        "258048",
    ),
    (
        "deepseek/deepseek-flash",
        400,
        _error(
            type="invalid_request_error",
            message="This model's maximum context length is 1048576 tokens. However, you requested "
            "1048999 tokens (1048000 in the messages, 999 in the completion).",
        ),
        "1048999",
    ),
    (
        "openai/gpt-6-sol",
        400,
        _error(code="context_length_exceeded", message="Your input exceeds the context window of this model."),
        "",
    ),
    (
        "openrouter/moonshotai/kimi-k3",
        400,
        _error(
            code=400,
            message="This endpoint's maximum context length is 204800 tokens. However, you requested "
            "about 300001 tokens.",
            metadata={"error_type": "context_length_exceeded"},
        ),
        "300001",
    ),
    (
        "vllm/Qwen/Qwen3-8B",
        400,
        {
            "object": "error",
            "message": VLLM_WORDS,
            "type": "BadRequestError",
            "code": 400,
        },
        "40001",
    ),
    (
        "llamacpp/qwen",
        400,
        _error(
            code=400,
            type="exceed_context_size_error",
            message="the request exceeds the available context size (4096 tokens), try increasing it",
            n_prompt_tokens=5001,
            n_ctx=4096,
        ),
        "4096",
    ),
    (
        "openai-compatible",
        400,
        _error(
            message=VLLM_WORDS,
        ),
        "40001",
    ),
]


@each("name, status, body, number", OVERFLOWS)
def test_I7_context_overflow_is_one_error_class_with_the_vendors_numbers(
    name: str, status: int, body: Json, number: str
) -> None:
    target = anywhere() if name == "openai-compatible" else model(name)
    with pytest.raises(cnllm.ContextTooLong) as caught:
        read_body(target, body, status)
    assert number in caught.value.message
    assert caught.value.retryable is False
    assert caught.value.status == status


def test_I7_an_answer_limit_out_of_range_is_no_overflow() -> None:
    message = "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"
    with pytest.raises(cnllm.BadRequest):
        read_body(model("deepseek/deepseek-flash"), _error(message=message), 400)


def test_I7_a_user_teaches_it_the_words_of_an_endpoint(tmp_path: Path) -> None:
    target = home(tmp_path, 'errors = [{ kind = "context", status = [418], text = ["does not fit"] }]')
    with pytest.raises(cnllm.ContextTooLong):
        read_body(target, _error(message="This does not fit: 9001 of 8000"), 418)
    with pytest.raises(cnllm.EndpointError) as caught:
        read_body(target, _error(message="I am a teapot"), 418)
    assert not isinstance(caught.value, cnllm.ContextTooLong)
