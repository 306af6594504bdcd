"""The paper's tables by number, for the user's own audit; every cell with its interval and its n.

Rows are the audit's own editors and the levels of its own first factor. A cell that cannot be estimated says why.
"""

from stillme.findings.tables.paper.making import NUMBERS, Chosen, make_tables
from stillme.findings.tables.paper.table import PaperTable, as_csv, as_latex, as_markdown, write

__all__ = ["NUMBERS", "Chosen", "PaperTable", "as_csv", "as_latex", "as_markdown", "make_tables", "write"]
