"""Show what becomes of each field of the four wires, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cnllm.protocols import PROTOCOLS, fields
from cnllm.protocols.fields import Field, Outcome
from docs.generate.markdown import code, table
from docs.generate.reply_fields import REASONS, REPLIES

__all__ = ["page", "page_zh"]


_OUTCOMES: dict[Outcome, str] = {
    "translate": "Every model, or every client, gets it in the form of its own wire.",
    "forward": (
        "Goes on to every wire that has a field of the same meaning, where the registry does not say that the endpoint "
        "refuses it. Elsewhere it is left out with a note."
    ),
    "keep": (
        "Stays as it is on its own wire. On another wire it is left out with a note; of a reply, it stays in "
        "`Reply.extra` or in the message, too. What goes back to the endpoint with reasoning or a call has no note: "
        "the gateway keeps it."
    ),
    "return": (
        "An endpoint gave it with its answer, and it goes back to that endpoint alone. Another one does not get it, "
        "with a note."
    ),
    "permit": "Goes to every endpoint that is known to take it. Elsewhere it is left out with a note.",
    "search": (
        "A web search. Every endpoint that has one by the registry gets its own form of it. Elsewhere it is as with "
        "`offer`."
    ),
    "offer": (
        "A tool that the vendor executes. It stays as it is on its own wire. On another wire it is left out with a "
        "note; where the request demands that it is called, the answer is 400."
    ),
    "media": (
        "Every model that reads this kind of medium gets it, and every model reads text files. Elsewhere a line that "
        "the model reads takes its place, with a note; in the newest message of the user it is an error, where the "
        "caller does not allow that. A name that the wire has no field for stands in a line before the medium."
    ),
    "describe": "Stays as it is on its own wire. On another wire the model reads a line that names it, with a note.",
    "refuse": "Stays as it is on its own wire. On another wire the answer is 400 and names the field.",
    "reject": "The answer is 400 and names the field.",
    "answer": "cnllm acts on it itself, or writes a value of its own.",
    "drop": "Left out on every wire, with a note.",
    "omit": "Left out of replies, for the reason that stands with it.",
}
"""The outcomes of a field, and what each of them means."""


class _Words(NamedTuple):
    """The texts of a page in one language."""

    title: str
    introduction: str
    outcomes: dict[Outcome, str]
    outcome_head: tuple[str, str]
    portable: str
    portable_text: str
    meaning: str
    request: str
    reply: str
    head: tuple[str, str, str]
    bodies: tuple[str, str]


_ENGLISH = _Words(
    title="What each wire can carry",
    introduction=(
        "A client speaks one of four wires, and so does the endpoint of a model. The tables below say for every field "
        "and for every type of block what becomes of it on the way: of a request from the client to the model, and of "
        "a reply from the model to the client. The decoders read the same tables. A field of a request's body that no "
        "table names is kept, and one of a reply is in `Reply.raw` alone; inside messages and tools, `*` stands for "
        "such fields. "
        "Notes stand in the reply; the gateway's header `x-cnllm-notes` says how many there are and where they are."
    ),
    outcomes=_OUTCOMES,
    outcome_head=("outcome", "meaning"),
    portable="Fields that go on to other wires",
    portable_text="Each row is one meaning, with its name on each wire.",
    meaning="meaning",
    request="Request",
    reply="Reply",
    head=("place", "outcome", "fields and blocks"),
    bodies=("the body", "the body"),
)
_CHINESE = _Words(
    title="各协议能传什么",
    introduction=(
        "客户端使用四种协议之一，模型的接口也是。下面的表格逐个说明每个字段、每种内容块在途中的去向：请求从客户端到模型，"
        "回复从模型到客户端。解码器读取的就是这些表格。请求体里表中没有的字段原样保留，"
        "回复里这样的字段只在 `Reply.raw` 里；在消息和工具里，`*` 代表这样的字段。说明（note）写在回复里；"
        "网关的响应头 `x-cnllm-notes` 给出条数和查看的位置。"
    ),
    outcomes={
        "translate": "每个模型（或每个客户端）都会收到它，格式按各自的协议。",
        "forward": "传给有同义字段的每种协议，除非注册表写明接口会拒绝。其他协议上去掉，并给出说明。",
        "keep": (
            "在自己的协议上原样保留。换到其他协议则去掉，并给出说明；回复里的还留在 `Reply.extra` 或消息中。"
            "随思考或调用送回接口的数据没有说明：由网关保留。"
        ),
        "return": "接口随回答给出的数据，只发回给这个接口。其他接口收不到它，并给出说明。",
        "permit": "传给已知接受它的每个接口。其他接口上去掉，并给出说明。",
        "search": "联网搜索。注册表写明支持搜索的接口，会收到各自格式的搜索请求。其他接口与 `offer` 相同。",
        "offer": (
            "由厂商执行的工具。在自己的协议上原样保留。换到其他协议则去掉，并给出说明；请求强制调用它时返回 400。"
        ),
        "media": (
            "支持这类输入的模型会收到它。其他模型收到一小段替代文字，并给出说明。"
            "协议没有名称字段时，名称写在文件前的一行文字里。"
        ),
        "describe": "在自己的协议上原样保留。换到其他协议，模型会读到一行说明文字，并给出说明。",
        "refuse": "在自己的协议上原样保留。换到其他协议则返回 400，并写明字段名。",
        "reject": "返回 400，并写明字段名。",
        "answer": "由 cnllm 自己处理，或写入自己的值。",
        "drop": "在每种协议上都去掉，并给出说明。",
        "omit": "不写进回复，原因写在旁边。",
    },
    outcome_head=("去向", "含义"),
    portable="可传到其他协议的字段",
    portable_text="每行是一个含义，以及它在各协议上的名称。",
    meaning="含义",
    request="请求",
    reply="回复",
    head=("位置", "去向", "字段和内容块"),
    bodies=("请求体", "响应体"),
)


def page() -> str:
    """Return the page in English."""
    return _page(_ENGLISH)


def page_zh() -> str:
    """Return the page in Chinese."""
    return _page(_CHINESE)


def _page(words: _Words) -> str:
    """Return the page in one language."""
    parts = [f"# {words.title}", words.introduction]
    used = {
        row.outcome
        for protocol in PROTOCOLS
        for places in (fields(protocol).request, REPLIES[protocol])
        for rows in places.values()
        for row in rows.values()
    }
    parts.append(
        table(
            words.outcome_head,
            [[code(outcome), words.outcomes[outcome]] for outcome in words.outcomes if outcome in used],
        )
    )
    parts += [f"## {words.portable}", words.portable_text, table([words.meaning, *PROTOCOLS], _portable())]
    for protocol in PROTOCOLS:
        parts.append(f"## {protocol}")
        for title, body, places in (
            (words.request, words.bodies[0], fields(protocol).request),
            (words.reply, words.bodies[1], REPLIES[protocol]),
        ):
            parts += [f"**{title}**", table(words.head, _rows(places, body))]
    return "\n\n".join(parts) + "\n"


def _portable() -> Iterator[list[str]]:
    """Yield a row for each meaning of a field that goes on: its names on the wires."""
    names: dict[str, dict[str, str]] = {}
    for protocol in PROTOCOLS:
        for place, rows in fields(protocol).request.items():
            for name, row in rows.items():
                if row.outcome == "forward":
                    names.setdefault(row.meaning, {})[protocol] = f"{place}.{name}" if place else name
    for meaning in sorted(names):
        yield [code(meaning), *(code(names[meaning].get(protocol, "")) for protocol in PROTOCOLS)]


def _rows(places: dict[str, dict[str, Field]], body: str) -> Iterator[list[str]]:
    """Yield a row for each outcome at each place."""
    for place, rows in places.items():
        groups: dict[Outcome, list[str]] = {}
        for name, row in rows.items():
            groups.setdefault(row.outcome, []).append(name)
        for outcome, names in groups.items():
            reasons = dict.fromkeys(REASONS[name] for name in names if outcome == "omit")
            listing = ", ".join(map(code, names))
            yield [
                code(place) or body,
                code(outcome),
                ": ".join([listing, "; ".join(reasons)] if reasons else [listing]),
            ]
