"""Flags of the endpoint and its model: the key's header, the state of the model, limits of tokens, prices."""

import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from cnllm.registry.flags.describe import READ_PATH, WRITE_PATH, Base

__all__ = ["Auth", "LimitFlags", "PaidCall", "Price", "RateHeaders", "Rates", "Site", "Status", "Upstream"]


class Auth(Base, frozen=True):
    """The header that carries the key."""

    header: str | None = None
    """The header that carries the key. Why: Vendors with a protocol of their own do not use Authorization."""
    value: str | None = None
    """The value of that header, `{key}` standing for the key. Why: Some want the bare key, others a word before it."""


class Site(Base, frozen=True):
    """The place of a provider among the sites of one vendor, which serve the same models with keys of their own."""

    vendor: str | None = None
    """The name that the sites of one vendor share. A plan has a name of its own. Why: A vendor serves the same models
    at several addresses, and a key of one is refused by the others.
    """
    region: str | None = None
    """Where the site is: the code of a country, or `global`. Why: Where a variable fits several sites, the place of the
    user suggests one.
    """
    keys: list[str] | None = None
    """Variables of `keys` that mean this site, although another site of the vendor reads them, too. Why: Programs read
    one variable for all sites, while its name is that of one.
    """


class Upstream(Base, frozen=True):
    """The one endpoint behind a router that may answer: where a request names it."""

    at: Annotated[str | None, WRITE_PATH] = None
    """The path of the list of endpoints that alone may answer. Why: A router spreads the calls of one model over
    endpoints that differ.
    """
    id: str | None = None
    """The model's id that means one endpoint: {model} stands for the id, {upstream} for the endpoint. Why: Some routers
    take the endpoint as a part of the id.
    """


class Status(Base, frozen=True):
    """The state of a model between its first day and its last."""

    is_: Literal["current", "preview", "retired"] | None = field(default=None, name="is")
    """Whether the model is current, in preview or retired. Why: Vendors retire models, and a call of one fails with an
    error that seldom names the successor.
    """
    released: datetime.date | None = None
    """The day on which the vendor released the model. Why: Who looks for a model wants the newest first, and ids do not
    sort by age.
    """
    since: datetime.date | None = None
    """The first day of this state. Why: A model is announced as retired before it stops answering."""
    shutdown: datetime.date | None = None
    """The announced day on which a model that still answers stops answering. Why: Vendors announce it months ahead, and
    a program that calls the model must have moved by then.
    """
    use: str | None = None
    """The successor of a retired model, as provider/id. Why: The error for a call of the old model names the new one.
    """


class LimitFlags(Base, frozen=True):
    """The limits of a model, in tokens."""

    context: int | None = None
    """The tokens that fit into the window, input and output together. Why: A default for max_tokens must leave room for
    the input.
    """
    output: int | None = None
    """The greatest number of tokens of a reply; a larger max_tokens is clamped to it. Why: Many endpoints refuse a
    larger number instead of clamping it.
    """
    input: int | None = None
    """The tokens that the input may have, where the vendor gives a number of its own for it. Why: The window of some
    models is larger than the longest input that they take.
    """

    @property
    def most_input(self) -> int | None:
        """The tokens of the longest input: its own limit, else the window."""
        known = [limit for limit in (self.input, self.context) if limit is not None]
        return min(known, default=None)


class RateHeaders(Base, frozen=True):
    """The headers of a response that tell how much may be sent. Why: Endpoints differ in its name."""

    requests: str | None = None
    """The header with the requests that a minute may have."""
    requests_left: str | None = None
    """The header with the requests that are left."""
    requests_reset: str | None = None
    """The header with the time until there are requests again: seconds, a duration, or a date."""
    tokens: str | None = None
    """The header with the tokens that a minute may have."""
    tokens_left: str | None = None
    """The header with the tokens that are left."""
    tokens_reset: str | None = None
    """The header with the time until there are tokens again: seconds, a duration, or a date."""


class Rates(Base, frozen=True):
    """The most that an endpoint takes in a time. A batch keeps below it."""

    requests: Annotated[int, Meta(ge=1)] | None = None
    """The requests that a minute may have, for each key. Why: Endpoints refuse what is more, and some count refusals
    too.
    """
    tokens: Annotated[int, Meta(ge=1)] | None = None
    """The tokens that a minute may have, for each key. Why: Endpoints refuse what is more, and some count refusals too.
    """
    burst_codes: list[str] | None = None
    """The codes of refusals because requests became more too quickly. A batch then grows more slowly, and takes it for
    no limit of a minute. Why: Some vendors limit the slope of the traffic in addition to its height.
    """
    fields: RateHeaders | None = None
    """The header fields of a response that tell the limits. Why: Limits differ by account, and some endpoints tell
    them.
    """


