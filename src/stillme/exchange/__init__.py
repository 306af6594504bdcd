"""A run's rows for other programs, and scores made elsewhere as rows of a run."""

from stillme.exchange.columns import Choice
from stillme.exchange.exporting import KINDS, export_run, write_rows
from stillme.exchange.importing import Found, InvalidJudgements, import_judgements

__all__ = [
    "KINDS",
    "Choice",
    "Found",
    "InvalidJudgements",
    "export_run",
    "import_judgements",
    "write_rows",
]
