"""Secrets to look for, and every place where one could show."""

from __future__ import annotations

import base64
import json
import pickle
import traceback
from typing import Any

KEY = "sk-canary-5f1d0c2e9b7a4d63"
HEADER = "hdr-canary-8b21c7d04e6f9a35"  # in a header that is not named like a secret
EXTRA = "xtr-canary-0d94e1b7c25a8f63"  # in extra_headers
PASSWORD = "pwd-canary-71c3f58e2d90ab46"  # before the host of base_url
PROXY = "prx-canary-a46b09e8d1357cf2"  # before the host of a proxy
ALL = (KEY, HEADER, EXTRA, PASSWORD, PROXY)


def found(*texts: Any) -> list[str]:
    """The canaries that are in one of these, plain, in JSON, in a URL or in base64."""
    out = []
    for text in texts:
        shown = text.decode("latin-1") if isinstance(text, bytes) else text if isinstance(text, str) else f"{text!s}"
        for canary in ALL:
            cores = [base64.b64encode(b"\0" * n + canary.encode()).decode()[4:-4] for n in range(3)]
            if canary in shown or any(core in shown for core in cores):
                out.append(f"{canary} in {shown[:2000]}")
    return out


def clean(*texts: Any) -> None:
    """No canary is in any of these."""
    assert found(*texts) == []


def shown(thing: Any) -> str:
    """Whatever of an object is seen without looking for it: repr, text, dicts, and a pickle if there can be one."""
    parts = [repr(thing), str(thing)]
    for name in ("to_dict", "explain"):
        if callable(method := getattr(thing, name, None)):
            parts += [json.dumps(method(), default=str), repr(method())]
    try:
        parts.append(pickle.dumps(thing).decode("latin-1"))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        parts.append(str(error))  # it holds what does not travel
    return "\n".join(parts)


def told(error: BaseException) -> str:
    """An exception with all that is behind it, suppressed or not; the locals of its frames are not looked at."""
    parts: list[str] = [*traceback.format_exception(error)]
    todo: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while todo:
        one = todo.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        parts += [shown(one), repr(one.args), *(f"{name} {shown(value)}" for name, value in vars(one).items())]
        parts += getattr(one, "__notes__", [])
        todo += [one.__cause__, one.__context__]
    return "\n".join(parts)
