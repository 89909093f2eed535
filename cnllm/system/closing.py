"""Let an object end with the `with` block that it was opened for."""

from __future__ import annotations

from typing import Self

__all__ = ["AsyncClosing", "Closing"]


class Closing:
    """Close an object at the end of a `with` block."""

    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Close an object at the end of an `async with` block."""

    async def aclose(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
