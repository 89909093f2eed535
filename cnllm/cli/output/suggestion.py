"""Suggest a word in place of a wrong one: a similar one, or what another tool calls differently."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from cnllm.errors import CnllmError

if TYPE_CHECKING:
    from cnllm.registry import Registry

__all__ = [
    "CALL",
    "capability_hint",
    "command_hint",
    "nearest",
    "option_hint",
    "provider_hint",
    "same_name",
    "subcommand_hint",
    "suggest",
]

_PLUGINS = "there are no plugins: a provider is a table in a file, see cnllm models add --help"
_EMBEDDINGS = "cnllm has no embeddings"
_KEYS = "cnllm keys set NAME stores a key"
_MODELS = "cnllm models list PART lists models"
CALL = "did you mean call?"

_HINTS = {
    "cnllm:prompt|ask|complete|generate": CALL,
    "cnllm:run": "did you mean call -m MODEL?",
    "cnllm:install|uninstall|plugins": _PLUGINS,
    "cnllm:embed|embed-models|embed-multi|similar|collections": _EMBEDDINGS,
    "cnllm:schemas": "cnllm call --schema 'name, age int' takes a schema",
    "cnllm:fragments": "cnllm call -f FILE adds a file",
    "cnllm:tools": "cnllm call --tool NAME runs a tool: calc, read, time, or FILE.py:FUNCTION",
    "cnllm:ls|list|show|pull|ps": _MODELS,
    "cnllm:login|auth|configure|config": _KEYS,
    "cnllm:proxy|gateway|server|start": "cnllm serve starts the gateway",
    "cnllm:version": "cnllm --version prints it",
    "cnllm:update|upgrade": "cnllm registry update brings new data",
    "keys:get|show": "no command shows a key; cnllm keys test NAME tries it",
    "keys:--value|--key|--api-key|--token": "the key is asked for; or pipe it in: cnllm keys set NAME < key.txt",
    "keys:add": "did you mean set?",
    "models:options|info": "cnllm models show NAME shows what a model takes",
    "models:find|search": _MODELS,
    "logs:status": "cnllm logs list shows what is logged, cnllm logs path where",
    "logs:backup": "cnllm logs export writes conversations to a file",
    "templates:edit|new|create|add": (
        "--save NAME of cnllm call writes a template; cnllm templates path prints the folder"
    ),
    "templates:loaders": _PLUGINS,
    "aliases:add": "did you mean set?",
    "aliases:path": "aliases are in your registry file: cnllm registry path",
    "any:-V": "cnllm --version prints the version",
    "any:-v|--verbose": "--debug shows a traceback; notes and usage are always on stderr",
    "any:--output|--format|--output-format": "--json prints JSON",
    "batch:--output|--output-file|--to": "-o FILE writes the answers to a file",
    "call:-o|--option|--param|--options": "-p NAME=VALUE sets a parameter: -p temperature=0.5, or --temperature 0.5",
    "call:--cid": "--conversation ID continues a conversation",
    "call:-u|--usage": "nothing to set: tokens and cost are always on stderr",
    "call:-x|--extract|--xl|--extract-last": "ask for the code alone, or for fields with --schema",
    "call:-n": "--no-log keeps a call out of the log",
    "call:--log": "cnllm logs on logs every call",
    "call:-R|--hide-thinking|--no-thinking": "--hide-reasoning does not show it, --reasoning off does without it",
    "call:--at|--attachment-type": "-a FILE finds out the type of a file",
    "call:-i|--img|--images|--picture|--pdf|--audio|--video": "-a FILE attaches a picture, PDF, sound or video",
    "call:--td|--tools-debug": "--events prints every call of a tool",
    "call:--ta|--tools-approve": "--approve ask is the default at a terminal",
    "call:--functions|--function": "--tool FILE.py:FUNCTION runs a function",
    "call:--schema-multi": "--schema takes a list, too: 'people [{name, age int}]'",
    "call:--fragment": "-f FILE adds a text file",
    "call:--sf|--system-fragment|--system-file": '-s TEXT is the system message: -s "$(cat FILE)"',
    "call:--system-prompt|--instructions": "-s TEXT is the system message",
    "call:-d|--database": "cnllm logs path prints where conversations are kept",
    "call:-q|--query": f"-m takes a name: {_MODELS}",
    "call:--async": "nothing to set: leave it out",
    "call:--api-base|--base|--endpoint|--url|--host": "--base-url URL names another address",
    "call:--thinking|--think|--effort|--reasoning-effort|--thinking-budget|--reasoning-level": (
        "--reasoning LEVEL sets it"
    ),
    "call:--prompt|--message|--input": "the text needs no option: cnllm call TEXT",
    "call:--dry-run": "--plan prints the request and sends nothing",
    "call:--provider": "-m PROVIDER/ID names the provider, too",
    "call:--max-output-tokens|--max-completion-tokens|--max-new-tokens|--num-predict": (
        "--max-tokens N limits the answer"
    ),
    "call:--json-schema|--response-format|--output-schema": "--schema FILE or --schema 'name, age int' takes a schema",
    "models:-q|--query|--search": _MODELS,
    "logs:-q|--query|--search": "cnllm logs search TEXT searches conversations",
    "models:--remove|--clear|--delete|--none|--reset": "--unset forgets the default model",
    "models:--tools": "--can tools lists the models that take tools",
    "models:--schemas|--schema": "--can schema lists the models that keep to a schema",
    "models:--options": "cnllm models show NAME shows what a model takes",
    "logs:-m|--model": "cnllm logs search TEXT searches conversations; cnllm logs cost --by model sums by model",
    "logs:-r|--response|-c|--current|--cid|--conversation|-s|--short": "cnllm logs show [ID] prints a conversation",
}
"""The hint for words of other tools. Before the colon: where they stand; any is every command."""
_SAME_COMMANDS = {"ls": "list", "rm": "remove", "delete": "remove", "unset": "remove", "del": "remove", "cat": "show"}

_CAPABILITIES = {
    "tools": "tool|tool-use|tool-call|tool-calls|tool-calling|function|functions|function-call|function-calling",
    "forced-tool": "tool-choice|required-tool",
    "parallel-tools": "parallel|parallel-tool-calls|parallel-calls|parallel-function-calling",
    "strict-tools": "strict",
    "web-search": "search|web|browsing|grounding|internet|online",
    "reasoning": "think|thinks|thinking|reason|thought|cot|chain-of-thought",
    "reasoning-off": "no-think|no-thinking|no-reasoning|non-thinking|non-reasoning|instant",
    "reasoning-levels": "effort|levels|reasoning-effort|thinking-level",
    "reasoning-budget": "budget|thinking-budget",
    "images": "image|vision|visual|picture|pictures|photo|photos|multimodal|ocr|vlm|image-input",
    "audio": "sound|speech|voice|hearing|audio-input",
    "video": "videos|video-input|film",
    "files": "file|pdf|pdfs|document|documents|doc|docs",
    "schema": "structured|structured-output|structured-outputs|json-schema|response-schema|response-format",
    "json": "json-mode|json-object|json-output",
    "whole": "no-stream|non-streaming",
}


def suggest(word: str, words: Iterable[str], otherwise: str) -> str:
    """Return a question with at most three similar words, or `otherwise`. Words that contain the wrong one come first.

    Case does not matter.
    """
    from difflib import get_close_matches

    names = {name.casefold(): name for name in words}
    folded = word.casefold()
    inside = [name for name in names if folded and len(folded) > 2 and (folded in name or name in folded)]
    close = get_close_matches(folded, names, n=3, cutoff=0.65)
    matches = list(dict.fromkeys([*sorted(inside, key=len), *close]))[:3]
    return f"did you mean {' or '.join(names[match] for match in matches)}?" if matches else otherwise


def provider_hint(
    name: str,
    registry: Registry,
    *,
    catalogue: bool = True,
    otherwise: str = "cnllm models list lists models by provider",
) -> str:
    """Return the provider that a name which no provider has stands for: that of a family or a model, or a similar one.

    Without `catalogue`, providers that only the catalogue has are not suggested. Where nothing is similar, the hint is
    `otherwise`.
    """
    try:
        provider = registry.resolve(name).provider
    except CnllmError:
        others = registry.catalogue_providers() if catalogue else ()
        return suggest(name, registry.providers, suggest(name, others, otherwise))
    if name.casefold() in map(str.casefold, registry.family_aliases):  # also a vendor's own name
        return f"did you mean {provider}?"
    return f"it is a model of {provider}: use {provider} instead"


def same_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is the same except for its case; None where there is none."""
    return next((other for other in names if other.casefold() == name.casefold()), None)


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar word; None where none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), n=1, cutoff=cutoff)), None)


