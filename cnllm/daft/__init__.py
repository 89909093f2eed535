"""A provider for Daft: `daft.functions.prompt` with every model of the registry. It needs the extra `daft`.

    import cnllm, daft
    from daft.functions import prompt

    session = daft.Session()
    session.attach_provider(cnllm.daft.provider())
    with session:
        answer = prompt(daft.col("question"), provider="cnllm", model="glm-4.7", return_format=cnllm.daft.Answer)
        frame = daft.from_pydict({"question": ["Why is the sky blue?"]}).with_column("answer", answer)

No key travels: each worker reads it from its own environment or keys file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnllm.daft.answer import Answer, ParsedAnswer

__all__ = ["Answer", "ParsedAnswer", "provider"]


def provider(name: str = "cnllm", *, model: str | None = None, **options: Any) -> Any:
    """Return a provider for `daft.Session.attach_provider`, which the session then knows by its name.

    `model` is the model of a `prompt` that names none; without it, the default model of cnllm. `options` hold for each
    `prompt`, whose own options win:

    - those of a call (`reasoning`, `temperature`, `timeout`, `fallback`, …), but no key;
    - `simulate=True`: the simulator answers and nothing is sent;
    - `concurrency`: the most requests in flight in a process and a `prompt`, 64 where it is not given;
    - `max_retries`: how often a request is sent again, as for Daft's own providers;
    - `on_error`: what becomes of a row that fails. `"raise"` (the default) ends the query; with `"log"` and `"ignore"`
      the row's answer is null, or with `return_format=Answer` has its `error`;
    - `base_url` and `protocol`: an endpoint of your own, as for `Registry.resolve`.

    Raises `CnllmError` where Daft is not installed, and where an option holds a key.
    """
    try:
        from cnllm.daft.adapter import CnllmProvider
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "daft":
            raise
        from cnllm.config.distribution import install_command
        from cnllm.errors import CnllmError

        raise CnllmError("cnllm.daft needs daft, which is not installed", hint=install_command("daft")) from error
    return CnllmProvider(name, model, options)


if not TYPE_CHECKING:  # the classes need pydantic, whose import takes long

    def __getattr__(name: str) -> object:
        if name not in ("Answer", "ParsedAnswer"):
            raise AttributeError(f"module 'cnllm.daft' has no attribute {name!r}")
        from cnllm.daft import answer

        return getattr(answer, name)
