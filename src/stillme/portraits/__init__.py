"""Source portraits: a folder with a CSV of attributes, or the embedded synthetic set."""

from stillme.portraits.folder import TABLE, load

__all__ = ["TABLE", "load"]
