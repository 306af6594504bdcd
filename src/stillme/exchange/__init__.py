"""A run's rows for other programs, and scores made elsewhere as rows of a run."""

from stillme.exchange.columns import ColumnMapping, InvalidJudgements
from stillme.exchange.exporting import KINDS, export_run, write_rows
from stillme.exchange.importing import ImportSummary, import_judgements

__all__ = [
    "KINDS",
    "ColumnMapping",
    "ImportSummary",
    "InvalidJudgements",
    "export_run",
    "import_judgements",
    "write_rows",
]
