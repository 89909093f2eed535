"""Rows of a batch in, columns of answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cnllm.batch.shared import COUNTS

__all__ = ["add_columns", "as_table", "read_rows"]

_DIGITS = Decimal("1e-18")


def as_table(batch: Any) -> Any:
    """Return a batch of any of Ray's formats as a pyarrow table."""
    import pyarrow
    from ray.data.block import BlockAccessor

    if isinstance(batch, pyarrow.Table):
        return batch
    return BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()


def read_rows(table: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a table with these of its columns. Keys of messages that a row does not have are left out."""
    rows: list[dict[str, Any]] = table.select([name for name in names if name in table.column_names]).to_pylist()
    for row in rows:
        if "messages" in row:
            row["messages"] = _plain(row["messages"])
    return rows


def _plain(value: Any) -> Any:
    """Return lists for NumPy's arrays, and objects without the keys that Arrow adds so that all have the same."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


def add_columns(table: Any, results: Sequence[Mapping[str, Any]], prefix: str) -> Any:
    """Return the table with the columns of the results."""
    import pyarrow

    for name, kind in _kinds().items():
        values = [_exact(result[name]) if name == "cost" else result[name] for result in results]
        table = table.append_column(prefix + name, pyarrow.array(values, kind))
    return table


def _exact(cost: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if cost is None else {**cost, "amount": Decimal(str(cost["amount"])).quantize(_DIGITS)}


def _kinds() -> dict[str, Any]:
    """Return the type of each column: the same in each block, whatever its rows hold."""
    import pyarrow

    text, count = pyarrow.string(), pyarrow.int64()
    return {
        "text": text,
        "reasoning": text,
        "finish": text,
        "usage": pyarrow.struct([(name, count) for name in COUNTS]),
        "cost": pyarrow.struct([("amount", pyarrow.decimal128(38, 18)), ("currency", text)]),
        "error": pyarrow.struct([("type", text), ("message", text), ("status", count), ("retryable", pyarrow.bool_())]),
    }
