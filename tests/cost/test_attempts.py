"""A call that was sent several times: what failed attempts cost is in its figure, or in `missing`.

Each row has the steps of the endpoint. A refusal costs nothing. An attempt that broke off costs what it reported, and
one without an answer may cost anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from cases import each

from cnllm import Client, Cost, Registry, Retry
from cnllm.errors import CnllmError
from cnllm.store import Store

from .replies import chat, messages
from .server import LOST, REFUSED, UNAVAILABLE, Cut, Endpoint, Step
from .test_bills import expected

KEY = "sk-the-key-of-the-endpoint-0123"
OPUS, LUNA, GLM, YUAN = "anthropic/claude-opus-5", "openai/gpt-6-luna", "zai/glm-4.7", "zhipuai/glm-4.7"
SAY, CHAT = messages(1000, 300), chat(1000, 300)
COUNTED = chat(1000, 300)
COUNTED = COUNTED._replace(chunks=[{**chunk, "usage": COUNTED.last["usage"]} for chunk in COUNTED.chunks])
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

WHOLE = "1000*5 + 300*25"
START = "1000*5"  # the input of a Messages stream, which its first event reports
LONGEST = "1000*5 + 500*25"  # with the most output that the request allows


class Attempts(NamedTuple):
    """A call. `arithmetic`, `missing` and `most` are as in the table of bills; `error` is the class of its end."""

    model: str
    steps: list[Step]
    arithmetic: str
    missing: str = ""
    most: str = ""
    streams: bool = True
    error: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    attempts: int = 3


# fmt: off
ROWS = {
    # retried
    "refusals cost nothing": Attempts(OPUS, [UNAVAILABLE, UNAVAILABLE, SAY], WHOLE),
    "refusals cost nothing, whole": Attempts(OPUS, [UNAVAILABLE, SAY], WHOLE, streams=False),
    "no answer may cost anything": Attempts(OPUS, [LOST, SAY], WHOLE, "request"),
    "no answer may cost anything, whole": Attempts(OPUS, [LOST, SAY], WHOLE, "request", streams=False),
    "no answer, then a refusal": Attempts(OPUS, [LOST, REFUSED], "", "all", error="BadRequest"),
    "refused": Attempts(OPUS, [REFUSED], "", "free", error="BadRequest"),
    # cut
    "cut": Attempts(OPUS, [Cut(SAY)], START, "output", LONGEST, error="StreamCut"),
    "cut without a count": Attempts(GLM, [Cut(CHAT)], "", "all", error="StreamCut"),
    "cut and kept": Attempts(OPUS, [Cut(SAY)], START, "output", LONGEST, options={"if_cut": "keep"}),
    "cut after a retry": Attempts(OPUS, [LOST, Cut(SAY)], START, "request output", error="StreamCut"),
    "again": Attempts(
        OPUS, [Cut(SAY), SAY], f"{START} + {WHOLE}", "output", f"{LONGEST} + {WHOLE}",
        options={"if_cut": "again-whole"}),
    "again, counted": Attempts(
        GLM, [Cut(COUNTED), CHAT], "2*(1000*0.6 + 300*2.2)", "output",
        "2*1000*0.6 + (500 + 300)*2.2", options={"if_cut": "again-whole"}),
    "again, without a count": Attempts(
        GLM, [Cut(CHAT), CHAT], "1000*0.6 + 300*2.2", "request", options={"if_cut": "again-whole"}),
    "again after no answer": Attempts(
        OPUS, [LOST, Cut(SAY), SAY], f"{START} + {WHOLE}", "request output", options={"if_cut": "again-whole"}),
    "never whole": Attempts(
        OPUS, [Cut(SAY)], START, "request output", error="StreamCut",
        options={"if_cut": "again-whole", "recovery": {"streams": 1}}),
    # fallen back
    "the first refused": Attempts(
        GLM, [UNAVAILABLE, CHAT], "1000*0.1 + 300*0.5", options={"fallback": [LUNA]}, attempts=1),
    "no answer of the first": Attempts(
        GLM, [LOST, CHAT], "1000*0.1 + 300*0.5", "request", options={"fallback": [LUNA]}, attempts=1),
    "went on elsewhere": Attempts(
        GLM, [Cut(COUNTED), CHAT], "1000*0.6 + 300*2.2 + 1000*0.1 + 300*0.5", "output",
        "1000*0.6 + 500*2.2 + 1000*0.1 + 300*0.5", options={"fallback": [LUNA]}, attempts=1),
    "another currency": Attempts(
        YUAN, [LOST, CHAT], "1000*0.1 + 300*0.5", "request", options={"fallback": [LUNA]}, attempts=1),
    "all failed": Attempts(
        GLM, [LOST, REFUSED], "", "all", error="BadRequest", options={"fallback": [LUNA]}, attempts=1),
    "nobody answered": Attempts(
        GLM, [LOST, UNAVAILABLE], "", "all", error="TransportError", options={"fallback": [LUNA]}, attempts=1),
    # corrected
    "sent back": Attempts(
        GLM, [CHAT], "2*(1000*0.6 + 300*2.2)", streams=False, options={"schema": PERSON, "corrections": 1}),
    "sent back in vain": Attempts(
        GLM, [CHAT, REFUSED], "1000*0.6 + 300*2.2", streams=False, options={"schema": PERSON, "corrections": 1}),
    "sent back and lost": Attempts(
        GLM, [CHAT, LOST], "2*(1000*0.6 + 300*2.2)", "request", streams=False,
        options={"schema": PERSON, "corrections": 1}),
}
# fmt: on


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Registry]]:
    folder = tmp_path_factory.mktemp("attempts")
    steps = {str(number): row.steps for number, row in enumerate(ROWS.values())}
    with Endpoint(steps) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CNLLM_DATA_DIR", str(folder / "data"))
        tables = [
            f'[providers.{name}]\nbase_url = "{endpoint.url}/{name}/v1"\n'
            for name in ("anthropic", "openai", "zai", "zhipuai")
        ]
        path = folder / "providers.toml"
        path.write_text("\n".join(tables), encoding="utf-8")
        for name in ("ANTHROPIC", "OPENAI", "ZAI", "ZHIPUAI"):
            patch.setenv(f"{name}_API_KEY", KEY)
        yield endpoint, Registry.load(path)


def call(client: Client, row: Attempts, number: int) -> tuple[Cost | None, CnllmError | None]:
    """The cost that a user sees of a call, and its error."""
    options = {"tag": f"n{number}", "max_tokens": 500, **row.options}
    try:
        if not row.streams:
            return client.call(row.model, f"row-{number}", **options).cost, None
        with client.stream(row.model, f"row-{number}", **options) as stream:
            return stream.reply.cost, None
    except CnllmError as error:
        return error.cost, error


@each("name", ROWS)
def test_a_cost_has_all_attempts(place: tuple[Endpoint, Registry], name: str) -> None:
    endpoint, registry = place
    row, number = ROWS[name], list(ROWS).index(name)
    before = endpoint.counts.total()
    with Client(registry, api_key=KEY, log_calls=True, retry=Retry(attempts=row.attempts, base=0.01)) as client:
        cost, error = call(client, row, number)
    assert (type(error).__name__ if error else None) == row.error
    assert endpoint.counts.total() - before >= len(row.steps)
    if row.missing in ("all", "free"):
        assert cost is None
    else:
        figure = expected(row.arithmetic, row.missing, row.most)
        assert figure is not None
        assert cost is not None
        assert (cost.amount, set(cost.missing), cost.at_most) == (figure[0], set(row.missing.split()), figure[2])
    if error is not None:
        assert error.reply is None or error.reply.cost == cost
        assert bool(error.meaning.charged) is (row.missing != "free")
    with Store.open() as store:
        (logged,) = [entry for entry in store.costs("tag").rows if entry.label == f"n{number}"]
    assert logged.exact is (not row.missing or row.missing == "free")
    assert [(entry.amount, entry.missing) for entry in logged.cost] == (
        [] if cost is None else [(cost.amount, cost.missing)]
    )
