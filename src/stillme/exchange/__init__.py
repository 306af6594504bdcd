"""A run's rows for other programs, and scores made elsewhere as rows of a run."""

from stillme.exchange.columns import Choice
from stillme.exchange.exporting import KINDS, export_run, whole, write_rows
from stillme.exchange.importing import Found, InvalidJudgements, import_judgements
from stillme.exchange.rows import Column, Table, codebook, rows_of, tables_in

__all__ = [
    "KINDS",
    "Choice",
    "Column",
    "Found",
    "InvalidJudgements",
    "Table",
    "codebook",
    "export_run",
    "import_judgements",
    "rows_of",
    "tables_in",
    "whole",
    "write_rows",
]