def command_hint(word: str) -> str | None:
    """Return what cnllm has for a command of another tool."""
    return _find("cnllm", word)


def subcommand_hint(group: str, word: str, commands: Collection[str]) -> str | None:
    """Return what cnllm has for a command of a group, such as `keys`."""
    if (hint := _find(group, word)) is not None:
        return hint
    close = _SAME_COMMANDS.get(word)
    close = close if close in commands else nearest(word, commands)
    return f"did you mean {close}?" if close else None


def capability_hint(word: str, names: Iterable[str]) -> str | None:
    """Return the capability that another word means, or a similar one."""
    folded = word.replace("_", "-").replace(" ", "-")
    close = next((name for name, words in _CAPABILITIES.items() if folded in words.split("|")), nearest(folded, names))
    return f"did you mean {close}?" if close else None


def option_hint(path: str, option: str, options: Iterable[str], *, root: Iterable[str] = ()) -> str | None:
    """Return what cnllm has for an unknown option of the command `path`: the option of another name, or a similar one.

    `options` are those of the command, `root` those that stand before a command.
    """
    group = path.split()[1:2]
    hint = _find("call", option) if "--model" in (known := set(options)) and group != ["models"] else None
    hint = hint or _find("".join(group), option) or _find("any", option)
    if hint is not None and (not hint.startswith("-") or hint.split()[0] in known):
        return hint
    if not option.startswith("--"):
        return None
    names = {name.lstrip("-"): name if name in known else f"cnllm {name}" for name in (*root, *known)}
    close = nearest(option.lstrip("-"), names)
    return None if close is None else f"did you mean {names[close]}?"


def _find(place: str, word: str) -> str | None:
    for words, hint in _HINTS.items():
        key, _, others = words.partition(":")
        if key == place and word in others.split("|"):
            return hint
    return None
