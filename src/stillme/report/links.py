"""Addresses inside the page: from a number to the rows behind it."""

from __future__ import annotations

from urllib.parse import urlencode

from stillme.core.types import Estimate

ROWS = "#edits?"


def rows_of(estimate: Estimate) -> str:
    """The rows that an estimate was computed from; between groups, all groups side by side."""
    query = _query(estimate)
    if estimate.scope == "group":
        query += [(f"label.{estimate.factor}", estimate.group)]
    elif estimate.scope in ("disparity", "contrast"):
        query += [("by", estimate.factor)]
    return ROWS + urlencode(query)


def cell_of(estimate: Estimate, *, prompt: str, group: str) -> str:
    """The rows of one group and one instruction."""
    return ROWS + urlencode([*_query(estimate), ("prompt", prompt), (f"label.{estimate.factor}", group)])


def _query(estimate: Estimate) -> list[tuple[str, str]]:
    names = ("quantity", "judge", "editor", "arm")
    named = ((name, value) for name in names if (value := getattr(estimate, name)))
    return [("view", "table"), *named]
