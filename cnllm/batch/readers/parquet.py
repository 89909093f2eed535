"""Read Parquet, with the extra `parquet`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cnllm.batch.readers.table import check_columns, columns_content
from cnllm.batch.rows import Content, Row, row_key
from cnllm.batch.template import Template
from cnllm.errors import CnllmError

__all__ = ["ParquetReader"]

_ROWS = 4096


class ParquetReader:
    """A Parquet file. A row is named by its position, counted from 1."""

    def __init__(self, path: str, template: Template | None) -> None:
        if path == "-":
            raise CnllmError("Parquet cannot be read from a pipe", hint="save it as a file, and name the file")
        try:
            from pyarrow import ArrowInvalid
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            from cnllm.config.distribution import install_command

            raise CnllmError(
                f"{path}: pyarrow reads Parquet, and is not installed", hint=install_command("parquet")
            ) from error
        self.name = path
        self._path = path
        self._template = template
        try:
            names = list(ParquetFile(path).schema_arrow.names)
        except (OSError, ArrowInvalid) as error:
            raise CnllmError(f"{path}: {error}", hint="name a Parquet file that can be read") from error
        check_columns(path, tuple(names), template)
        self.columns: tuple[str, ...] | None = tuple(names)
        needed = {"id", "prompt", "messages"} if template is None else {"id", *template.columns}
        self._needed = [name for name in names if name in needed]

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the start."""
        from pyarrow.parquet import ParquetFile

        number = 0
        with ParquetFile(self._path) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=self._needed):
                for columns in batch.to_pylist():
                    number += 1
                    yield Row(number, row_key(msgspec.json.encode(columns, enc_hook=str)), columns)

    def content(self, row: Row) -> Content:
        """Return the request of a row. Raises `RowFault`."""
        columns: dict[str, Any] = row.data
        return columns_content(columns, self._template)

    def keep(self) -> None:
        """Do nothing: a file can be read again."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def count(self) -> int | None:
        """Return the number of rows."""
        from pyarrow.parquet import ParquetFile

        with ParquetFile(self._path) as file:
            return int(file.metadata.num_rows)
