"""The version of this package, and its marker. It imports nothing, so that every module can read it."""

__all__ = ["MARKER", "VERSION"]

VERSION = "0.1.0"
MARKER = object()
"""What `cnllm/__init__.py` of this package has, and that of another project has not."""
