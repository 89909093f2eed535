"""Compare calls of the log with a vendor's bill.

`exports.toml` describes the exports by their columns, and nothing in the code knows a vendor. A bill is read as a
stream: its rows are summed at once, and no column that an export does not name is kept.
"""

from __future__ import annotations

from cnllm.bills.compare import BillCause, BillReport, BillRow, compare_bill
from cnllm.bills.exports import Export, built_in_exports, read_exports

__all__ = ["BillCause", "BillReport", "BillRow", "Export", "built_in_exports", "compare_bill", "read_exports"]
