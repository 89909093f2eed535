"""Connect Daft: the provider, and the descriptor that travels to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daft.ai.protocols import PrompterDescriptor
from daft.ai.provider import Provider
from daft.ai.typing import UDFOptions
from daft.datatype import DataType

from cnllm.daft.answer import split_format
from cnllm.daft.prompter import Prompter
from cnllm.daft.settings import PromptSettings, read_settings, refuse_keys

__all__ = ["CnllmProvider"]


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
        given = {**self._options, **options}
        return CnllmDescriptor(
            read_settings(self._name, model or self._model, schema, system_message, given, as_answer=as_answer)
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
