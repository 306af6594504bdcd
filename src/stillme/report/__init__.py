"""The report: one self-contained page."""

from stillme.report.data import Description, ReportData
from stillme.report.writing import render, write

__all__ = ["Description", "ReportData", "render", "write"]
