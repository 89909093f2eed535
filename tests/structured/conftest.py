"""Each case runs with both clients, as in `tests/client`."""

from client.conftest import _bare_machine, backend, client, make

__all__ = ["_bare_machine", "backend", "client", "make"]
