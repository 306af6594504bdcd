"""From a number to the rows behind it: the page's own addresses."""

from __future__ import annotations

from urllib.parse import urlencode

from stillme.types import Estimate

ROWS = "#edits?"


def rows_of(found: Estimate) -> str:
    """The rows that an estimate was computed from; between groups, all groups side by side."""
    asked = _who(found.quantity, found.judge, found.editor, found.arm)
    if found.scope == "group":
        asked += [(f"label.{found.factor}", found.group)]
    elif found.scope in ("disparity", "contrast"):
        asked += [("by", found.factor)]
    return ROWS + urlencode(asked)


def cell_of(found: Estimate, *, prompt: str, group: str) -> str:
    """The rows of one group and one instruction."""
    asked = _who(found.quantity, found.judge, found.editor, found.arm)
    return ROWS + urlencode([*asked, ("prompt", prompt), (f"label.{found.factor}", group)])


def _who(quantity: str, judge: str, editor: str, arm: str) -> list[tuple[str, str]]:
    asked = [("view", "table"), ("quantity", quantity), ("judge", judge), ("editor", editor), ("arm", arm)]
    return [(name, value) for name, value in asked if value]
