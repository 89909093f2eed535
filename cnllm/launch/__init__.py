"""Run a client of another vendor on any model, through a gateway that lives as long as the client.

`clients.toml` holds what each client needs; nothing in the code knows a client.
"""

from __future__ import annotations

__all__: list[str] = []
