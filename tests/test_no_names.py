"""There is no provider's code: nothing in the package knows a provider, a model, or a word of one's dialect.

What is known of them stands in providers.toml alone. Docstrings and the examples in the help may name them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from builtin import written
from cases import each

from cnllm import Registry

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cnllm"

# Words that the neutral types, the public contract or OpenAI's own wire use too.
OURS = {
    *("any", "answer", "auto", "call", "content", "default", "details", "disabled", "enabled", "error", "file", "high"),
    *("id", "image", "input", "json", "keep", "low", "max", "medium", "message", "minimal", "model", "name", "none"),
    *("off", "on", "output", "parallel_tool_calls", "prompt", "reasoning", "refusal", "required", "stop", "stream"),
    *("stream_options", "system", "temperature", "text", "tool_call", "tool_calls", "tool_choice", "tools", "top_p"),
    *(
        "type",
        "parsed",
        "usage",
        "user",
        "value",
        "xhigh",
        "max_tokens",
        "seed",
        "include_usage",
        "object",
        "status",
        "length",
    ),
    *("content_filter", "safety", "timeout", "response_format", "code", "all", "detail", "data", "end", "normal"),
    *(
        "function",
        "param",
        "abort",
        "authentication",
        "server",
        "raw",
        "title",
        "format",
        "pattern",
        "examples",
        "context",
    ),
    "cost",
    # keys of OpenAI's two protocols, which some endpoints refuse
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "verbosity"),
    # keywords of JSON Schema, which `tools.schema_drop` lists
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "minLength"),
    *("maxLength", "uniqueItems", "patternProperties", "$schema", "$id", "$comment"),
    # a part's type in the Responses protocol, and our name for a text; an endpoint has a field of this name
    "reasoning_text",
    # fields of the Messages protocol (`anthropic/types` of its SDK) that are in no flag of its table, and the type of
    # its marks
    *("output_config", "effort", "disable_parallel_tool_use", "ephemeral"),
}
# Words of a protocol itself that our tables for it need not say: the side that serves it has to know them.
SERVED = {"reasoning_effort", "max_completion_tokens", "reasoning_content", "reasoning_details", "function_call"}
SERVED |= {"between_tools", "adaptive", "summarized", "display"}
SERVED |= {"effort", "metadata", "error_code"}
# These two list the options, and each parameter of the registry is one, under its own name.
OPTION_LISTS = {PACKAGE / "types" / "call_options.py", PACKAGE / "client" / "verb_help.py"}
EXAMPLES = re.compile(r"EXAMPLES|EPILOG|epilog|help|examples")


def leaves(data: Any) -> Iterator[str]:
    """Every key and every text in a table."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from leaves(value)
    elif isinstance(data, list):
        for item in data:
            yield from leaves(item)
    elif isinstance(data, str):
        yield data


@cache
def names() -> set[str]:
    """Providers, families and models, and the parts of models' ids."""
    found = {*written()["providers"], *written()["families"], *written()["aliases"]}
    for model in written()["models"]:
        found |= {model, model.partition("/")[2]}
    generic = {"openai-compatible", "openai", "step", "seed", "meta"}  # the contract's own words, and English ones
    return {n.casefold() for n in found if len(n) > 2} - generic


@cache
def dialect_words() -> set[str]:
    """The words of the wire that some endpoint has and the protocol has not."""
    standard = set()
    for table in (written()["defaults"], *written()["protocols"].values()):
        standard |= {part for leaf in leaves(table) for part in re.split(r"[.\s]", leaf)}
    found: set[str] = set()
    for section in ("families", "providers", "models"):
        for table in written()[section].values():
            for flags in (table, *table.get("families", {}).values(), *table.get("when", {}).values()):
                reasoning = flags.get("reasoning", {})
                for patch in ("on", "off", "replay_patch"):
                    found |= set(leaves(reasoning.get(patch, {}))) - {"set", "drop"}
                for place in ("effort", "budget"):
                    found |= set(reasoning.get(place, {}).get("at", "").split("."))
                found |= {*reasoning.get("fields", ()), reasoning.get("replay_field", "")}
                found |= set(leaves(flags.get("body", {}))) - {"set", "drop"}
                found |= set(flags.get("finish", {}))
                counts = dict(flags.get("usage", {}))
                bill = counts.pop("cost", {})  # its keys are flags, but for the condition's
                bill = [bill.get("path", ""), bill.get("add", ""), list(bill.get("when", {}))]
                for paths in (counts, flags.get("error", {}), {"cost": bill}):
                    found |= {p for leaf in leaves(list(paths.values())) for p in leaf.split(".")}
                params = flags.get("params", {})
                for rule in params.values():
                    said = (
                        rule
                        if isinstance(rule, str) and rule != "ignored"
                        else rule.get("as", "")
                        if isinstance(rule, dict)
                        else ""
                    )
                    found |= set(said.split("."))
    return {w for w in found if w and not w.isdigit() and re.fullmatch(r"[$\w-]+", w)} - standard - OURS


