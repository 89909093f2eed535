"""Whether a call failed as it may: with an error of cnllm's own, or one that names the argument."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from cnllm.errors import CnllmError

__all__ = ["Input", "fault"]

# What the interpreter and libraries say of their own arguments, which are not the caller's.
_INNER = re.compile(
    r"object has no attribute|unhashable type|is not iterable|object is not|not supported between|codec can't"
    r"|embedded null|expected str, bytes|Encoding objects of type|positional argument|validation error"
    r"|Exceeds the limit"
    r"|str-like or number-like|has no len|indices must be|surrogates not allowed|cannot convert|could not convert"
    r"|must be real number|must be str, not|a bytes-like object is required|descriptor"
)


class Input(Struct, frozen=True):
    """One call: its name, the words of which its error must hold one, and what it does."""

    name: str
    words: tuple[str, ...]
    call: Callable[[], Any]


def fault(one: Input) -> str | None:
    """Return what is wrong with the way in which a call failed; None where it is as it may be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            one.call()
        except CnllmError:
            return None
        except (TypeError, ValueError) as error:
            said = _text(error)
            if not _names(said, one.words):
                return f"{type(error).__name__} names none of {', '.join(one.words)}: {said[:160]}"
            if _INNER.search(said):
                return f"{type(error).__name__} is an inner one: {said[:160]}"
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is what is looked for
            return f"{type(error).__name__}: {_text(error)[:160]}"
    return None


def _names(said: str, words: Iterable[str]) -> bool:
    return any(re.search(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", said) for word in words)


def _text(error: BaseException) -> str:
    try:
        return str(error).encode("ascii", "backslashreplace").decode()
    except Exception:  # noqa: BLE001  an error that cannot be read is worse than any
        gc.collect()
        return f"<{type(error).__name__} without text>"
