"""The files that a gateway was made from, which can be read again while it serves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct

from cnllm.errors import CnllmError, Untrusted
from cnllm.gateway.asgi import Gateway
from cnllm.registry import Registry

__all__ = ["Configuration", "GatewayFiles"]

_log = logging.getLogger("cnllm.gateway")


class GatewayFiles(Struct, frozen=True):
    """The content of the files: the registry, the keys of clients, and those whose limits are in the key book.

    `untrusted` are the providers and the models whose keys may not go where the files say, with the errors.
    """

    registry: Registry
    keys: tuple[str, ...]
    untrusted: Mapping[str, Untrusted] = {}
    limited_keys: tuple[str, ...] = ()


class Configuration:
    """The settings of a gateway. `read` reads them, and raises `CnllmError`; `make` makes a gateway of them.

    `lock` is held while they are read, so that no process is forked in the middle.
    """

    def __init__(self, read: Callable[[], GatewayFiles], make: Callable[[GatewayFiles], Gateway]) -> None:
        self.lock = threading.Lock()
        self._read = read
        self._make = make
        self._settings = read()
        self.suspended: frozenset[str] = frozenset()
        for error in self._settings.untrusted.values():
            raise error

    @property
    def registry(self) -> Registry:
        """Return the newest registry."""
        return self._settings.registry

    def gateway(self) -> Gateway:
        """Return a gateway of the newest settings. Raises `CnllmError`."""
        gateway = self._make(self._settings)
        gateway.suspend(self.suspended)
        return gateway

    def reload(self, gateway: Gateway | None = None) -> bool:
        """Read the settings again, and let a gateway use them. On an error they stay, and the log says why.

        Where a file is not trusted, the models that it is about are `suspended`.
        """
        with self.lock:
            try:
                settings = self._read()
                self.suspended = frozenset(settings.untrusted)
                if gateway is not None:
                    gateway.suspend(self.suspended)
                for untrusted in settings.untrusted.values():
                    raise untrusted
                if gateway is None:
                    self._make(settings)
                else:
                    gateway.use(settings.registry, keys=settings.keys, limited_keys=settings.limited_keys)
            except (CnllmError, OSError, ValueError) as error:
                hint = f" ({error.hint})" if isinstance(error, CnllmError) and error.hint else ""
                _log.warning("the configuration stays as it was: %s%s", error, hint)
                return False
            self._settings = settings
            return True
