"""A run's rows for other programs, and scores made elsewhere as rows of a run."""

from stillme.findings.exchange.columns import ColumnMapping, InvalidJudgements
from stillme.findings.exchange.row_table import RowsAsked
from stillme.findings.exchange.rows import KINDS, RowsSummary, export_run, import_rows, write_rows

__all__ = [
    "KINDS",
    "ColumnMapping",
    "InvalidJudgements",
    "RowsAsked",
    "RowsSummary",
    "export_run",
    "import_rows",
    "write_rows",
]
