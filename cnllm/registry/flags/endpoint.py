"""Flags of the endpoint and its model: the key's header, the state of the model, limits of tokens, prices."""

import datetime
from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import Base, flag

__all__ = ["Auth", "LimitFlags", "PaidCall", "Price", "RateHeaders", "Rates", "Site", "Status", "Upstream"]


class Auth(Base, frozen=True):
    """The header that carries the key."""

    header: Annotated[
        str | None,
        flag("The header that carries the key.", "Vendors with a protocol of their own do not use Authorization."),
    ] = None
    value: Annotated[
        str | None,
        flag(
            "The value of that header, `{key}` standing for the key.",
            "Some want the bare key, others a word before it.",
        ),
    ] = None


class Site(Base, frozen=True):
    """The place of a provider among the sites of one vendor, which serve the same models with keys of their own."""

    vendor: Annotated[
        str | None,
        flag(
            "The name that the sites of one vendor share. A plan has a name of its own.",
            "A vendor serves the same models at several addresses, and a key of one is refused by the others.",
        ),
    ] = None
    region: Annotated[
        str | None,
        flag(
            "Where the site is: the code of a country, or `global`.",
            "Where a variable fits several sites, the place of the user suggests one.",
        ),
    ] = None
    keys: Annotated[
        list[str] | None,
        flag(
            "Variables of `keys` that mean this site, although another site of the vendor reads them, too.",
            "Programs read one variable for all sites, while its name is that of one.",
        ),
    ] = None


class Upstream(Base, frozen=True):
    """The one endpoint behind a router that may answer: where a request names it."""

    at: Annotated[
        str | None,
        flag(
            "The path of the list of endpoints that alone may answer.",
            "A router spreads the calls of one model over endpoints that differ.",
            path="write",
        ),
    ] = None
    id: Annotated[
        str | None,
        flag(
            "The model's id that means one endpoint: {model} stands for the id, {upstream} for the endpoint.",
            "Some routers take the endpoint as a part of the id.",
        ),
    ] = None


class Status(Base, frozen=True):
    """The state of a model between its first day and its last."""

    is_: Annotated[
        Literal["current", "preview", "retired"] | None,
        flag(
            "Whether the model is current, in preview or retired.",
            "Vendors retire models, and a call of one fails with an error that seldom names the successor.",
        ),
    ] = field(default=None, name="is")
    released: Annotated[
        datetime.date | None,
        flag(
            "The day on which the vendor released the model.",
            "Who looks for a model wants the newest first, and ids do not sort by age.",
        ),
    ] = None
    since: Annotated[
        datetime.date | None,
        flag("The first day of this state.", "A model is announced as retired before it stops answering."),
    ] = None
    shutdown: Annotated[
        datetime.date | None,
        flag(
            "The announced day on which a model that still answers stops answering.",
            "Vendors announce it months ahead, and a program that calls the model must have moved by then.",
        ),
    ] = None
    use: Annotated[
        str | None,
        flag(
            "The successor of a retired model, as provider/id.",
            "The error for a call of the old model names the new one.",
        ),
    ] = None


class LimitFlags(Base, frozen=True):
    """The limits of a model, in tokens."""

    context: Annotated[
        int | None,
        flag(
            "The tokens that fit into the window, input and output together.",
            "A default for max_tokens must leave room for the input.",
        ),
    ] = None
    output: Annotated[
        int | None,
        flag(
            "The greatest number of tokens of a reply; a larger max_tokens is clamped to it.",
            "Many endpoints refuse a larger number instead of clamping it.",
        ),
    ] = None
    input: Annotated[
        int | None,
        flag(
            "The tokens that the input may have, where the vendor gives a number of its own for it.",
            "The window of some models is larger than the longest input that they take.",
        ),
    ] = None

    @property
    def most_input(self) -> int | None:
        """The tokens of the longest input: its own limit, else the window."""
        known = [limit for limit in (self.input, self.context) if limit is not None]
        return min(known, default=None)


class RateHeaders(Base, frozen=True):
    """The headers of a response that tell how much may be sent."""

    requests: Annotated[
        str | None, flag("The header with the requests that a minute may have.", "Endpoints differ in its name.")
    ] = None
    requests_left: Annotated[
        str | None, flag("The header with the requests that are left.", "Endpoints differ in its name.")
    ] = None
    requests_reset: Annotated[
        str | None,
        flag(
            "The header with the time until there are requests again: seconds, a duration, or a date.",
            "Endpoints differ in its name.",
        ),
    ] = None
    tokens: Annotated[
        str | None, flag("The header with the tokens that a minute may have.", "Endpoints differ in its name.")
    ] = None
    tokens_left: Annotated[
        str | None, flag("The header with the tokens that are left.", "Endpoints differ in its name.")
    ] = None
    tokens_reset: Annotated[
        str | None,
        flag(
            "The header with the time until there are tokens again: seconds, a duration, or a date.",
            "Endpoints differ in its name.",
        ),
    ] = None


