"""A run's rows as tables that other programs read, with a codebook."""

from stillme.exports.rows import Column, Table, codebook, rows_of, tables_in
from stillme.exports.writing import KINDS, export_run, whole, write_rows

__all__ = ["KINDS", "Column", "Table", "codebook", "export_run", "rows_of", "tables_in", "whole", "write_rows"]