@cache
def grammar_words() -> set[str]:
    """The words of a grammar that rules name: no grammar has them of its own."""
    data = written()
    tables = [
        data["defaults"],
        *(table for kind in ("families", "providers", "models") for table in data[kind].values()),
    ]
    said = [rule["parts"] for table in tables for rule in table.get("leaks", ()) if "parts" in rule]
    words = {word for parts in said for word in leaves(parts)} - {"arg-pairs"}
    return {word for word in words if re.fullmatch(r"\w+", word)} - OURS


@cache
def spoken(path: Path) -> tuple[tuple[int, str, bool], ...]:
    return tuple(_spoken(path))


def dotted(node: ast.expr) -> str:
    """The source of an expression. `ast.unparse` takes most of the time of these tests."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


def _spoken(path: Path) -> Iterator[tuple[int, str, bool]]:
    """(line, word or text, is it a text?) of all that a module says outside docstrings and help examples."""
    tree = ast.parse(path.read_text())
    silent: set[int] = set()
    nodes = list(ast.walk(tree))
    for node in nodes:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for statement in body:  # docstrings, and the strings that describe what stands above them
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    silent.add(id(statement.value))
        if isinstance(node, ast.Assign) and any(EXAMPLES.search(dotted(t)) for t in node.targets):
            silent |= {id(n) for n in ast.walk(node.value)}
        if isinstance(node, ast.Call) and EXAMPLES.search(dotted(node.func)):
            silent |= {id(n) for n in ast.walk(node)}
        if isinstance(node, ast.keyword) and node.arg and EXAMPLES.search(node.arg):
            silent |= {id(n) for n in ast.walk(node.value)}
    for node in nodes:
        if id(node) in silent:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, True
        elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node.lineno, node.value.decode("latin-1"), True
        for field in ("id", "attr", "name", "arg"):
            word = getattr(node, field, None)
            if isinstance(word, str):
                yield getattr(node, "lineno", 0), word, False


@cache
def known() -> tuple[re.Pattern[str], set[str]]:
    """A pattern of all names, and the words that a match begins with."""
    listed = sorted(names(), key=len, reverse=True)
    heads = {head[1] for name in listed if (head := re.match(r"@?([\w-]+)", name))}
    assert all(re.match(r"@?[\w-]", name) for name in listed)
    return re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, listed)) + r")(?![\w-])"), heads


MODULES = sorted(PACKAGE.rglob("*.py"))


@each("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_names_a_provider_a_family_or_a_model(path: Path) -> None:
    pattern, heads = known()
    found = [
        f"{path.name}:{line}: {m[1]}"
        for line, said, _ in spoken(path)
        if heads.intersection(re.findall(r"[\w-]+", said.casefold())) and (m := pattern.search(said.casefold()))
    ]
    assert found == []


@each("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_knows_a_word_of_a_dialect(path: Path) -> None:
    served = path.parent.parent.name == "protocols" and path.name.startswith(("server", "resource", "fields"))
    words = dialect_words() - (SERVED if served else set()) | grammar_words()
    if path in OPTION_LISTS:
        words -= Registry.load().parameters()
    compound = {w for w in words if "_" in w}
    found = []
    for line, said, is_text in spoken(path):
        said = re.sub(r"^gen_ai(\.\w+)+$", "", said)  # an attribute of OpenTelemetry's is no endpoint's word
        parts = set(re.findall(r"[$\w-]+", said))
        hit = (parts & compound) or (words & {said} if is_text else set())
        if hit:
            found.append(f"{path.name}:{line}: {', '.join(sorted(hit))}")
    assert found == []


def test_the_packaged_files_are_modules_and_what_describes_endpoints_clients_and_bills_alone() -> None:
    others = {
        p.name for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc") and "cache" not in str(p)
    }
    assert others <= {
        "py.typed",
        "providers.toml",
        "catalogue.toml",
        "release_keys.toml",
        "clients.toml",
        "families.toml",
        "public_names.toml",
        "README.md",
        "index.js",
        "index.d.ts",
        "data.d.ts",
        "login.html",
        "page.html",
        "page.js",
        "style.css",
        "drawing.css",
        "completion.ps1",
        "texts.json",
        "data.js",
        "words.js",
        "list.js",
        "model.js",
        "compare.js",
        "main.js",
        "zh_CN.po",
        "exports.toml",
    }


def test_the_words_that_are_looked_for_are_the_dialects_own() -> None:
    words = dialect_words()
    assert {"reasoning_split", "enable_thinking", "chat_template_kwargs", "clear_thinking", "tool_stream"} <= words
    assert not {"prompt_tokens", "stream_options", "tool_calls"} & words
    assert {"arg_key", "arg_value"} <= grammar_words()
    assert {"deepseek", "zai", "moonshotai", "glm-4.7"} <= names()
