"""The file that comes with the package: whole, backed by sources, and nobody's private business."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builtin import written
from cases import each

from cnllm import Registry
from cnllm.registry.documents import layer_tables, read_sources
from cnllm.registry.provenance import citations, written_citations
from cnllm.registry_files.check import check
from cnllm.registry_files.sources import unsourced_paths

from .support import BUILTIN, builtin

TEXT = BUILTIN.read_text()
PROVIDERS = {
    *("alibaba", "alibaba-cn", "azure", "cerebras", "deepseek", "groq", "huggingface", "llamacpp", "minimax"),
    *("minimax-cn", "mistral", "moonshotai", "moonshotai-cn", "ollama", "openai", "openai-compatible", "openrouter"),
    *("sglang", "vllm", "xai", "zai", "zai-coding-plan", "zhipuai"),
}
MODALITIES = {"text", "image", "audio", "video", "file"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry([builtin()])


@cache
def data() -> dict[str, Any]:
    """What the file says, each source as a table."""
    return read_sources({**written(), "sources": dict(written()["sources"])})


def tables() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table by its dotted name, the `on` and `families` in them too."""
    for section in ("protocols", "families", "providers", "models"):
        for name, table in data()[section].items():
            yield f"{section}.{name}", table
            for kind in ("on", "families"):
                for inner, below in table.get(kind, {}).items():
                    yield f"{section}.{name}.{kind}.{inner}", below


# ── whole ────────────────────────────────────────────────────────────────────
def test_the_built_in_file_has_no_faults() -> None:
    assert check([]) == []


def test_a_fault_of_a_value_in_the_built_in_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "providers.toml").write_text(TEXT.replace('parts = ["<|tool_arg:start|>",', 'parts = ["",', 1))
    [fault] = check([], builtin_file=tmp_path / "providers.toml")
    assert fault.message == "families.solar.leaks.0.parts must hold something"


def test_every_flag_has_a_source() -> None:
    assert list(unsourced_paths(builtin())) == []


def test_every_provider_that_must_be_there_is_there(registry: Registry) -> None:
    assert set(registry.providers) >= PROVIDERS
    for name in PROVIDERS:
        model = registry.resolve(f"{name}/any-id")
        assert model.protocol == "openai-chat"
        assert model.flags.title
        assert model.flags.keys is not None


NO_ADDRESS = (
    "amazon-bedrock",
    "azure",
    "azure-cognitive-services",
    "bedrock-mantle",
    "cloudflare-ai-gateway",
    "cloudflare-workers-ai",
    "databricks",
    "google-vertex",
    "openai-compatible",
    "spark-x25",
)
"""Whose address holds an account, a region or a host of the user's."""


def test_who_has_an_address_of_its_own_says_it_and_where_keys_go_is_encrypted(registry: Registry) -> None:
    for name in registry.providers:
        flags = registry.resolve(f"{name}/any-id").flags
        url = flags.base_url
        if url is None:
            assert name in NO_ADDRESS
        elif flags.keys and "localhost" not in url:
            assert url.startswith("https://")
        assert not (url or "").endswith("/")


def test_every_key_has_the_name_of_a_variable_and_an_endpoints_own_stands_first(registry: Registry) -> None:
    for name in registry.providers:
        keys = registry.resolve(f"{name}/any-id").flags.keys or []
        assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*_(KEY|TOKEN|TOKEN_BEDROCK)", key) for key in keys), (name, keys)
        assert len(keys) == len(set(keys))


def test_families_and_aliases_stand_in_the_order_of_the_alphabet() -> None:
    families = re.findall(r"^\[families\.([^\].]+)\]", TEXT, re.MULTILINE)
    assert families == sorted(families) == sorted(data()["families"])
    aliases = [name.casefold() for name in data()["aliases"]]
    assert aliases == sorted(aliases)


def test_models_stand_below_their_provider() -> None:
    found = re.findall(r"^\[(?:providers\.([a-z0-9-]+)|models\.\"([^/\"]+)/[^\n]*)\]", TEXT, re.MULTILINE)
    owners = [owner for owner, _ in itertools.groupby(provider or model for provider, model in found)]
    assert owners == list(data()["providers"])
    assert len(owners) == len(set(owners))


