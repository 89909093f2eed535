"""The registry: files → Models. It knows nothing of any wire."""

from cnllm.registry.registry import Registry

__all__ = ["Registry"]
