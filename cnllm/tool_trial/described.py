"""Make the model whose tools are described in the prompt, whatever its endpoint takes."""

from __future__ import annotations

from msgspec.structs import replace

from cnllm.registry.flags import Flags, Tools
from cnllm.registry.model import Model

__all__ = ["with_described_tools"]


def with_described_tools(model: Model) -> Model:
    """Return the model as an endpoint without tools, for which cnllm describes them in the prompt."""

    def describe(flags: Flags) -> Flags:
        return replace(flags, tools=replace(flags.tools or Tools(), supported=False, otherwise="prompt"))

    return model.derive(describe)
