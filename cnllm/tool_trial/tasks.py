"""The scripted tasks: a prompt, tools that change a small world, and a check of the world and the answer at the end.

Each task has one right end, which its check can see without a judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

__all__ = ["TASKS", "ReplyResult", "Task", "TaskResult", "World"]


class World(Struct, frozen=True):
    """A fresh world of a task.

    `expects_call` says whether the next reply has to call a tool. `check` takes the last answer's text and returns what
    is wrong at the end, or None.
    """

    prompt: str
    tools: tuple[Callable[..., object], ...]
    expects_call: Callable[[], bool]
    check: Callable[[str], str | None]


class Task(Struct, frozen=True):
    """A task: its name, the function that makes a fresh world, and the requests that it mostly takes."""

    name: str
    begin: Callable[[], World]
    requests: int = 2


class ReplyResult(Struct, frozen=True):
    """One reply in a task: whether a call was expected, whether it called, and whether all its calls are valid.

    `first` is the time from sending to the first piece of text or of a call, `seconds` to the end; null where nothing
    came.
    """

    expected: bool
    called: bool
    valid: bool
    first: float | None
    seconds: float | None


class TaskResult(Struct, frozen=True):
    """The end of a task: `problem` is null if it ended right. `seconds` is the time of all its requests."""

    task: str
    problem: str | None
    replies: tuple[ReplyResult, ...]
    seconds: float | None


def _lacks(text: str, *words: str) -> str | None:
    """Return which of these words an answer lacks; separators of thousands do not count."""
    plain = text.casefold().replace(",", "").replace("\N{NARROW NO-BREAK SPACE}", "").replace("'", "")
    missing = [word for word in words if word.casefold() not in plain]
    return f"the answer lacks {', '.join(missing)}" if missing else None


def _got(seen: list[Any], goals: list[Any]) -> str | None:
    """Return how the calls differ from those wanted; their order is free."""
    unfit = [item for item in seen if item not in goals]
    missing = [item for item in goals if item not in seen]
    if unfit:
        return f"a tool got: {json.dumps(unfit[0], ensure_ascii=False, default=str)}"
    return f"no tool got: {json.dumps(missing[0], ensure_ascii=False, default=str)}" if missing else None


def _world(prompt: str, tool: Callable[..., object], seen: list[Any], goals: list[Any], *words: str) -> World:
    """Return a world with one tool, which keeps in `seen` what it got: `goals`, and an answer with these words."""
    return World(prompt, (tool,), lambda: not seen, lambda text: _got(seen, goals) or _lacks(text, *words))


def _weather() -> World:
    seen: list[str] = []

    def get_weather(city: str) -> dict[str, Any]:
        """Return the weather in a city now."""
        seen.append(city.partition(",")[0].strip().casefold())
        return {"degrees_celsius": 17, "sky": "rain"}

    return _world("How many degrees is it in Bern right now?", get_weather, seen, ["bern"], "17")


def _arithmetic() -> World:
    seen: list[list[float]] = []

    def multiply(a: float, b: float) -> float:
        """Multiply two numbers."""
        seen.append(sorted((a, b)))
        return a * b

    prompt = "What is 48731 times 6197? Use the tool, and give the exact number."
    return _world(prompt, multiply, seen, [[6197, 48731]], "301986007")


def _search_then_read() -> World:
    searches: list[str] = []
    documents: list[str] = []

    def search_archive(query: str) -> list[dict[str, str]]:
        """Search the archive. Returns ids and titles of documents."""
        searches.append(query)
        return [
            {"id": "doc-3", "title": "Aldmoor: market rules"},
            {"id": "doc-7", "title": "Aldmoor: the mural in the town hall"},
        ]

    def read_document(id: str) -> str:
        """Return the text of a document of the archive, by its id."""
        documents.append(id)
        return "The mural was finished in 1931 by Ilse Varga." if id == "doc-7" else "Nothing about a mural."

    return World(
        "Who painted the mural in the town hall of Aldmoor? Search the archive, then read the document that tells it.",
        (search_archive, read_document),
        lambda: "doc-7" not in documents,
        lambda text: (
            ("nothing was searched" if not searches else None)
            or _got(documents, ["doc-7"])
            or _lacks(text, "Ilse Varga")
        ),
    )


def _two_at_once() -> World:
    seen: list[str] = []

    def get_temperature(city: str) -> str:
        """Return the temperature in a city now, in degrees Celsius."""
        seen.append(city.partition(",")[0].strip().casefold())
        return "24" if seen[-1] == "lima" else "-6"

    return World(
        "Which is warmer right now, Oslo or Lima? Ask for both at once, and name the warmer one with its degrees.",
        (get_temperature,),
        lambda: not {"oslo", "lima"} <= set(seen),
        lambda text: _got(seen, ["oslo", "lima"]) or _lacks(text, "Lima", "24"),
    )


def _no_tool() -> World:
    seen: list[str] = []

    def get_weather(city: str) -> str:
        """Return the weather in a city now."""
        seen.append(city)
        return "17 degrees"

    return World(
        "What is 7 + 5? Answer with the number alone.",
        (get_weather,),
        lambda: False,
        lambda text: ("a tool was called for nothing" if seen else None) or _lacks(text, "12"),
    )


@dataclass
class Guest:
    name: str
    age: int


def _nested_task() -> World:
    seen: list[dict[str, Any]] = []

    def book_room(guest: Guest, nights: list[str], room: Literal["single", "double"]) -> str:
        """Book a room.

        Args:
            guest: Who sleeps there.
            nights: One date a night, as YYYY-MM-DD.
            room: The kind of room.
        """
        seen.append({"guest": {"name": guest.name, "age": guest.age}, "nights": sorted(nights), "room": room})
        return "booked, code QX-81"

    goal = {"guest": {"name": "Ana Ruiz", "age": 34}, "nights": ["2026-03-14", "2026-03-15"], "room": "double"}
    prompt = "Book a double room for Ana Ruiz, who is 34, for the nights of 14 and 15 March 2026. Tell me the code."
    return _world(prompt, book_room, seen, [goal], "QX-81")


def _enum() -> World:
    seen: list[list[str]] = []

    def set_light(room: Literal["kitchen", "hall", "bedroom"], level: Literal["off", "dim", "bright"]) -> str:
        """Set the light of a room."""
        seen.append([room, level])
        return "done"

    return _world("Please turn the kitchen light down low, but not off.", set_light, seen, [["kitchen", "dim"]])


def _no_arguments() -> World:
    seen: list[str] = []

    def get_battery_level() -> str:
        """Return how full the battery is."""
        seen.append("read")
        return "83 percent"

    return _world("How full is the battery?", get_battery_level, seen, ["read"], "83")


def _chinese() -> World:
    seen: list[str] = []

    def get_temperature(city: str) -> str:
        """返回一个城市现在的气温(摄氏度)。"""
        seen.append(city.removesuffix("市").casefold())
        return "23"

    def check(text: str) -> str | None:
        if not any("一" <= character <= "鿿" for character in text):
            return "the answer is not Chinese"
        return ("a tool got another city" if set(seen) - {"杭州", "hangzhou"} else None) or _lacks(text, "23")

    return World("杭州现在多少度?请用中文回答。", (get_temperature,), lambda: not seen, check)


def _long_result() -> World:
    seen: list[str] = []

    def list_orders() -> str:
        """List all orders with their totals."""
        seen.append("read")
        return "\n".join(
            f"order A-{n}: {n * 7 % 1000}.{n % 90 + 10} EUR, {'paid' if n % 3 else 'open'}" for n in range(400)
        )

    prompt = "What is the total of order A-317? Look it up and give the amount."
    return _world(prompt, list_orders, seen, ["read"], "219.57")


def _error_to_correct() -> World:
    seen: list[str] = []

    def count_stock(code: str) -> int:
        """Return how many items are in stock.

        Args:
            code: The code of the article, such as ABC-001.
        """
        seen.append(code)
        if code != "WID-204":
            raise ValueError(f"there is no code {code!r}; the widget has the code WID-204")
        return 58

    return World(
        "How many widgets are in stock? If the code is wrong, use the one that you are told.",
        (count_stock,),
        lambda: "WID-204" not in seen,
        lambda text: ("the right code was not used" if "WID-204" not in seen else None) or _lacks(text, "58"),
    )


def _error_to_report() -> World:
    seen: list[str] = []

    def delete_file(path: str) -> str:
        """Delete a file."""
        seen.append(path)
        raise PermissionError("E-4417: the file is locked by the backup until tomorrow")

    return World(
        "Delete the file /srv/old.log. If that fails, do not try again: tell me the code of the error.",
        (delete_file,),
        lambda: not seen,
        lambda text: (
            _got(seen, ["/srv/old.log"]) or ("it was tried again" if len(seen) > 1 else None) or _lacks(text, "E-4417")
        ),
    )


_NOTE = 'She said: "it\'s 5 µm", then C:\\temp\\new – 好的 </note>'


def _exact_text() -> World:
    seen: list[list[str]] = []

    def save_note(title: str, text: str) -> str:
        """Save a note, character by character as given."""
        seen.append([title, text])
        return "saved"

    prompt = f"Save a note with the title Quotes and exactly this text, between the lines:\n---\n{_NOTE}\n---"
    return _world(prompt, save_note, seen, [["Quotes", _NOTE]])


TASKS: tuple[Task, ...] = (
    Task("weather", _weather),
    Task("arithmetic", _arithmetic),
    Task("search-then-read", _search_then_read, 3),
    Task("two-at-once", _two_at_once),
    Task("no-tool", _no_tool, 1),
    Task("nested", _nested_task),
    Task("enum", _enum),
    Task("no-arguments", _no_arguments),
    Task("chinese", _chinese),
    Task("long-result", _long_result),
    Task("error-to-correct", _error_to_correct, 3),
    Task("error-to-report", _error_to_report),
    Task("exact-text", _exact_text),
)
"""The tasks, in the order in which they are tried."""
