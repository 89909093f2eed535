"""Answer rows in the process of a worker: some at a time, each with its own retries and its own error."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import weakref
from typing import Any

from cnllm.client.async_client import AsyncClient
from cnllm.daft.answer import answer_row
from cnllm.daft.content import ContentError, messages_of
from cnllm.daft.metrics import record_failure, record_reply
from cnllm.daft.settings import PromptSettings, resolve_model
from cnllm.errors import CnllmError, KeyMissing, RegistryError, UnknownModel, Untrusted
from cnllm.types import Reply

__all__ = ["InvalidAnswer", "Prompter"]

_log = logging.getLogger("cnllm.daft")
_MACHINE = (KeyMissing, RegistryError, UnknownModel, Untrusted)
"""Errors of the worker's machine, which no row is to blame for: they end the query whatever `on_error` says."""


class InvalidAnswer(CnllmError):
    """The answer of a row does not follow the schema, after its corrections."""


class Prompter:
    """Answers rows. One client serves all of them; it is safe in a forked process and in several event loops."""

    def __init__(self, settings: PromptSettings) -> None:
        self._settings = settings
        self._client = AsyncClient(simulate=settings.simulate, retry=settings.retry)
        self._model = resolve_model(self._client.registry, settings)
        self._places: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()
        self._failures = 0
        self._failure: Exception | None = None

    async def prompt(self, messages: tuple[Any, ...]) -> Any:
        """Return the answer of a row: text, what the schema makes of it, or an `Answer`. Null stays null.

        Daft starts all rows of a batch at once; those above `concurrency` wait here. Where one fails for good, those
        that wait send nothing more, because the query has failed.
        """
        if all(message is None for message in messages):
            return None
        failures = self._failures
        async with self._limit():
            if self._failures != failures and self._failure is not None:
                raise self._failure
            try:
                return await self._answer(messages)
            except Exception as error:
                self._failures, self._failure = self._failures + 1, error
                raise

    def _limit(self) -> asyncio.Semaphore:
        """Return the semaphore of the running event loop."""
        loop = asyncio.get_running_loop()
        places = self._places.get(loop)
        if places is None:
            places = self._places[loop] = asyncio.Semaphore(self._settings.concurrency)
        return places

    async def _answer(self, messages: tuple[Any, ...]) -> Any:
        settings = self._settings
        try:
            reply = await self._client.call(self._model, messages_of(messages), **settings.options)
        except KeyMissing as error:
            raise _missing_here(error) from error
        except _MACHINE:
            raise
        except (CnllmError, ContentError) as error:
            return self._failed(getattr(error, "reply", None), error)
        record_reply(reply, settings)
        for note in reply.notes:
            if note.code == "answer-invalid":
                return self._failed(reply, InvalidAnswer(note.said))
        if settings.as_answer:
            return answer_row(reply, None, is_parsed="schema" in settings.options)
        schema = settings.options.get("schema")
        return reply.text if schema is None or isinstance(schema, dict) else reply.parsed

    def _failed(self, reply: Reply[Any] | None, error: Exception) -> Any:
        """Return the answer of a row that failed, or raise its error, as `on_error` says."""
        settings = self._settings
        record_failure(settings)
        if settings.on_error == "raise":
            raise error
        if settings.on_error == "log":
            _log.warning("a row of prompt(%s) failed: %s: %s", settings.model, type(error).__name__, error)
        return answer_row(reply, error, is_parsed="schema" in settings.options) if settings.as_answer else None


def _missing_here(error: KeyMissing) -> KeyMissing:
    """Return the error with the name of the machine whose environment has no key."""
    return KeyMissing(
        f"{error.message} on the worker {socket.gethostname()} (process {os.getpid()})",
        env=error.env,
        hint="keys do not travel with a query: set it in the worker's environment before the worker starts, "
        f"or `cnllm keys set {error.env[0]}` there",
    )
