"""Tell whether a response had begun when httpx failed: its errors do not say, and such a request is not sent again.

httpcore reads a response's head in two functions. What they had when they failed is looked up in the error's traceback,
so that requests that succeed pay nothing.
"""

from __future__ import annotations

from types import FrameType

__all__ = ["response_began"]


def response_began(error: BaseException) -> bool:
    """Whether a byte of a response came before this error. False as well for transports that do not let it be seen."""
    at: BaseException | None = error
    while at is not None:
        if type(at).__module__.partition(".")[0] == "h11":  # it refuses what came; what did not come is httpcore's
            return True
        trace = at.__traceback__
        while trace is not None:
            if _has_bytes(trace.tb_frame):
                return True
            trace = trace.tb_next
        at = at.__cause__ or at.__context__
    return False


def _has_bytes(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    if name == "_receive_response_headers":  # an interim response came
        return frame.f_locals.get("event") is not None
    if name == "_receive_event":  # a part of a head came
        state = getattr(frame.f_locals.get("self"), "_h11_state", None)
        data = getattr(state, "trailing_data", (b"",))
        return bool(data[0])
    return False
