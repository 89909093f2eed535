"""The version of this package, and its marker. It imports nothing, so that every module can read it."""

__all__ = ["MARKER", "VERSION"]

VERSION = "0.1.0"
MARKER = object()
"""An object that only this package's `cnllm/__init__.py` holds: another project may have the same import name."""
