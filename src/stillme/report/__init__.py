"""The page that people look at."""

from stillme.report.data import Described, ReportData
from stillme.report.writing import render, write

__all__ = ["Described", "ReportData", "render", "write"]
