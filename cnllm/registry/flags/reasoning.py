"""Flags of reasoning: how it is requested, how it arrives, and how it is sent back."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import Base, flag

__all__ = ["BudgetFlags", "Effort", "Patch", "ReasoningFlags"]


class Patch(Base, frozen=True):
    """A change to the body of a request."""

    set: Annotated[
        dict[str, Any] | None,
        flag("A table merged into the body.", "Each vendor has a switch of its own, at a place of its own."),
    ] = None
    drop: Annotated[
        list[str] | None,
        flag(
            "Paths removed from the body.",
            "Some endpoints refuse a switch beside another that it contradicts.",
            path="write",
        ),
    ] = None


_LEVEL = flag(
    "The endpoint's word for this level.",
    "Endpoints have two to six levels, by different words, and refuse the words of others.",
)


class Effort(Base, frozen=True):
    """The endpoint's levels of reasoning."""

    at: Annotated[
        str | None,
        flag(
            "The path of the level in the body.",
            "Endpoints that take levels take them at different places.",
            path="write",
        ),
    ] = None
    minimal: Annotated[str | None, _LEVEL] = None
    low: Annotated[str | None, _LEVEL] = None
    medium: Annotated[str | None, _LEVEL] = None
    high: Annotated[str | None, _LEVEL] = None
    xhigh: Annotated[str | None, _LEVEL] = None
    max: Annotated[str | None, _LEVEL] = None


_BOUND = "Endpoints refuse a budget that is out of their range."


class BudgetFlags(Base, frozen=True):
    """The endpoint's limit of tokens for reasoning."""

    at: Annotated[
        str | None,
        flag(
            "The path of the number of tokens in the body.",
            "Some endpoints take a number of tokens and no level.",
            path="write",
        ),
    ] = None
    min: Annotated[int | None, flag("The least number of tokens.", _BOUND)] = None
    max: Annotated[int | None, flag("The greatest number of tokens.", _BOUND)] = None
    under: Annotated[
        str | None,
        flag(
            "The parameter that the budget must stay below (max_tokens).",
            "Where reasoning counts as output, a budget that leaves no room for an answer is refused.",
        ),
    ] = None


class ReasoningFlags(Base, frozen=True):
    """Rules for reasoning: how to request it, how it arrives, and how to send it back."""

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
            "Whether the model reasons when the request does not say.",
            "Some models reason unless the request turns it off, and other flags may depend on it.",
            every_wire=True,
        ),
    ] = None
    on: Annotated[
        Patch | None,
        flag("The change to the body that turns reasoning on.", "Each vendor has its own switch, and some have none."),
    ] = None
    off: Annotated[
        Patch | None,
        flag(
            "The change to the body that turns reasoning off.",
            "The switch for off is not always the reverse of that for on.",
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        flag(
            "The path of a level in the body, and the endpoint's word for each.",
            "Endpoints that take levels differ in both.",
        ),
    ] = None
    budget: Annotated[
        BudgetFlags | None,
        flag(
            "The path of a number of tokens in the body, and its range.", "Endpoints that take a number differ in both."
        ),
    ] = None
    effort_budgets: Annotated[
        dict[str, int] | None,
        flag(
            "The tokens of each level, to translate a level into a number of tokens or the reverse.",
            "A caller gives one of the two, and some endpoints take only the other.",
            formerly="scale",
            every_wire=True,
        ),
    ] = None
    fields: Annotated[
        list[str] | None,
        flag(
            "The keys of reasoning in a message and in a delta, tried in order.",
            "The wire has no official key for it, so servers chose different ones, and changed them.",
            path="write",
        ),
    ] = None
    shape: Annotated[
        Literal["field", "details", "tags", "content-parts", "seal"] | None,
        flag(
            "The form of reasoning, in replies and in requests: a text under a key of its own, a list of {text} under "
            "one, text between tags in the answer, parts of `content`, or signed blocks.",
            "Some servers add data, such as signatures, for which a text has no room.",
        ),
    ] = None
    part: Annotated[
        str | None,
        flag(
            "The type of the part of `content` that holds reasoning, under a key of the same name.",
            "Where reasoning is a part of the content, vendors differ in the part's type.",
        ),
    ] = None
    part_form: Annotated[
        Literal["parts", "text", "texts"] | None,
        flag(
            "The form of the reasoning in such a part, where cnllm makes one: a list of text parts, one text, or a "
            "list of texts. A part that the endpoint made goes back as it came.",
            "Endpoints that take reasoning as a part refuse another form of it than their own.",
        ),
    ] = None
    tags: Annotated[
        list[str] | None,
        flag(
            "The opening and closing tag of reasoning inside the text; further pairs may follow. An empty opening tag "
            "means that there is none: the text up to the closing tag is reasoning.",
            "Models write reasoning between tags, and servers without a parser for them pass the tags on.",
            every_wire=True,
        ),
    ] = None
    tags_at: Annotated[
        Literal["start", "start-open", "anywhere"] | None,
        flag(
            "Whether the prompt template has already written the opening tag (start-open). With start and with "
            "anywhere tags count anywhere outside of code.",
            "Some chat templates open the tag themselves, so that only its end arrives.",
            every_wire=True,
        ),
    ] = None
    answer_tags: Annotated[
        list[str] | None,
        flag(
            "The opening tag of the answer, then its closing tags; they are removed at both ends of the answer.",
            "Some models write their answer between tags, too, and servers without a parser for them pass them on.",
            every_wire=True,
        ),
    ] = None
    replay: Annotated[
        Literal["unknown", "never", "tool-turns", "since-user", "always"] | None,
        flag(
            "The earlier turns of the same model that are sent back with their reasoning. Under unknown none is, and a "
            "note says so where the model reasons.",
            "Some endpoints refuse a turn without its reasoning, others one that has it.",
        ),
    ] = None
    replay_as: Annotated[
        Literal["field", "details", "details-and-field", "tags", "content-parts", "seal"] | None,
        flag(
            "The form in which reasoning is sent back, where it differs from `shape`; details-and-field: blocks under "
            "`replay_field`, and their text under the first of `fields`.",
            "A few endpoints accept another form than they return, and one passes the two on to different hosts.",
        ),
    ] = None
    replay_field: Annotated[
        str | None,
        flag(
            "The key under which reasoning is sent back, where it is not the first of `fields`.",
            "A few endpoints accept another key than they return.",
            path="write",
        ),
    ] = None
    if_missing: Annotated[
        Literal["omit", "empty", "space", "reasoning-off", "error"] | Patch | None,
        flag(
            "What is sent in a turn that must have reasoning and has none; reasoning-off: nothing, and the request is "
            "made without reasoning; set: a seal for the turn's first call. It is not named `otherwise`, because no "
            "option of the call is refused.",
            "A conversation begun with another model has turns without reasoning, and endpoints that demand it there "
            "accept different stand-ins.",
        ),
    ] = None
    if_foreign: Annotated[
        Literal["drop", "text"] | None,
        flag(
            "What happens to reasoning that another model wrote. It is not named `otherwise`, because it depends on "
            "the author of the reasoning, not on what the endpoint accepts.",
            "Endpoints that check where reasoning comes from refuse another model's.",
            formerly="foreign",
            every_wire=True,
        ),
    ] = None
    replay_patch: Annotated[
        Patch | None,
        flag(
            "A change to the body of a request that sends reasoning back.",
            "Some servers discard the reasoning of earlier turns unless a switch tells them to keep it.",
            formerly="keep",
        ),
    ] = None
