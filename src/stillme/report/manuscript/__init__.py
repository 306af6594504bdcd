"""The paper's figures, and every forest plot, as files for a manuscript. Needs the extra `figures`."""

from stillme.report.manuscript.writing import FORMATS, Format, Written, write_figures

__all__ = ["FORMATS", "Format", "Written", "write_figures"]
