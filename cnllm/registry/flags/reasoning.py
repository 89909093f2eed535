"""Reasoning: how it is asked for, where it arrives, and how it goes back."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import ANY, Base, flag

__all__ = ["Budget", "Effort", "Patch", "Reasoning"]


class Patch(Base, frozen=True):
    set: Annotated[
        dict[str, Any] | None,
        flag("A table merged into the body.", "Each vendor has a switch of its own, at a place of its own."),
    ] = None
    drop: Annotated[
        list[str] | None,
        flag("Paths taken out of the body.", "Some endpoints refuse a switch beside another that it contradicts."),
    ] = None


_LEVEL = flag(
    "The endpoint's word for this level.",
    "Endpoints have two to six levels, by different words, and refuse the words of others.",
)


class Effort(Base, frozen=True):
    at: Annotated[
        str | None,
        flag("Where the level goes in the body.", "Endpoints that take levels take them at different places."),
    ] = None
    minimal: Annotated[str | None, _LEVEL] = None
    low: Annotated[str | None, _LEVEL] = None
    medium: Annotated[str | None, _LEVEL] = None
    high: Annotated[str | None, _LEVEL] = None
    xhigh: Annotated[str | None, _LEVEL] = None
    max: Annotated[str | None, _LEVEL] = None


_BOUND = "Endpoints refuse a budget that is out of their range."


class Budget(Base, frozen=True):
    at: Annotated[
        str | None,
        flag("Where the number of tokens goes in the body.", "Some endpoints take a number of tokens and no level."),
    ] = None
    min: Annotated[int | None, flag("The fewest tokens it takes.", _BOUND)] = None
    max: Annotated[int | None, flag("The most tokens it takes.", _BOUND)] = None
    under: Annotated[
        str | None,
        flag(
            "The parameter it must stay below (max_tokens).",
            "Where reasoning counts as output, a budget that leaves no room for an answer is refused.",
        ),
    ] = None


class Reasoning(Base, frozen=True):
    mode: Annotated[
        Literal["unknown", "never", "toggle", "always"] | None,
        flag(
            "Whether the caller can turn reasoning on and off.",
            "Models that always reason refuse to stop, and models that never do refuse the switch.",
            every_wire=True,
        ),
    ] = None
    default: Annotated[
        Literal["off", "on"] | None,
        flag(
            "What the endpoint does when nothing is sent.",
            "Some models reason unless they are told not to; what else holds may depend on it.",
            every_wire=True,
        ),
    ] = None
    on: Annotated[
        Patch | None, flag("What turns reasoning on.", "Each vendor has its own switch, and some have none.")
    ] = None
    off: Annotated[
        Patch | None, flag("What turns reasoning off.", "The switch for off is not always the reverse of that for on.")
    ] = None
    effort: Annotated[
        Effort | None,
        flag("Where a level goes, and the endpoint's word for each.", "Endpoints that take levels differ in both."),
    ] = None
    budget: Annotated[
        Budget | None,
        flag("Where a number of tokens goes, and its range.", "Endpoints that take a number differ in both."),
    ] = None
    effort_budgets: Annotated[
        dict[str, int] | None,
        flag(
            "The tokens that each level stands for where only a number can be sent, or the reverse.",
            "A caller asks in one form, and some endpoints take only the other.",
            formerly="scale",
            every_wire=True,
        ),
    ] = None
    fields: Annotated[
        list[str] | None,
        flag(
            "The keys it arrives under, in a message and in a delta, tried in order.",
            "The wire has no official key for it, so servers chose different ones, and changed them.",
        ),
    ] = None
    shape: Annotated[
        Literal["field", "details", "tags", "content-parts", "seal"] | None,
        flag(
            "How it is written, arriving and going back: a text under a key of its own, a list of {text} under one, "
            "between tags in the text, as parts of `content`, or as blocks that are signed.",
            "Servers that keep more than the text, such as signatures, need more than a text for it.",
            reasons={
                "details": "one vendor with this as its only form; a router writes the list beside the text",
                "tags": "for overlays, of servers that never split the tags off: tests/engine/test_reasoning_shape.py",
            },
        ),
    ] = None
    part: Annotated[
        str | None,
        flag(
            "The type of a part of `content` that holds it, under a key of the same name.",
            "Where reasoning is a part of the content, vendors differ in the part's type.",
        ),
    ] = None
    tags: Annotated[
        list[str] | None,
        flag(
            "The opening and closing tag where it arrives inside the text; further pairs may follow.",
            "Models write reasoning between tags, and servers without a parser for them pass the tags on.",
            every_wire=True,
        ),
    ] = None
    tags_at: Annotated[
        Literal["start", "start-open", "anywhere"] | None,
        flag(
            "Where the opening tag may stand; start-open: the prompt template has already written it.",
            "Some chat templates open the tag themselves, so that only its end arrives.",
            every_wire=True,
            reasons={
                "start-open": "for overlays, of servers whose chat template opens the tag: tests/engine/test_tags.py",
                "anywhere": "for overlays, of servers whose models reason between calls: tests/engine/test_tags.py",
            },
        ),
    ] = None
    replay: Annotated[
        Literal["never", "tool-turns", "since-user", "always"] | None,
        flag(
            "Which earlier turns of the same model carry it back.",
            "Some endpoints refuse a turn without its reasoning, others one that has it.",
        ),
    ] = None
    replay_as: Annotated[
        Literal["field", "details", "tags", "content-parts", "seal"] | None,
        flag(
            "The form in which it goes back, where it is not that in which it arrives (`shape`).",
            "A few endpoints take it in another form than they give it.",
            reasons={
                ANY: "an exception from `shape`, so it has all of its values (tests/engine/test_reasoning_shape.py)"
            },
        ),
    ] = None
    replay_field: Annotated[
        str | None,
        flag(
            "The key under which it goes back, where that is not the first of `fields`.",
            "A few endpoints take it under another key than the one that it arrives under.",
        ),
    ] = None
    if_missing: Annotated[
        Literal["omit", "empty", "space", "reasoning-off", "error"] | Patch | None,
        flag(
            "What a turn carries that must have reasoning and has none; reasoning-off: nothing, and the call goes "
            "without reasoning; set: what its first call is sealed with instead. No case of `otherwise`: nothing was "
            "asked for that the endpoint does not take.",
            "A conversation begun with another model has turns without reasoning, and endpoints that demand it there "
            "accept different stand-ins.",
            reasons={
                "reasoning-off": "one family of models, whoever serves them: nothing can stand in for a signed thought",
                "error": "for overlays that would rather not send than send a stand-in: tests/pain/test_a_replay.py",
            },
        ),
    ] = None
    if_foreign: Annotated[
        Literal["drop", "text"] | None,
        flag(
            "What becomes of reasoning that another model wrote. No case of `otherwise`: it is about who wrote it, "
            "not about what the endpoint takes.",
            "Endpoints that check where reasoning comes from refuse another model's.",
            formerly="foreign",
            every_wire=True,
            reasons={
                "text": "for overlays that would rather keep such reasoning as text: tests/pain/test_g_handover.py"
            },
        ),
    ] = None
    replay_patch: Annotated[
        Patch | None,
        flag(
            "What is sent along when reasoning goes back.",
            "Some servers throw away the reasoning of earlier turns unless a switch tells them to keep it.",
            formerly="keep",
        ),
    ] = None
