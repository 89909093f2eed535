"""Flags of reasoning: how it is requested, how it arrives, and how it is sent back."""

from typing import Annotated, Any, Literal

from cnllm.registry.flags.describe import EVERY_WIRE, WRITE_PATH, Base, formerly

__all__ = ["BudgetFlags", "Effort", "Patch", "ReasoningFlags"]


class Patch(Base, frozen=True):
    """A change to the body of a request."""

    set: dict[str, Any] | None = None
    """A table merged into the body. Why: Each vendor has a switch of its own, at a place of its own."""
    drop: Annotated[list[str] | None, WRITE_PATH] = None
    """Paths removed from the body. Why: Some endpoints refuse a switch beside another that it contradicts."""


class Effort(Base, frozen=True):
    """The endpoint's levels of reasoning."""

    at: Annotated[str | None, WRITE_PATH] = None
    """The path of the level in the body. Why: Endpoints that take levels take them at different places."""
    minimal: str | None = None
    low: str | None = None
    medium: str | None = None
    high: str | None = None
    xhigh: str | None = None
    max: str | None = None
    """The endpoint's word for this level. Why: Endpoints have two to six levels, by different words, and refuse the
    words of others.
    """


class BudgetFlags(Base, frozen=True):
    """The endpoint's limit of tokens for reasoning. Why: Endpoints refuse a budget that is out of their range."""

    at: Annotated[str | None, WRITE_PATH] = None
    """The path of the number of tokens in the body. Why: Some endpoints take a number of tokens and no level."""
    min: int | None = None
    """The least number of tokens."""
    max: int | None = None
    """The greatest number of tokens."""
    under: str | None = None
    """The parameter that the budget must stay below (max_tokens). Why: Where reasoning counts as output, a budget that
    leaves no room for an answer is refused.
    """


class ReasoningFlags(Base, frozen=True):
    """Rules for reasoning: how to request it, how it arrives, and how to send it back."""

    mode: Annotated[Literal["unknown", "never", "toggle", "always"] | None, EVERY_WIRE] = None
    """Whether the caller can turn reasoning on and off. Why: Models that always reason refuse to stop, and models that
    never do refuse the switch.
    """
    default: Annotated[Literal["off", "on"] | None, EVERY_WIRE] = None
    """Whether the model reasons when the request does not say. Why: Some models reason unless the request turns it off,
    and other flags may depend on it.
    """
    on: Patch | None = None
    """The change to the body that turns reasoning on. Why: Each vendor has its own switch, and some have none."""
    off: Patch | None = None
    """The change to the body that turns reasoning off. Why: The switch for off is not always the reverse of that for
    on.
    """
    effort: Effort | None = None
    """The path of a level in the body, and the endpoint's word for each. Why: Endpoints that take levels differ in
    both.
    """
    budget: BudgetFlags | None = None
    """The path of a number of tokens in the body, and its range. Why: Endpoints that take a number differ in both."""
    effort_budgets: Annotated[dict[str, int] | None, EVERY_WIRE, formerly("scale")] = None
    """The tokens of each level, to translate a level into a number of tokens or the reverse. Why: A caller gives one of
    the two, and some endpoints take only the other.
    """
    bound: Literal["max_tokens", "budget", "none"] | None = None
    """The limit on the tokens of reasoning: max_tokens counts them with those of the answer, budget is the number of
    reasoning tokens in the request, and with none the request has no limit on them. Why: Where max_tokens counts the
    answer alone, it limits neither the length of a reply nor its cost.
    """
    fields: Annotated[list[str] | None, WRITE_PATH] = None
    """The keys of reasoning in a message and in a delta, tried in order. Why: The wire has no official key for it, so
    servers chose different ones, and changed them.
    """
    shape: Literal["field", "details", "tags", "content-parts", "seal"] | None = None
    """The form of reasoning, in replies and in requests: a text under a key of its own, a list of {text} under one,
    text between tags in the answer, parts of `content`, or signed blocks. Why: Some servers add data, such as
    signatures, for which a text has no room.
    """
    part: str | None = None
    """The type of the part of `content` that holds reasoning, under a key of the same name. Why: Where reasoning is a
    part of the content, vendors differ in the part's type.
    """
    part_form: Literal["parts", "text", "texts"] | None = None
    """The form of the reasoning in such a part, where cnllm makes one: a list of text parts, one text, or a list of
    texts. A part that the endpoint made goes back as it came. Why: Endpoints that take reasoning as a part refuse
    another form of it than their own.
    """
    tags: Annotated[list[str] | None, EVERY_WIRE] = None
    """The opening and closing tag of reasoning inside the text; further pairs may follow. An empty opening tag means
    that there is none: the text up to the closing tag is reasoning. Why: Models write reasoning between tags, and
    servers without a parser for them pass the tags on.
    """
    tags_at: Annotated[Literal["start", "start-open", "anywhere"] | None, EVERY_WIRE] = None
    """Whether the prompt template has already written the opening tag (start-open): under `when.reasoning` where
    reasoning can be off, for then no tag is open. With start and with anywhere tags count anywhere outside of code and
    quotations.
    Why: Some chat templates open the tag themselves, so that only its end arrives.
    """
    answer_tags: Annotated[list[str] | None, EVERY_WIRE] = None
    """The opening tag of the answer, then its closing tags; behind an empty text those of a further form. They are
    removed at both ends of the answer, those in plain words such as `<answer>` only behind tags of reasoning. Why: Some
    models write their answer between tags, too, and servers without a parser for them pass them on.
    """
    replay: Literal["unknown", "never", "tool-turns", "since-user", "always"] | None = None
    """The earlier turns of the same model that are sent back with their reasoning. Under unknown none is, and a note
    says so where the model reasons. Why: Some endpoints refuse a turn without its reasoning, others one that has it.
    """
    replay_as: Literal["field", "details", "details-and-field", "tags", "content-parts", "seal"] | None = None
    """The form in which reasoning is sent back, where it differs from `shape`; details-and-field: blocks under
    `replay_field`, and their text under the first of `fields`. Why: A few endpoints accept another form than they
    return, and one passes the two on to different hosts.
    """
    replay_field: Annotated[str | None, WRITE_PATH] = None
    """The key under which reasoning is sent back, where it is not the first of `fields`. Why: A few endpoints accept
    another key than they return.
    """
    if_missing: Literal["omit", "empty", "space", "reasoning-off", "error"] | Patch | None = None
    """What is sent in a turn that must have reasoning and has none; reasoning-off: nothing, and the request is made
    without reasoning; set: a seal for the turn's first call. It is not named `otherwise`, because no option of the call
    is refused. Why: A conversation begun with another model has turns without reasoning, and endpoints that demand it
    there accept different stand-ins.
    """
    if_foreign: Annotated[Literal["drop", "text"] | None, EVERY_WIRE, formerly("foreign")] = None
    """What happens to reasoning that another model wrote. It is not named `otherwise`, because it depends on the author
    of the reasoning, not on what the endpoint accepts. Why: Endpoints that check where reasoning comes from refuse
    another model's.
    """
    replay_patch: Annotated[Patch | None, formerly("keep")] = None
    """A change to the body of a request that sends reasoning back. Why: Some servers discard the reasoning of earlier
    turns unless a switch tells them to keep it.
    """

    @property
    def is_in_limit(self) -> bool:
        """Whether max_tokens counts the tokens of reasoning, as it does where the registry says nothing."""
        return self.bound in (None, "max_tokens")
