"""Connect Daft: the provider, the descriptor that travels to the workers, and the answers to the rows there.

In the process of a worker, some rows are in flight at a time, each with its own retries and its own error.
"""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import os
import socket
import weakref
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from daft.ai.metrics import record_token_metrics
from daft.ai.protocols import PrompterDescriptor
from daft.ai.provider import Provider
from daft.ai.typing import UDFOptions
from daft.daft import guess_mimetype_from_content
from daft.datatype import DataType
from daft.dependencies import np, pil_image
from daft.file import File
from daft.udf.metrics import increment_counter

from cnllm.client.async_client import AsyncClient
from cnllm.daft.answer import answer_row, split_format
from cnllm.daft.settings import PromptSettings, read_settings, refuse_keys, resolve_model
from cnllm.errors import CnllmError, KeyMissing, RegistryError, UnknownModel, Untrusted
from cnllm.types import Media, Message, Reply, Text
from cnllm.types.totals import exact

__all__ = ["CnllmProvider"]

_log = logging.getLogger("cnllm.daft")
_BILLION = 10**9
_MACHINE = (KeyMissing, RegistryError, UnknownModel, Untrusted)
"""Errors of the worker's machine, which no row is to blame for: they end the query whatever `on_error` says."""


class CnllmProvider(Provider):
    """A provider of Daft with the models of the registry; see `cnllm.daft.provider`."""

    def __init__(self, name: str, model: str | None, options: Mapping[str, Any]) -> None:
        self._name = name
        self._model = model
        self._options = dict(options)
        refuse_keys(options)
        if model is not None:
            self.get_prompter()  # a wrong option is an error here, where it stands

    @property
    def name(self) -> str:
        """Return the name by which a session knows this provider."""
        return self._name

    def get_prompter(
        self,
        model: str | None = None,
        return_format: Any = None,
        system_message: str | None = None,
        **options: Any,
    ) -> PrompterDescriptor:
        """Return the descriptor of a `prompt`. Raises as `read_settings` does."""
        schema, as_answer = split_format(return_format)
        if as_answer:
            _check_struct(return_format)
        all_options = {**self._options, **options}
        return CnllmDescriptor(
            read_settings(self._name, model or self._model, schema, system_message, all_options, as_answer=as_answer)
        )


class CnllmDescriptor(PrompterDescriptor):
    """A `prompt` as it is pickled: its settings, without a key and without connections."""

    def __init__(self, settings: PromptSettings) -> None:
        self._settings = settings

    def get_provider(self) -> str:
        """Return the name of the provider."""
        return self._settings.provider

    def get_model(self) -> str:
        """Return the name of the model."""
        return self._settings.model

    def get_options(self) -> dict[str, Any]:
        """Return the options of each call."""
        return dict(self._settings.options)

    def get_udf_options(self) -> UDFOptions:
        """Return options with which Daft neither retries nor catches errors.

        It would do both for all rows of a batch at once: one bad row would cost the answers of thousands.
        """
        return UDFOptions(max_retries=0, on_error="raise")

    def instantiate(self) -> Prompter:
        """Return what answers the rows, in the process of a worker."""
        return Prompter(self._settings)


def _check_struct(return_format: Any) -> None:
    """Raise `TypeError` for an answer that Daft would make text of, because it has no type for its `parsed`."""
    try:
        is_struct = DataType.infer_from_type(return_format).is_struct()
    except Exception:  # noqa: BLE001 - `prompt` catches all, too, and takes the type of text
        is_struct = False
    if not is_struct:
        raise TypeError(
            f"Daft has no type for {return_format.__name__}: use ParsedAnswer[M] with a pydantic model M, or Answer"
        )


