"""Scores made elsewhere become rows of a run, and get the same statistics as any other judge's."""

from stillme.importing.columns import Choice
from stillme.importing.judgements import Found, InvalidJudgements, import_judgements

__all__ = ["Choice", "Found", "InvalidJudgements", "import_judgements"]