def test_vendors_of_china_stand_first_and_plans_beside_their_vendor() -> None:
    sections = [s.partition("\n")[0].rstrip(" ─") for s in TEXT.split("\n# ── ")[1:]]
    listed = re.findall(r"^#   (.*)$", TEXT.partition("# Contents:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert listed == sections
    first = [sections.index(name) for name in ("DeepSeek", "Zhipu, Z.ai (GLM)", "Alibaba (Qwen)", "01.AI (Yi)")]
    last = [sections.index(name) for name in ("Chinese hosts of many vendors", "OpenAI", "hosts of many vendors")]
    assert first + last == sorted(first + last)
    for part in TEXT.split("\n# ── "):
        providers = set(re.findall(r"^\[providers\.([a-z0-9-]+)\]", part, re.MULTILINE))
        for name in providers:
            if vendor := re.fullmatch(r"(.*?)(?:-ai)?(?:-coding|-token|-agent)?-plan(?:-\w+)?", name):
                assert any(other.startswith(vendor[1]) for other in providers - {name}), name


def test_defaults_say_the_rest() -> None:
    expected = {
        "errors",
        "reasoning",
        "tool_choice",
        "tools",
        "messages",
        "schema",
        "stream",
        "fallback",
        "recovery",
        "resume",
    }
    assert set(data()["defaults"]) == expected | {"finish", "leaks", "sources"}
    assert data()["defaults"]["reasoning"]["mode"] == "unknown"
    assert "prefer" not in data()


# ── sane ─────────────────────────────────────────────────────────────────────
def test_every_successor_exists_and_is_not_retired_itself(registry: Registry) -> None:
    statuses = {name: status for name in registry.names() if (status := registry.resolve(name).flags.status)}
    retired = {name for name, status in statuses.items() if status.is_ == "retired"}
    assert all(statuses[name].use for name in retired)
    for name, status in statuses.items():
        if status.use is not None:
            assert status.use in registry.names(), name
            assert status.use not in retired, name


def test_prices_are_positive_and_say_their_currency(registry: Registry) -> None:
    for name in registry.names():
        price = registry.resolve(name).flags.price
        if price is None or (price.currency is None and price.input is None and price.output is None):
            continue  # rules of a family for a model that has no price
        assert price.currency in ("USD", "CNY"), name
        amounts = (price.input, price.output, price.cached, price.cache_write)
        assert all(amount is None or 0 <= amount < 1_000 for amount in amounts), name
        if price.input is not None and price.output is not None:
            assert price.output >= price.input, name
        if price.input is not None and price.cached is not None:
            assert price.cached <= price.input, name
        for tier in price.tiers or ():
            assert tier.get("above", 0) > 0 or tier["output_below"] > 0, name
            assert all(value >= 0 for value in tier.values()), name


def test_limits_are_sane(registry: Registry) -> None:
    for name in registry.names():
        limits = registry.resolve(name).flags.limits
        assert limits.context is None or 1_000 <= limits.context <= 20_000_000, name
        assert limits.output is None or 256 <= limits.output <= 20_000_000, name
        if limits.context is not None and limits.output is not None:
            assert limits.output <= limits.context, name


def test_ranges_are_ranges(registry: Registry) -> None:
    for name in registry.names():
        flags = registry.resolve(name).flags
        for param in (flags.params or {}).values():
            if isinstance(param, str | bool):
                continue
            low = [bound for bound in (param.min, param.above) if bound is not None]
            high = [bound for bound in (param.max, param.below) if bound is not None]
            assert all(a <= b for a in low for b in high), name
            assert param.as_ is not None or param.fixed is not None, name
        budget = flags.reasoning.budget
        if budget is not None and budget.min is not None and budget.max is not None:
            assert budget.min <= budget.max, name


def test_what_it_reads_is_something_to_read(registry: Registry) -> None:
    for name in registry.names():
        reads = registry.resolve(name).flags.input
        assert reads is None or ("text" in reads and set(reads) <= MODALITIES and len(set(reads)) == len(reads)), name


def test_patterns_are_patterns_and_words_of_finish_are_ours(registry: Registry) -> None:
    ours = {"stop", "pause", "length", "tool_calls", "content_filter", "error", "pending"}
    for name in registry.names():
        flags = registry.resolve(name).flags
        assert set((flags.finish or {}).values()) <= ours, name
        if flags.tools.call_id_pattern is not None:
            re.compile(flags.tools.call_id_pattern)


def test_reasoning_that_goes_back_has_a_way_to_go(registry: Registry) -> None:
    for name in registry.names():
        reasoning = registry.resolve(name).flags.reasoning
        if reasoning.replay not in (None, "never") and reasoning.mode != "never" and reasoning.replay_as == "field":
            assert reasoning.replay_field or reasoning.fields, name
        assert not reasoning.tags or (len(reasoning.tags) % 2 == 0 and all(reasoning.tags)), name
        if reasoning.mode == "always":
            assert reasoning.default != "off", name


def test_refusals_are_bodies_an_endpoint_could_send() -> None:
    import json

    for name, table in tables():
        for refusal in table.get("simulator", {}).get("refusals", ()):
            assert 200 <= refusal["status"] < 600, name
            if refusal["body"].startswith("{"):
                json.loads(re.sub(r"(?<=[:,\[ ])\{(param|value|role|index|model|choice)\}", "0", refusal["body"]))


SIZE = re.compile(
    r"\d+(?:\.\d+)?b|a\d+b|pro|max|plus|mini|nano|lite|flash|air|turbo|large|small|medium|omni|vl|vision|coder?"
)


def test_models_with_the_same_weights_are_named_after_the_same_size() -> None:
    """A snapshot, a faster service and another host are the same weights; another size never is.

    The host of a retired name may answer with the model that it advises.
    """
    models = data()["models"]
    for name, table in models.items():
        advised = table.get("status", {}).get("use", "").rpartition("/")[2]
        if table.get("same_weights") and advised != table["extends"].rpartition("/")[2]:
            own, other = (set(SIZE.findall(id.rpartition("/")[2].casefold())) for id in (name, table["extends"]))
            assert own == other, (name, table["extends"])


# ── sources ──────────────────────────────────────────────────────────────────
def test_sources_are_places_with_a_day() -> None:
    url = re.compile(r"https?://\S+|[\w.-]+/[\w.-]+(:[^\s@]+)?@[0-9a-f]{7,40}|[\w.-]+/[\w.-]+#\d+|[\w.-]+/[\w.-]+:\S+")
    for name, source in data()["sources"].items():
        where = source["url"]
        assert url.fullmatch(where) or where.startswith("the union of"), (name, where)
        assert datetime.date(2023, 1, 1) < source["seen"] <= datetime.date(2026, 12, 31), name
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), name


def test_each_source_is_named_once() -> None:
    urls = [source["url"] for source in data()["sources"].values()]
    assert sorted(urls) == sorted(set(urls))


def test_citations_are_names_and_flags() -> None:
    for name, table in tables():
        for key, value in table.get("sources", {}).items():
            for citation in written_citations(value):
                assert "url" not in citation, (name, key)
                assert citation["backs"], (name, key)
                assert len(set(citation["backs"])) == len(citation["backs"]), (name, key)


THIRD_PARTIES = re.compile(
    r"apidog|apiyi|dev\.to/|litellm|mastra\.ai|model-?prices|models\.?dev|modelparams|novita|opencode|/pi-(ai|catalog)|"
    r"vercel\.com/ai-gateway|xpay|dify-official|config-center|cc-switch|fastgpt|/lobehub"
)


OWN_PAGES = {
    "chutes": "https://chutes.ai/",
    "novita-ai": "https://novita.ai/docs/",
    "opencode": "anomalyco/opencode:packages/web/src/content/docs/",
    "opencode-go": "anomalyco/opencode:packages/web/src/content/docs/",
    "vercel": "https://vercel.com/docs/",
}
"""The documentation of those who are third parties for everybody else."""


def test_what_a_third_party_says_is_no_documentation() -> None:
    document = builtin()
    for path, table in layer_tables(document.data):
        for name, source in citations(document.data, table):
            provider = path[-1 if len(path) < 2 else 1].partition("/")[0]
            if OWN_PAGES.get(provider, " ") not in source["url"]:
                assert source["how"] != "docs" or not THIRD_PARTIES.search(source["url"]), (path, name)


def test_a_package_is_cited_with_the_file_that_has_the_value() -> None:
    """`registry check` says so of the built-in file; this counts them, so that the rule cannot pass over all."""
    document = builtin()
    packages = [
        source
        for _, table in layer_tables(document.data)
        for _, source in citations(document.data, table)
        if source["url"].startswith(("https://pypi.org/", "https://www.npmjs.com/"))
    ]
    assert len(packages) > 1000
    assert all("path" in source for source in packages if source["how"] in ("docs", "code", "catalogue"))


# ── nobody's private business ────────────────────────────────────────────────
SECRETS = {
    "a key": r"\b(sk|pk|rk|gsk|xai|hf|fw|nvapi|tgp|r8)[-_](?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{16,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{20,}",
    "an AWS key": r"\bAKIA[0-9A-Z]{12,}",
    "a GitHub token": r"\bgh[pousr]_[0-9A-Za-z]{20,}",
    "a JSON web token": r"\beyJ[0-9A-Za-z_-]{10,}\.",
    "a bearer": r"[Bb]earer (?!\{key\})[0-9A-Za-z_-]{12,}",
    "a long hexadecimal": r"(?<![@0-9a-f])[0-9a-f]{32,}",
    "a mail address": r"[\w.+-]+@[\w-]+\.(com|org|net|io|cn|ai)\b",
    "a path of a machine": r"(/work/|/home/|/Users/|/root/|/tmp/|/mnt/|\b[A-Z]:\\)",
    "a path of the project": r"\bshared/|\.\./",
    "a password in a URL": r"://[^/\s\"']+:[^/\s\"']+@",
    "a private address": r"\b(10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+)\b",
}


@each("kind", lambda: list(SECRETS))
def test_the_built_in_file_holds_no_secret_and_no_path(kind: str) -> None:
    found = [(n, m[0]) for n, line in enumerate(TEXT.splitlines(), 1) for m in re.finditer(SECRETS[kind], line)]
    assert found == []