class PaidCall(Base, frozen=True):
    """The fee for one kind of call that the endpoint makes itself, and where a reply counts such calls."""

    fee: float | None = None
    """The fee, in the currency of the prices. Why: Vendors charge for a search beside the tokens."""
    at: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the number of calls in a body or a chunk. Of a list, its length counts without empty items; an
    object is one call. Why: Vendors report such calls in different places.
    """
    item: str | None = None
    """The type of the block or item of a reply that stands for one call. Why: Some wires report a call as a part of the
    reply, and have no count of them.
    """
    per: Literal["call", "unique", "request"] | None = None
    """Whether each call is charged, each different one of a list, or each request with one or more of them; left out:
    each call. Why: One vendor has changed from one to the other between two generations of its models.
    """
    allowance: bool | None = None
    """Whether some of the calls of a day or a month are free, so that the fee may not be charged. Why: A reply does not
    say how much of an allowance is left.
    """
    replaces: Literal["tool_input"] | None = None
    """The count of tokens that is free in a reply with such a call, because the fee is charged instead. Why: One vendor
    does not charge for the text that its own search puts into the prompt.
    """


class Price(Base, frozen=True):
    """The prices of a model, for a million tokens."""

    currency: str | None = None
    """The ISO 4217 code of the prices. Why: Vendors bill in several currencies."""
    input: float | None = None
    """The price of a million input tokens. Why: Replies do not name their price; cnllm computes it from the token
    counts.
    """
    output: float | None = None
    """The price of a million output tokens, reasoning included. Why: Replies do not name their price; cnllm computes it
    from the token counts.
    """
    cached: float | None = None
    """The price of a million input tokens read from the endpoint's cache. Why: Tokens from a cache are cheaper."""
    cached_by_mark: float | None = None
    """The price of a million input tokens read from a cache that the request has marked; `cached` is then that of a
    cache without a mark. Left out: both cost the same. See `usage.cache_mark`. Why: One vendor charges less for tokens
    from a marked cache, whose writing costs more, and a reply can hold only one of the two kinds.
    """
    cache_write: float | None = None
    """The price of a million input tokens written to the cache. Why: Some vendors charge more for writing it."""
    cache_write_1h: float | None = None
    """The price of a million input tokens written to the cache for an hour. Why: One vendor charges more for a cache
    that lasts longer.
    """
    output_thinking: float | None = None
    """The price of a million output tokens of a reply with reasoning, the answer included. Why: One vendor charges
    another price for the whole output of a model that reasoned.
    """
    input_audio: float | None = None
    """The price of a million input tokens of sound that are not read from the cache. Why: Sound costs more than text at
    some endpoints.
    """
    cached_audio: float | None = None
    """The price of a million input tokens of sound read from the cache. Why: Sound costs more than text at some
    endpoints, from the cache too.
    """
    tiers: list[dict[str, float]] | None = None
    """Other prices from `above` input tokens on: {above, input, output, cached, …}. Those of a tier with `output_below`
    hold for a reply of fewer tokens. A tier has all its prices: one that it does not name is unknown. Why: Some vendors
    charge more for the whole of a long request, and less for a short reply.
    """
    off_peak: dict[str, Any] | None = None
    """Prices outside the `peak` hours, which are in the `zone`. A day among the `holidays` has no peak hours; in a year
    of which none is listed they are unknown. A price that it does not name is unknown then. Why: Some vendors are
    cheaper at night.
    """
    promotion: dict[str, Any] | None = None
    """Lower prices for a while: {input, output, cached, tiers}, with the last day `until` in the `zone`, or in some
    unknown one. Without `until` no end is announced. A price that it does not name is unknown meanwhile. Why: Vendors
    lower a price for some weeks, and the price of the list comes back without notice.
    """
    service: dict[str, dict[str, Any]] | None = None
    """The prices of a service tier, by the word for it in a reply (see `usage.service`): {input, output, …, tiers}. The
    cost of a reply with another word is unknown. Why: Vendors charge more for a reply that comes sooner, and less for
    one that may be late.
    """
    factors: dict[str, dict[str, float]] | None = None
    """What every price of tokens is multiplied by: a factor for each word, by the key of the usage object that holds
    the word. With another word the cost is unknown. Why: One vendor charges a multiple for speed, and for the place
    where the request is answered.
    """
    per_call: dict[str, PaidCall] | None = None
    """The fees of calls that the endpoint makes itself, by name. Why: Vendors charge for searches and other tools
    beside the tokens.
    """
