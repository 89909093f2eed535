"""The tokens of a stream, and the arguments of its call."""

# One token each: English, Chinese as raw UTF-8, and a few that need JSON escapes.
_TOKENS = ' the|我们| weather|需要| in|查询|。|\n\n| call|工具| "get|_weather|"| with|参数'.split("|")  # noqa: SIM905
ARGUMENTS = '{"city": "北京", "unit": "celsius", "days": 3, "fields": ["temp"], "note": "use \\"metric\\""}'


def texts(n: int) -> tuple[list[str], list[str]]:
    """Return the tokens of a stream: the first half is reasoning, the second text."""
    tokens = [_TOKENS[i % len(_TOKENS)] for i in range(n)]
    return tokens[: n // 2], tokens[n // 2 :]
