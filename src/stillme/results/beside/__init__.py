"""A run's numbers beside those that the paper prints.

Only edits by the paper's own prompts count. The paper gives no intervals, so a difference carries the run's uncertainty
alone, and nothing here says whether a finding was replicated.
"""

from stillme.results.beside.comparing import beside_paper
from stillme.results.beside.records import Beside, PaperComparison, TestBeside, published_text

__all__ = ["Beside", "PaperComparison", "TestBeside", "beside_paper", "published_text"]
