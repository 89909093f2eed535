"""Make tasks from a seed, each with its right end: what a host has to call, with which arguments, and what to answer.

A task tells faithful hosts from others in one way, which `KINDS` names. Judges are programs: no model judges another.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

__all__ = ["KINDS", "ComparisonTask", "Kind", "RightStep", "make_tasks", "task_count"]

_CITIES = ("Bern", "Oslo", "Lima", "Quito", "Hanoi", "Cairo", "Dakar", "Turin", "Malmö", "Perth", "Kyoto", "Leeds")
_CITIES_ZH = ("北京", "上海", "广州", "成都", "西安", "杭州", "武汉", "南京", "昆明", "长沙", "厦门", "大连")
_NAMES = ("Ana Ruiz", "Ilse Varga", "Tom Okoro", "Mei Lin", "Jan Novak", "Sara Haddad", "Per Holm", "Rosa Conti")
_NOUNS = ("invoice", "order", "parcel", "ticket", "contract", "vehicle", "room", "meter", "sensor", "account")
_VERBS = ("open", "close", "archive", "print", "inspect")
_WORDS = ("river", "stone", "market", "window", "garden", "winter", "signal", "copper", "letter", "harbour", "orchard")
_TOKENS_PER_LINE = 20
"""The tokens of a line of the long text, about: a line has 15 words."""


class RightStep(Struct, frozen=True):
    """The right step: these calls, as (tool, arguments), or without calls an answer that holds these words.

    `exactly` is the whole answer where only that is right. `results` are the results of the calls, in their order.
    """

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    results: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    exactly: str | None = None


class ComparisonTask(Struct, frozen=True):
    """A task: what is sent, and the right steps. `turns` is the number of requests that it takes.

    With `thought` the model has had a turn already: it thought this, and called the first tool. `fact` is the part of
    the thought that stands nowhere else.
    """

    name: str
    kind: str
    language: str
    prompt: str
    steps: tuple[RightStep, ...]
    tools: tuple[dict[str, Any], ...] = ()
    schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    cut: bool = False
    thought: str | None = None
    fact: str = ""

    @property
    def turns(self) -> int:
        """Return the number of requests."""
        return len(self.steps)


class Kind(Struct, frozen=True):
    """A kind of task: how many of 200 tool turns it makes up or, with `fixed`, its own number, and why it exists."""

    make: Callable[[random.Random, int], dict[str, Any]]
    share: int
    why: str
    fixed: bool = False
    tokens: int = 0


def _tool(name: str, about: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return a function with these parameters, all of them required."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_WEATHER = _tool(
    "get_weather",
    "Return the weather in a city now.",
    {"city": _TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
)
_DAILY = (
    _WEATHER,
    _tool("set_timer", "Set a timer.", {"minutes": _NUMBER}),
    _tool("send_message", "Send a message to a person.", {"to": _TEXT, "text": _TEXT}),
)


def _call(rng: random.Random, index: int) -> dict[str, Any]:
    unit, zh = rng.choice(("celsius", "fahrenheit")), index % 2 == 1
    city = rng.choice(_CITIES_ZH if zh else _CITIES)
    prompt = f"How is the weather in {city} right now? Ask for {unit}."
    chinese = f"{city}现在天气怎么样？请用工具查询，城市名用中文，单位用 {unit}。"
    calls = (("get_weather", {"city": city, "unit": unit}),)
    return {"prompt": prompt, "chinese": chinese, "tools": _DAILY, "steps": (RightStep(calls),)}


def _restraint(rng: random.Random, index: int) -> dict[str, Any]:
    first, second = rng.randint(12, 89), rng.randint(12, 89)
    prompt = f"What is {first} + {second}? Answer with the number alone."
    chinese = f"{first} + {second} 等于多少？只回答数字。"
    steps = (RightStep(words=(str(first + second),)),)
    return {"prompt": prompt, "chinese": chinese, "tools": _DAILY, "steps": steps}


def _pick(rng: random.Random, index: int) -> dict[str, Any]:
    names = [(verb, noun) for noun in _NOUNS for verb in _VERBS]
    rng.shuffle(names)
    tools = tuple(_tool(f"{v}_{n}", f"{v.capitalize()} the {n} with a number.", {"number": _NUMBER}) for v, n in names)
    (verb, noun), number = rng.choice(names), rng.randint(1000, 9999)
    steps = (RightStep(((f"{verb}_{noun}", {"number": number}),)),)
    return {"prompt": f"Please {verb} the {noun} with the number {number}.", "tools": tools, "steps": steps}


def _parallel(rng: random.Random, index: int) -> dict[str, Any]:
    cities, zh = rng.sample(_CITIES, rng.choice((2, 3))), index % 2 == 1
    cities = rng.sample(_CITIES_ZH, len(cities)) if zh else cities
    prompt = f"Ask for the weather in {', '.join(cities)}, all at once, in celsius."
    chinese = f"请同时查询这些城市的天气，城市名用中文，单位用 celsius：{'、'.join(cities)}。"
    calls = tuple(("get_weather", {"city": city, "unit": "celsius"}) for city in cities)
    return {"prompt": prompt, "chinese": chinese, "tools": _DAILY, "steps": (RightStep(calls),)}


def _nested_task(rng: random.Random, index: int) -> dict[str, Any]:
    guest = {"type": "object", "properties": {"name": _TEXT, "age": _NUMBER}, "required": ["name", "age"]}
    room = {"type": "string", "enum": ["single", "double", "suite"]}
    nights = {"type": "array", "items": _TEXT}
    tool = _tool(
        "book_room", "Book a room. A night is a date, as YYYY-MM-DD.", {"guest": guest, "room": room, "nights": nights}
    )
    name, age, kind = rng.choice(_NAMES), rng.randint(19, 88), rng.choice(room["enum"])
    month, day = rng.randint(1, 12), rng.randint(1, 26)
    dates = [f"2027-{month:02}-{day + offset:02}" for offset in range(rng.choice((1, 2)))]
    prompt = f"Book a {kind} for {name}, aged {age}, for the night{'s' * (len(dates) > 1)} of {' and '.join(dates)}."
    arguments = {"guest": {"name": name, "age": age}, "room": kind, "nights": dates}
    return {"prompt": prompt, "tools": (tool,), "steps": (RightStep((("book_room", arguments),)),)}


def _chain(rng: random.Random, index: int) -> dict[str, Any]:
    tools = (
        _tool("find_person", "Return the number of the person who holds a card.", {"card": _NUMBER}),
        _tool("find_account", "Return the account of a person, by the person's number.", {"person": _NUMBER}),
    )
    card, person, account = rng.randint(10**6, 10**7), rng.randint(100, 999), f"AC-{rng.randint(1000, 9999)}"
    steps = (
        RightStep((("find_person", {"card": card}),), (json.dumps({"number": person}),)),
        RightStep((("find_account", {"person": person}),), (json.dumps({"account": account}),)),
        RightStep(words=(account,)),
    )
    return {"prompt": f"Which account belongs to the card {card}? Use the tools.", "tools": tools, "steps": steps}


def _reasoning(rng: random.Random, index: int) -> dict[str, Any]:
    tool = _tool("ready", "Say that you have a number in mind.", {"digits": _NUMBER})
    fact = str(rng.randint(10_000, 99_999))
    prompt = "Choose a number with five digits, and write it in your thoughts alone. Then call the tool ready. "
    prompt += f"After its result, answer with your number alone. (Game {rng.randint(100, 999)})"
    thought = f"My number is {fact}. I must not write it anywhere else. Now I call ready."
    chinese = "请想一个五位数，只写在你的思考里，然后调用工具 ready。拿到结果后，只回答你想的数字。"
    chinese += f"（第 {rng.randint(100, 999)} 局）"
    if index % 2 == 1:
        thought = f"我想的数字是 {fact}，不能写在别处。现在调用 ready。"
    steps = (RightStep(words=(fact,)),)
    return {"prompt": prompt, "chinese": chinese, "tools": (tool,), "steps": steps, "thought": thought, "fact": fact}


def _schema_task(rng: random.Random, index: int) -> dict[str, Any]:
    name, age, city = rng.choice(_NAMES), rng.randint(19, 88), rng.choice(_CITIES)
    skills = rng.sample(_WORDS, 3)
    schema = {
        "type": "object",
        "properties": {"name": _TEXT, "age": _NUMBER, "city": _TEXT, "words": {"type": "array", "items": _TEXT}},
        "required": ["name", "age", "city", "words"],
        "additionalProperties": False,
    }
    answer = {"name": name, "age": age, "city": city, "words": skills}
    prompt = (
        f"{name} is {age}, lives in {city}, and chose the words {', '.join(skills)}, in this order. Write it as JSON."
    )
    return {"prompt": prompt, "schema": schema, "steps": (RightStep(exactly=json.dumps(answer)),)}


def _cut(rng: random.Random, index: int) -> dict[str, Any]:
    prompt = f"Write the numbers from {rng.randint(1, 50)} to 400 in digits, separated by commas, and nothing else."
    return {"prompt": prompt, "max_tokens": 32, "cut": True, "steps": (RightStep(),)}


def _exact(rng: random.Random, index: int) -> dict[str, Any]:
    start, step, count = rng.randint(3, 40), rng.randint(2, 9), rng.randint(40, 60)
    numbers = [str(start + step * n) for n in range(count)]
    prompt = f"Count from {start} in steps of {step}, {count} numbers in all. Write them on one line, separated by "
    prompt += "commas, and nothing else."
    chinese = f"从 {start} 开始，每次加 {step}，一共写 {count} 个数。写在一行里，用逗号隔开，不要写别的。"
    return {"prompt": prompt, "chinese": chinese, "steps": (RightStep(exactly=", ".join(numbers)),)}


def _needle(tokens: int) -> Callable[[random.Random, int], dict[str, Any]]:
    def make(rng: random.Random, index: int) -> dict[str, Any]:
        lines = [" ".join(rng.choice(_WORDS) for _ in range(15)) + "." for _ in range(tokens // _TOKENS_PER_LINE)]
        noun, *others = rng.sample(_NOUNS, 5)
        codes = rng.sample(range(10_000, 99_999), 5)
        places = rng.sample(range(len(lines)), 5)
        for place, name, code in zip(places, (noun, *others), codes, strict=True):
            lines[place] = f"The code of the {name} is {code}."
        text = "\n".join(lines)
        prompt = f"{text}\n\nWhat is the code of the {noun} in the text above? Answer with the number alone."
        return {"prompt": prompt, "steps": (RightStep(words=(str(codes[0]),)),)}

    return make


KINDS: dict[str, Kind] = {
    "call": Kind(_call, 60, "parsers lose calls, and chat templates make models forget their tools"),
    "parallel": Kind(_parallel, 50, "parsers keep the first call of several, or join their arguments"),
    "nested": Kind(_nested_task, 30, "arguments break where a schema is ignored or a parser cuts strings"),
    "pick": Kind(_pick, 25, "a template that cuts long lists of tools hides the right one"),
    "chain": Kind(_chain, 24, "a template may lose results, ids or reasoning of earlier turns"),
    "restraint": Kind(_restraint, 11, "a host that forces tools calls where none is needed"),
    "reasoning": Kind(_reasoning, 20, "hosts drop the reasoning of earlier turns, which the model needs", fixed=True),
    "structured": Kind(_schema_task, 20, "hosts accept a schema and ignore it", fixed=True),
    "cut": Kind(_cut, 20, "a reply that a limit cut has to say so", fixed=True),
    "exact": Kind(_exact, 20, "quantised weights repeat themselves or lose count in long outputs", fixed=True),
    "needle-8k": Kind(_needle(8_000), 12, "hosts shorten long prompts without saying so", fixed=True, tokens=8_000),
    "needle-32k": Kind(_needle(32_000), 4, "the same, for a longer text", fixed=True, tokens=32_000),
    "needle-128k": Kind(_needle(128_000), 2, "the same, for a very long text", fixed=True, tokens=128_000),
}
"""The kinds of tasks. The shares of those with tools add up to 200 turns; a chain is three turns."""


def task_count(kind: str, turns: int) -> int:
    """Return the number of tasks of a kind for so many tool turns in all: at least one of each."""
    rule = KINDS[kind]
    share = rule.share / (3 if kind == "chain" else 1)
    return max(1, rule.share if rule.fixed and turns >= 200 else round(share * turns / 200))


def make_tasks(seed: int, turns: int, *, most_tokens: int | None = None) -> tuple[ComparisonTask, ...]:
    """Return the tasks of a seed, mixed, so that each part of them holds all kinds.

    Tasks with a text of more than `most_tokens` are left out.
    """
    kinds = [name for name, kind in KINDS.items() if most_tokens is None or kind.tokens * 1.2 <= most_tokens]
    placed = [
        ((index + 0.5) / task_count(kind, turns), task)
        for kind in kinds
        for index, task in enumerate(_tasks(kind, seed, task_count(kind, turns)))
    ]
    return tuple(task for _, task in sorted(placed, key=lambda entry: (entry[0], entry[1].name)))


def _tasks(kind: str, seed: int, count: int) -> Iterator[ComparisonTask]:
    """Yield tasks of a kind, every second one in Chinese where the kind has such."""
    for index in range(count):
        rng = random.Random(f"{seed}/{kind}/{index}")
        fields = KINDS[kind].make(rng, index)
        chinese = fields.pop("chinese", None)
        language = "zh" if chinese is not None and index % 2 == 1 else "en"
        fields["prompt"] = chinese if language == "zh" else fields["prompt"]
        yield ComparisonTask(name=f"{kind}-{index + 1}", kind=kind, language=language, **fields)
