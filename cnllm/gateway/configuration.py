"""The files that a gateway was made from, which can be read again while it serves."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct

from cnllm.errors import CnllmError, Untrusted
from cnllm.gateway.asgi import Gateway
from cnllm.gateway.limits.keys import KeyRecord
from cnllm.registry import Registry

__all__ = ["Configuration", "GatewayFiles"]

_log = logging.getLogger("cnllm.gateway")


class GatewayFiles(Struct, frozen=True):
    """The content of the files: the registry, the keys of clients, and the limits of some of them.

    `untrusted` are the providers and the models whose keys may not go where the files say, with the errors.
    """

    registry: Registry
    keys: tuple[str, ...]
    untrusted: Mapping[str, Untrusted] = {}
    limits: Mapping[str, KeyRecord] = {}


class Configuration:
    """The settings of a gateway. `read` reads them, and raises `CnllmError`; `make` makes a gateway of them.

    `keep` writes the limits of keys into their book, once all else is known to be right. `lock` is held while the
    settings are read, so that no process is forked in the middle.
    """

    def __init__(
        self,
        read: Callable[[], GatewayFiles],
        make: Callable[[GatewayFiles], Gateway],
        keep: Callable[[Mapping[str, KeyRecord]], None],
    ) -> None:
        self.lock = threading.Lock()
        self._read = read
        self._make = make
        self._keep = keep
        self._kept: GatewayFiles | None = None  # those whose limits were written
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
        if self._kept is not self._settings:
            self._keep(self._settings.limits)
            self._kept = self._settings
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
                self._make(settings)  # raises for a fault in the files, before anything changes
                self._keep(settings.limits)
                if gateway is not None:
                    gateway.use(settings.registry, keys=settings.keys, limited_keys=settings.limits)
            except (CnllmError, OSError, ValueError) as error:
                hint = f" ({error.hint})" if isinstance(error, CnllmError) and error.hint else ""
                _log.warning("the configuration stays as it was: %s%s", error, hint)
                return False
            self._settings = self._kept = settings
            gc.collect()  # the registry before is large, its parts refer to each other, and the collector comes late
            return True
