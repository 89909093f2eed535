"""The version of this package. It imports nothing, so that every module can read it."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
