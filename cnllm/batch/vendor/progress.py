"""The progress of the jobs at a vendor, for the line that the user sees."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["VendorProgress"]


class VendorProgress(Struct, frozen=True):
    """Jobs that are not finished, their rows, and how many are served. `word` is the vendor's for their state."""

    jobs: int
    rows: int
    served: int
    word: str = ""
