"""Endpoints with forms that no vendor has: a probe learns them from their answers, and claims nothing that is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from cnllm import probe

from .endpoint import KEY, Answer, Json, listing, refused, serving
from .odd import Odd, Rule


def long(*values: Any) -> Any:
    """A further case of a kind, for the long run."""
    return pytest.param(*values, marks=pytest.mark.long)


def probed(endpoint: Odd, max_requests: int = 200) -> probe.Report:
    with serving(endpoint) as server:
        return probe.run(server.url, api_key=KEY, max_requests=max_requests, sleep=lambda seconds: None)


def values(report: probe.Report) -> dict[str, Any]:
    return {fact.flag: fact.value for fact in report.facts if fact.answer != "unknown"}


def refuses(key: str, answer: Any) -> Rule:
    return lambda request: answer if key in request else None


# ── a refusal is not an end ──────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "more"),
    [long(401, {}), long(402, {}), (403, {}), long(429, {"code": "insufficient_quota"})],
)
def test_a_refusal_of_one_question_ends_nothing(status: int, more: Json) -> None:
    words = "this choice is not for you"
    found = probed(Odd(refuses("tool_choice", refused(words, status, **more)), refuses("seed", "seed is unknown")))
    assert values(found)["params.seed"] is False
    assert values(found)["tool_choice.allowed"] == []
    assert found.stopped == ""


def test_a_key_that_expires_in_the_middle_ends_the_probe() -> None:
    sent: list[Json] = []

    def expires(request: Json) -> Any:
        sent.append(request)
        return refused("the key has expired", 401) if len(sent) > 20 else None

    found = probed(Odd(expires))
    assert "refuses the key" in found.stopped
    assert len(sent) <= 23  # the refusal, and the base request again
    assert "refused" not in {fact.answer for fact in found.facts if fact.flag != "auth.header"}


# ── what replies show ────────────────────────────────────────────────────────
def always(request: Json) -> bool:
    return True


def enabled(request: Json) -> bool:
    return bool(request.get("enable_thinking") is True)


@pytest.mark.parametrize("cumulative", [False, long(True)])
def test_an_endpoint_that_only_streams_shows_as_much(cumulative: bool) -> None:
    found = values(probed(Odd(only_streams=True, cumulative=cumulative, thinks=always, field="reasoning_content"), 60))
    assert found["when.reasoning.stream.required"] is True
    assert found["reasoning.fields"] == ["reasoning_content"]
    assert found["reasoning.shape"] == "field"
    assert found["finish.stop"] == "stop"
    assert found["finish.tool_calls"] == "tool_calls"
    assert found["usage.input"] == ["prompt_tokens"]
    assert found.get("stream.deltas") == ("cumulative" if cumulative else None)


@pytest.mark.parametrize("is_enough", [lambda r: r.get("enable_thinking") is False, lambda r: False])
def test_an_endpoint_that_only_streams_in_one_mode_or_in_both(is_enough: Callable[[Json], bool]) -> None:
    """The model reasons unless a switch says otherwise. The first refusal may be one of that mode."""

    def refuses(request: Json) -> str | None:
        return None if request.get("stream") or is_enough(request) else "this request needs stream=true."

    odd = Odd(refuses, thinks=lambda r: r.get("enable_thinking") is not False, field="reasoning_content")
    outcome = probed(odd, 60)
    found = values(outcome)
    assert found["reasoning.off.set.enable_thinking"] is False
    assert found["stream.required"] is True
    whole = [e for e in outcome.exchanges if e.answer.passed and not e.answer.streamed and e.ask.body]
    assert found.get("when.no-reasoning.stream.required") is (False if whole else None)
    assert bool(whole) is is_enough({"enable_thinking": False})


@pytest.mark.parametrize("field", ["inner_voice", long("cot.text"), long("musings")])
@pytest.mark.parametrize("only_streams", [False, True])
def test_a_field_of_reasoning_that_nobody_has(field: str, only_streams: bool) -> None:
    found = values(probed(Odd(thinks=always, field=field, only_streams=only_streams), 60))
    assert found["reasoning.fields"] == [field]
    assert found["reasoning.default"] == "on"


def test_a_field_that_a_switch_turns_on() -> None:
    found = values(probed(Odd(thinks=enabled, field="inner_voice", streams=False), 60))
    assert found["reasoning.fields"] == ["inner_voice"]
    assert found["reasoning.on.set.enable_thinking"] is True
    assert found["reasoning.default"] == "off"


def test_prose_beside_the_answer_is_no_reasoning() -> None:
    """It comes after the text, whatever is asked, under a name that says nothing."""

    class Noted(Odd):
        def _pieces(self, thought: str, text: str, calls: list[Json], *, stream: bool) -> Any:
            yield from super()._pieces(thought, text, calls, stream=stream)
            yield {"house_note": "All of our answers are made "}
            yield {"house_note": "by a very small model, with care."}

    found = values(probed(Noted()))
    assert not [flag for flag in found if flag.startswith("reasoning.")]


@pytest.mark.parametrize("part", [long("thinking"), long("reasoning"), "musing"])
def test_a_part_of_the_content(part: str) -> None:
    found = values(probed(Odd(thinks=always, part=part), 60))
    assert (found["reasoning.shape"], found["reasoning.part"]) == ("content-parts", part)
    assert found["reasoning.part_form"] == "text"


@pytest.mark.parametrize(
    "tags",
    [
        ("<ponder>", "</ponder>"),
        long(("[MIND]", "[/MIND]")),
        long(("<|begin_of_musing|>", "<|end_of_musing|>")),
        ("◁深思▷", "◁/深思▷"),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_tags_that_nobody_has_and_those_that_the_template_opens(tags: tuple[str, str], opened: bool) -> None:
    arrives = ("", tags[1]) if opened else tags
    found = values(probed(Odd(thinks=always, tags=arrives), 60))
    assert found["reasoning.shape"] == "tags"
    assert found["reasoning.tags"] == list(tags)
    assert found.get("when.reasoning.reasoning.tags_at") == ("start-open" if opened else None)  # no other mode is known


@pytest.mark.long
def test_markup_of_an_answer_is_no_tag() -> None:
    class Marked(Odd):
        def reply(self, request: Json) -> Any:
            status, kind, content = super().reply(request)
            return status, kind, content.replace(b"I am a small model", b"<p>I am</p> a small model")

    assert not [flag for flag in values(probed(Marked())) if flag.startswith("reasoning.")]


@pytest.mark.parametrize("only_streams", [long(False), True])
def test_words_and_counts_in_places_of_their_own(only_streams: bool) -> None:
    usage = ("billing.tokens", "read", "written")
    found = values(probed(Odd(finish=("done", "too_long", "calls"), usage=usage, only_streams=only_streams), 80))
    assert {flag: value for flag, value in found.items() if flag.startswith("finish.")} == {
        "finish.done": "stop",
        "finish.too_long": "length",
        "finish.calls": "tool_calls",
    }
    assert found["usage.at"] == ["billing.tokens"]
    assert (found["usage.input"], found["usage.output"]) == (["read"], ["written"])
    assert found["params.max_tokens"] == "max_tokens"


def test_counts_beside_a_total_of_the_usual_name() -> None:
    class Counted(Odd):
        def reply(self, request: Json) -> Any:
            status, kind, content = super().reply(request)
            body = json.loads(content)
            counts = body["meta"]["use"]
            counts["total_tokens"] = sum(counts["tokens"].values())
            content = json.dumps(body).encode()
            return status, kind, content

    found = values(probed(Counted(usage=("meta.use", "tokens.read", "tokens.written"), streams=False), 60))
    assert found["usage.at"] == ["meta.use"]
    assert (found["usage.input"], found["usage.output"]) == (["tokens.read"], ["tokens.written"])
    assert found["usage.total"] == ["total_tokens"]


def test_the_place_of_an_error() -> None:
    def seed(request: Json) -> Any:
        words = b'{"fault": {"explanation": "seed is unknown here", "number": 7}}'
        return (400, "application/json", words) if "seed" in request else None

    found = values(probed(Odd(seed)))
    assert found["params.seed"] is False
    assert (found["error.at"], found["error.message"]) == (["fault"], ["explanation"])


# ── a claim needs its counter-question ───────────────────────────────────────
def forced_while_it_thinks(request: Json) -> str | None:
    choice = request.get("tool_choice")
    return "a forced call is not possible now" if enabled(request) and choice not in (None, "auto") else None


def refuses_none(request: Json) -> str | None:
    return "there is no such choice" if request.get("tool_choice") == "none" else None


def test_choices_that_are_refused_while_the_model_reasons_stand_under_that_mode() -> None:
    found = values(probed(Odd(forced_while_it_thinks, thinks=enabled, field="reasoning_content")))
    assert set(found["tool_choice.allowed"]) == {"auto", "none", "required", "named"}
    assert found["when.reasoning.tool_choice.allowed"] == ["auto"]


def test_choices_of_which_nothing_shows_may_be_refused_while_the_model_reasons() -> None:
    class Caller(Odd):
        """Calls a tool whatever is asked, and reads no choice."""

        def _calls(self, request: Json) -> list[Json]:
            tools = {**request, "messages": [{"role": "user", "content": "weather"}], "tool_choice": None}
            return super()._calls(tools) if request["messages"][-1].get("role") == "user" else []

    found = values(probed(Caller(forced_while_it_thinks, thinks=enabled, field="reasoning_content")))
    assert "tool_choice.allowed" not in found
    assert found["when.reasoning.tool_choice.allowed"] == ["auto"]


def test_a_parameter_that_only_a_mode_takes_and_a_bound_that_a_mode_moves() -> None:
    def rule(request: Json) -> str | None:
        temperature, highest = request.get("temperature"), 1 if enabled(request) else 0.9
        if temperature is not None and not enabled(request):
            return "Unsupported parameter: 'temperature'."
        if not 0 <= (temperature or 0) <= 1:
            return "temperature must be between 0 and 1"
        return None if 0 <= request.get("top_p", 0) <= highest else f"top_p must be between 0 and {highest}"

    found = values(probed(Odd(rule, thinks=enabled, field="reasoning_content")))
    assert found["params.temperature"] is False
    assert found["when.reasoning.params.temperature.max"] == 1
    assert (found["params.top_p.max"], found["when.reasoning.params.top_p.max"]) == (0.9, 1)


def only_streams(request: Json) -> str | None:
    return None if request.get("stream") else "this request needs stream=true."


@pytest.mark.parametrize(
    ("endpoint", "why", "flag", "value"),
    [
        (Odd(thinks=enabled, tags=("", "</think>")), "", "reasoning.reasoning.tags_at", "start-open"),
        long(
            Odd(refuses_none, forced_while_it_thinks, thinks=enabled, field="reasoning"),
            "tool_choice",
            "no-reasoning.tool_choice.allowed",
            ["auto", "required", "named"],
        ),
        long(Odd(only_streams, thinks=always, field="reasoning"), "", "reasoning.stream.required", True),
    ],
)
def test_what_was_seen_in_one_mode_alone_is_said_of_that_mode(endpoint: Odd, why: str, flag: str, value: Any) -> None:
    """With `why` the probe ends right after these requests without reasoning, before the same with it."""
    most = 200
    if why:
        asked = [e for e in probed(endpoint).exchanges if e.ask.why.startswith(why) and not enabled(e.ask.body or {})]
        most = max(e.number for e in asked) + 1
    found = values(probed(endpoint, most))
    assert found[f"when.{flag}"] == value
    assert flag.partition(".")[2] not in found


def test_words_that_repeat_a_key_of_the_request_say_nothing_of_the_model() -> None:
    words = "Unrecognized request argument supplied: thinking is not supported"
    assert "reasoning.mode" not in values(probed(Odd(refuses("thinking", words)), 60))
    found = values(probed(Odd(refuses("thinking", words), thinks=enabled, field="reasoning_content"), 60))
    assert found["reasoning.mode"] == "toggle"


@pytest.mark.long
def test_words_about_the_model_do_where_no_other_switch_helps() -> None:
    words = "This model is no reasoning model and cannot think."
    assert values(probed(Odd(refuses("thinking", words)), 60))["reasoning.mode"] == "never"
    found = values(probed(Odd(refuses("thinking", words), thinks=enabled, field="reasoning_content"), 60))
    assert found["reasoning.mode"] == "toggle"


@pytest.mark.long
def test_json_in_a_form_that_cannot_be_read_is_no_proof_against_a_schema() -> None:
    class Fenced(Odd):
        def reply(self, request: Json) -> Any:
            status, kind, content = super().reply(request)
            return status, kind, content.replace(b'"{', b'"Here it is: {')

    assert "schema.methods" not in values(probed(Fenced()))


@pytest.mark.long
def test_reasoning_that_is_taken_back_is_not_demanded() -> None:
    def strict(request: Json) -> str | None:
        keys = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content", "name"}
        odd = [key for turn in request["messages"] for key in turn if key not in keys]
        return f"unknown key {odd[0]}" if odd else None

    found = values(probed(Odd(strict, thinks=always, field="reasoning_content")))
    assert "reasoning.replay" not in found
    assert found["reasoning.fields"] == ["reasoning_content"]


def refuses_keyword(request: Json) -> str | None:
    parts = [request.get("tools"), request.get("response_format")]
    words = "Invalid schema: the keyword 'additionalProperties' is not supported"
    return words if any("additionalProperties" in keys_of(part) for part in parts if part) else None


def refuses_lists_of_stops(request: Json) -> str | None:
    return "stop must be a string" if isinstance(request.get("stop"), list) else None


def refuses_many(request: Json) -> str | None:
    return "top_k is at most 10" if request.get("top_k", 0) > 10 else None


def refuses_small_pictures(request: Json) -> str | None:
    return "the image has 32 pixels, 64 are the least" if "image_url" in str(request["messages"]) else None


@pytest.mark.parametrize(
    ("rule", "unproven", "proven"),
    [
        (refuses_keyword, "tools.strict", {"tools.schema_drop": ["additionalProperties"]}),
        long(refuses_keyword, "tools.strict", {"schema.methods": ["json_schema"]}),
        long(refuses_lists_of_stops, "params.stop", {}),
        long(refuses_many, "params.top_k", {}),
        long(refuses_small_pictures, "input", {}),
    ],
)
def test_a_refusal_of_one_form_says_nothing_of_others(rule: Rule, unproven: str, proven: Json) -> None:
    found = values(probed(Odd(rule)))
    assert unproven not in found
    assert proven.items() <= found.items()


def test_a_model_that_reasons_by_itself_was_asked_in_that_mode() -> None:
    def forced(request: Json) -> str | None:
        return "a forced call is not possible now" if request.get("tool_choice") not in (None, "auto") else None

    found = values(probed(Odd(forced, thinks=always, field="reasoning_content")))
    assert found["when.reasoning.tool_choice.allowed"] == ["auto"]
    assert "tool_choice.allowed" not in found


@pytest.mark.long
def test_what_shows_where_nobody_counts_tokens() -> None:
    class Silent(Odd):
        def reply(self, request: Json) -> Any:
            status, kind, content = super().reply(request)
            return status, kind, re.sub(rb',? ?"usage": \{[^}]*\}', b"", content)

    def roles(request: Json) -> str | None:
        odd = {turn["role"] for turn in request["messages"]} - {"developer", "user", "assistant", "tool"}
        return f"the role {odd.pop()} is unknown" if odd else None

    found = values(probed(Silent(roles, finish=("done", "too_long", "calls"))))
    assert found["messages.developer"] is True
    assert found["messages.system"] == "user"
    assert found["params.max_tokens"] == "max_tokens"
    assert "messages.developer" not in values(probed(Silent()))


@pytest.mark.long
def test_turns_of_a_model_without_tools() -> None:
    def demands(request: Json) -> str | None:
        calls = [turn for turn in request["messages"] if turn.get("tool_calls")]
        return "reasoning_content is missing" if any("reasoning_content" not in turn for turn in calls) else None

    found = values(probed(Odd(refuses("tools", "no tools here"), demands, thinks=always, field="reasoning_content")))
    assert found["tools.supported"] is False
    assert found["reasoning.replay"] == "tool-turns"


# ── keywords of JSON Schema ──────────────────────────────────────────────────
NINE = ("title", "format", "pattern", "minLength", "default", "minimum", "multipleOf", "minItems", "uniqueItems")


def keys_of(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {key for value in schema.values() for key in keys_of(value)}
    return {key for item in schema for key in keys_of(item)} if isinstance(schema, list) else set()


@pytest.mark.parametrize(("read", "said"), [(None, False), ({"name", "description", "parameters"}, None)])
def test_a_server_that_shows_its_model_whatever_a_tool_says_of_itself(read: set[str] | None, said: bool | None) -> None:
    """The Responses wire says of each tool whether it is strict."""

    def answer(request: Json | None, number: int) -> Answer:
        if request is None:
            return listing()
        tools = [{k: v for k, v in tool.items() if read is None or k in read} for tool in request.get("tools") or ()]
        counts = {"input_tokens": len(json.dumps([request["input"], tools])) // 4, "output_tokens": 3}
        content = [{"type": "output_text", "text": "Hello there.", "annotations": []}]
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}
        body = {"id": "r", "object": "response", "status": "completed", "output": [message], "usage": counts}
        return 200, "application/json", json.dumps(body).encode()

    with serving(answer) as server:
        report = probe.run(server.url, protocol="openai-responses", max_requests=100, sleep=lambda seconds: None)
    assert values(report).get("tools.strict") is said


@pytest.mark.parametrize(
    ("words", "most"),
    [
        long("the keywords {all} are not taken", 4),
        ("the keyword '{first}' is not supported", 13),
        long("bad schema", 75),
    ],
)
def test_nine_keywords_cost_few_requests(words: str, most: int) -> None:
    def rule(request: Json) -> str | None:
        found = [key for key in NINE for tool in request.get("tools") or () if key in keys_of(tool)]
        return words.format(all=", ".join(f"`{key}`" for key in found), first=found[0]) if found else None

    report = probed(Odd(rule), 300)
    assert set(values(report)["tools.schema_drop"]) == set(NINE)
    assert sum("keyword" in e.ask.why or "a schema with" in e.ask.why for e in report.exchanges) - 1 <= most


# ── the budget ───────────────────────────────────────────────────────────────
def test_the_report_says_what_is_left_to_ask() -> None:
    short, whole = probed(Odd(), 40), probed(Odd(), 400)
    assert short.stopped
    assert short.left
    assert f"requests would ask for: {short.left[0]}" in short.text()
    assert (whole.stopped, whole.left) == ("", ())
    assert "Nothing: no question is left that could decide an unknown flag." in whole.text()
