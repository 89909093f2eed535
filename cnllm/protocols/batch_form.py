"""Describe the batch interface of a server of a protocol, beyond the fields that the flags of `batch` name."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["BatchForm"]


class BatchForm(Struct, frozen=True):
    """The words of a protocol's own batch interface, which its SDKs expect.

    `job` and `page` are fixed keys of a job and of a page of the list. `prefix` begins the id of a job. `iso_times`:
    times are RFC 3339 texts, not seconds. `served` and `refused` are the words for what became of a row. `total`,
    `remaining` and `results_url` are paths in a job.
    """

    job: dict[str, Any] = {}
    page: dict[str, Any] = {}
    prefix: str = "batch_"
    iso_times: bool = False
    served: str | None = None
    refused: str | None = None
    total: str | None = None
    remaining: str | None = None
    results_url: str | None = None
