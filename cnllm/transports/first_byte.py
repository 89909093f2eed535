"""Find out whether a response had begun when httpx failed. Its errors do not say, and a retry depends on it.

httpcore reads a response's head in two functions. Their local variables are read from the error's traceback, so that
successful requests pay nothing.
"""

from __future__ import annotations

from types import FrameType

__all__ = ["response_began"]


def response_began(error: BaseException) -> bool:
    """Whether a byte of a response arrived before this error. False also for transports that hide it."""
    current: BaseException | None = error
    while current is not None:
        if (
            type(current).__module__.partition(".")[0] == "h11"
        ):  # h11 refuses received bytes; httpcore reports missing ones
            return True
        traceback = current.__traceback__
        while traceback is not None:
            if _has_bytes(traceback.tb_frame):
                return True
            traceback = traceback.tb_next
        current = current.__cause__ or current.__context__
    return False


def _has_bytes(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    if name == "_receive_response_headers":  # an interim response arrived
        return frame.f_locals.get("event") is not None
    if name == "_receive_event":  # a part of a head arrived
        state = getattr(frame.f_locals.get("self"), "_h11_state", None)
        data = getattr(state, "trailing_data", (b"",))
        return bool(data[0])
    return False
