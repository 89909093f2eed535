"""The endpoint that all adapters share."""

from endpoint import served

__all__ = ["served"]
