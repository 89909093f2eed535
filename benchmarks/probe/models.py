"""Draw the models of a run: some of each wire, and of as many providers as asked for."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cnllm import CnllmError, Registry
from cnllm.registry.model import Model

FILE = Path(__file__).parents[2] / "providers.toml"
SHARES = (("gemini", 4), ("openai-responses", 7), ("anthropic-messages", 9))
"""Models of the wires that few providers have; the rest is of `openai-chat`."""


def draw(registry: Registry, seed: int, count: int = 40, providers: int = 25) -> list[Model]:
    """Return models: the scarce wires first, each from the provider that was drawn least."""
    rng = random.Random(seed)
    names = described()
    rng.shuffle(names)
    out: list[Model] = []
    for protocol, share in (*SHARES, ("openai-chat", count - sum(n for _, n in SHARES))):
        candidates = list(served(registry, names, protocol))
        for _ in range(round(share * count / 40) if protocol != "openai-chat" else count - len(out)):
            drawn = [model.provider for model in out]
            few = len(set(drawn)) < providers
            left = [m for m in candidates if m.name not in {o.name for o in out}]
            best = min(left, key=lambda m: drawn.count(m.provider) if few or m.provider in drawn else 99, default=None)
            if best is not None:
                out.append(best)
    return out


def described() -> list[str]:
    """Return the names of the models in `providers.toml`."""
    return [n for n in tomllib.loads(FILE.read_text(encoding="utf-8"))["models"] if not n.endswith("/*")]


def served(registry: Registry, names: list[str], protocol: str) -> Iterator[Model]:
    """Yield the models that a wire serves and that are not retired."""
    for name in names:
        try:
            model = registry.resolve(name, protocol=protocol)
        except CnllmError:
            continue
        if model.flags.status is None or model.flags.status.is_ != "retired":
            yield model
