"""Each case runs with both clients, as in `tests/client`."""

from client.conftest import backend, client, make

__all__ = ["backend", "client", "make"]