# ── the rows, in the process of a worker ─────────────────────────────────────


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
            reply = await self._client.call(self._model, _messages_of(messages), **settings.options)
        except KeyMissing as error:
            raise _missing_here(error) from error
        except _MACHINE:
            raise
        except (CnllmError, ContentError) as error:
            return self._fail_row(getattr(error, "reply", None), error)
        _record_reply(reply, settings)
        for note in reply.notes:
            if note.code == "answer-invalid":
                return self._fail_row(reply, InvalidAnswer(note.said))
        if settings.as_answer:
            return answer_row(reply, None, is_parsed="schema" in settings.options)
        schema = settings.options.get("schema")
        return reply.text if schema is None or isinstance(schema, dict) else reply.parsed

    def _fail_row(self, reply: Reply[Any] | None, error: Exception) -> Any:
        """Return the answer of a row that failed, or raise its error, as `on_error` says."""
        settings = self._settings
        increment_counter("failed rows", attributes=_attributes(settings))
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


# ── cells into messages ──────────────────────────────────────────────────────


class ContentError(ValueError):
    """A cell that cannot be sent."""


def _messages_of(cells: tuple[Any, ...]) -> list[Any]:
    """Return the messages of a row. A cell that is a list of messages comes first, the others are one user message.

    Raises `ContentError` for a cell that cannot be sent.
    """
    messages: list[Any] = []
    parts: list[Text | Media] = []
    for cell in cells:
        if isinstance(cell, list):
            messages += [_message(item) for item in cell]
        elif cell is not None:
            parts.append(_part(cell))
    return [*messages, Message.user(parts)] if parts else messages


def _message(item: Any) -> dict[str, Any]:
    """Return a message of a conversation. A struct of Daft has all keys; those without a value are left out."""
    if not isinstance(item, dict) or not item.get("role"):
        raise ContentError(f"a list in prompt holds messages with role and content, not {type(item).__name__}")
    return {name: value for name, value in item.items() if value is not None or name == "content"}


def _part(cell: Any) -> Text | Media:
    if isinstance(cell, str):
        return Text(cell)
    if isinstance(cell, File):
        with cell.open() as file:
            return _file_part(file.read(), cell.mime_type())
    if isinstance(cell, bytes):
        return _file_part(cell, guess_mimetype_from_content(cell))
    if np.module_available() and isinstance(cell, np.ndarray):
        return _image_part(cell)
    raise ContentError(f"prompt takes text, bytes, images and files, not {type(cell).__name__}")


def _file_part(data: bytes, mime: str | None) -> Text | Media:
    """Return a file as a part. One that is text goes as text, in a tag with its type as Daft's own providers do."""
    kind = (mime or "").partition(";")[0].strip().lower()
    if kind.startswith("text/"):
        tag = f"file_{kind.replace('/', '_')}"
        return Text(f"<{tag}>{data.decode('utf-8', 'replace')}</{tag}>")
    if kind in ("", "application/octet-stream"):
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            raise ContentError(f"{len(data)} bytes are neither text nor a known type of file") from None
    return Media(kind, base64.b64encode(data).decode())


def _image_part(pixels: Any) -> Media:
    if not pil_image.module_available():
        raise ContentError("an image column needs pillow to be sent: pip install pillow")
    file = io.BytesIO()
    pil_image.fromarray(pixels).save(file, "PNG")
    return Media("image/png", base64.b64encode(file.getvalue()).decode())


# ── Daft's metrics (`frame.metrics`), which hold whole numbers ───────────────


def _record_reply(reply: Reply[Any], settings: PromptSettings) -> None:
    """Count the tokens of a reply under Daft's names, and its reasoning, cached tokens and cost."""
    usage = reply.usage
    record_token_metrics(
        protocol="prompt",
        model=settings.model,
        provider=settings.provider,
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.total,
    )
    attributes = _attributes(settings)
    for name, amount in (("reasoning tokens", usage.reasoning), ("cached tokens", usage.cached)):
        if amount is not None:
            increment_counter(name, amount, attributes=attributes)
    if reply.cost is None or not reply.cost.complete:
        increment_counter("rows without an exact cost", attributes=attributes)
    if reply.cost is not None:
        name = f"cost in billionths of {reply.cost.currency}"
        increment_counter(name, _billionths(reply.cost.amount), attributes=attributes)


@exact
def _billionths(amount: Decimal) -> int:
    """Return an amount in billionths of its unit."""
    return round(amount * _BILLION)


def _attributes(settings: PromptSettings) -> dict[str, str]:
    return {"model": settings.model, "protocol": "prompt", "provider": settings.provider}