class Rates(Base, frozen=True):
    """The most that an endpoint takes in a time. A batch keeps below it."""

    requests: Annotated[
        int | None,
        flag(
            "The requests that a minute may have, for each key.",
            "Endpoints refuse what is more, and some count refusals too.",
        ),
    ] = None
    tokens: Annotated[
        int | None,
        flag(
            "The tokens that a minute may have, for each key.",
            "Endpoints refuse what is more, and some count refusals too.",
        ),
    ] = None
    burst_codes: Annotated[
        list[str] | None,
        flag(
            "The codes of refusals because requests became more too quickly. A batch then grows more slowly, and takes "
            "it for no limit of a minute.",
            "Some vendors limit the slope of the traffic in addition to its height.",
        ),
    ] = None
    fields: Annotated[
        RateHeaders | None,
        flag(
            "The header fields of a response that tell the limits.",
            "Limits differ by account, and some endpoints tell them.",
        ),
    ] = None


_PRICE = "Replies do not name their price; cnllm computes it from the token counts."


class PaidCall(Base, frozen=True):
    """The fee for one kind of call that the endpoint makes itself, and where a reply counts such calls."""

    fee: Annotated[
        float | None,
        flag("The fee, in the currency of the prices.", "Vendors charge for a search beside the tokens."),
    ] = None
    at: Annotated[
        list[str] | None,
        flag(
            "The paths of the number of calls in a body or a chunk. Of a list, its length counts without empty items; "
            "an object is one call.",
            "Vendors report such calls in different places.",
            path="read",
        ),
    ] = None
    item: Annotated[
        str | None,
        flag(
            "The type of the block or item of a reply that stands for one call.",
            "Some wires report a call as a part of the reply, and have no count of them.",
        ),
    ] = None
    per: Annotated[
        Literal["call", "unique", "request"] | None,
        flag(
            "Whether each call is charged, each different one of a list, or each request with one or more of them; "
            "left out: each call.",
            "One vendor has changed from one to the other between two generations of its models.",
        ),
    ] = None
    allowance: Annotated[
        bool | None,
        flag(
            "Whether some of the calls of a day or a month are free, so that the fee may not be charged.",
            "A reply does not say how much of an allowance is left.",
        ),
    ] = None
    replaces: Annotated[
        Literal["tool_input"] | None,
        flag(
            "The count of tokens that is free in a reply with such a call, because the fee is charged instead.",
            "One vendor does not charge for the text that its own search puts into the prompt.",
        ),
    ] = None


class Price(Base, frozen=True):
    """The prices of a model, for a million tokens."""

    currency: Annotated[str | None, flag("The ISO 4217 code of the prices.", "Vendors bill in several currencies.")] = (
        None
    )
    input: Annotated[float | None, flag("The price of a million input tokens.", _PRICE)] = None
    output: Annotated[float | None, flag("The price of a million output tokens, reasoning included.", _PRICE)] = None
    cached: Annotated[
        float | None,
        flag(
            "The price of a million input tokens read from the endpoint's cache.",
            "Tokens from a cache are cheaper.",
        ),
    ] = None
    cache_write: Annotated[
        float | None,
        flag("The price of a million input tokens written to the cache.", "Some vendors charge more for writing it."),
    ] = None
    cache_write_1h: Annotated[
        float | None,
        flag(
            "The price of a million input tokens written to the cache for an hour.",
            "One vendor charges more for a cache that lasts longer.",
        ),
    ] = None
    output_thinking: Annotated[
        float | None,
        flag(
            "The price of a million output tokens of a reply with reasoning, the answer included.",
            "One vendor charges another price for the whole output of a model that reasoned.",
        ),
    ] = None
    input_audio: Annotated[
        float | None,
        flag(
            "The price of a million input tokens of sound that are not read from the cache.",
            "Sound costs more than text at some endpoints.",
        ),
    ] = None
    cached_audio: Annotated[
        float | None,
        flag(
            "The price of a million input tokens of sound read from the cache.",
            "Sound costs more than text at some endpoints, from the cache too.",
        ),
    ] = None
    tiers: Annotated[
        list[dict[str, float]] | None,
        flag(
            "Other prices from `above` input tokens on: {above, input, output, cached, …}. A tier has all its prices: "
            "one that it does not name is unknown.",
            "Some vendors charge more for the whole of a long request.",
        ),
    ] = None
    off_peak: Annotated[
        dict[str, Any] | None,
        flag(
            "Prices outside the `peak` hours, which are in the `zone`. A day among the `holidays` has no peak hours. "
            "One that it does not name is unknown then.",
            "Some vendors are cheaper at night.",
        ),
    ] = None
    promotion: Annotated[
        dict[str, Any] | None,
        flag(
            "Lower prices for a while: {input, output, cached, tiers}, with the last day `until` in the `zone`. "
            "Without `until` no end is announced. A price that it does not name is unknown meanwhile.",
            "Vendors lower a price for some weeks, and the price of the list comes back without notice.",
        ),
    ] = None
    service: Annotated[
        dict[str, dict[str, Any]] | None,
        flag(
            "The prices of a service tier, by the word for it in a reply (see `usage.service`): {input, output, …, "
            "tiers}. The cost of a reply with another word is unknown.",
            "Vendors charge more for a reply that comes sooner, and less for one that may be late.",
        ),
    ] = None
    factors: Annotated[
        dict[str, dict[str, float]] | None,
        flag(
            "What every price of tokens is multiplied by: a factor for each word, by the key of the usage object that "
            "holds the word. With another word the cost is unknown.",
            "One vendor charges a multiple for speed, and for the place where the request is answered.",
        ),
    ] = None
    per_call: Annotated[
        dict[str, PaidCall] | None,
        flag(
            "The fees of calls that the endpoint makes itself, by name.",
            "Vendors charge for searches and other tools beside the tokens.",
        ),
    ] = None
