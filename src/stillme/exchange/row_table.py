"""Rows of scores as codes and numbers: read once, a few bytes for each score."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillme import rubric
from stillme.exchange.columns import Layout, Unreadable
from stillme.exchange.table_files import Row
from stillme.types import Abstained, Arm, Failed, ImageFile, Portrait, Prompt, Rated, Rating

_PROMPT_COLUMNS = ("prompt_text", "category", "subcategory")
MORE_COLUMNS = ("judge", "block", "state", *_PROMPT_COLUMNS)
"""Columns of rows that need no audit, beside those of judgements: `state` says what became of the edit."""
STATES = ("edited", "refused", "failed")
RATED, ABSTAINED, FAILED = range(3)

_DEFAULTS = {"prompt": "all", "editor": "editor", "arm": "baseline", "seed": "0", "judge": "judge", "state": "edited"}
_EDITED = STATES.index("edited")

Identity = tuple[str, str, str, str, int]
"""Editor, portrait, prompt, arm and seed of an edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """What the user says about the rows."""

    groups: tuple[str, ...]
    """Columns of the portraits' attributes, whose groups are compared."""
    people: tuple[str, ...] = ()
    """The judges that are people."""
    reference: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    title: str = ""
    confidence: float = 0.95
    seed: int = 0


class RowTable:
    """The rows as codes and numbers."""

    def __init__(self, layout: Layout, asked: RowsAsked) -> None:
        self._layout, self._asked = layout, asked
        self.portraits: dict[str, Portrait] = {}
        self.prompts: dict[str, Prompt] = {}
        self.editors: dict[str, int] = {}
        self.arms: dict[str, int] = {}
        self.judges: dict[str, set[str]] = {}
        """By name: the axes that the judge answers."""
        self.raters: dict[str, dict[str, int]] = {}
        """By judge: its raters, or its numbered answers."""
        self.requests: dict[Identity, int] = {}
        self.states = array("b")
        self.axes = tuple(rubric.load().axes)
        self._axis_codes = {axis: code for code, axis in enumerate(self.axes)}
        self._judge_codes: dict[str, int] = {}
        # One entry a score.
        self.edits, self.by, self.rater = array("i"), array("h"), array("i")
        self.axis, self.outcome, self.scores = array("h"), array("b"), array("d")
        self._seen: set[int] = set()
        self._described: dict[str, dict[str, str]] = {}
        """By prompt: what its first row says about it."""
        self._prompts_described = any(layout.has(column) for column in _PROMPT_COLUMNS)

    def add(self, row: Row) -> None:
        """Take a row in, or raise `Unreadable`."""
        layout = self._layout
        cells = {name: layout.cell(row, name) or default for name, default in _DEFAULTS.items()}
        portrait = self._portrait(row)
        self._prompt(cells["prompt"], row)
        if cells["arm"] not in tuple(Arm):
            raise Unreadable(f"no arm {cells['arm']!r}; arms are {', '.join(Arm)}. Rename it in the file")
        if not cells["seed"].lstrip("-").isdecimal():
            raise Unreadable(f"seed = {cells['seed']!r} is not a whole number")
        if cells["state"] not in STATES:
            raise Unreadable(f"state = {cells['state']!r}; write {', '.join(STATES)}")
        self.editors.setdefault(cells["editor"], len(self.editors))
        self.arms.setdefault(cells["arm"], len(self.arms))
        identity = (cells["editor"], portrait, cells["prompt"], cells["arm"], int(cells["seed"]))
        edit = self.requests.setdefault(identity, len(self.requests))
        state = STATES.index(cells["state"])
        if edit == len(self.states):
            self.states.append(state)
        elif self.states[edit] != state:
            raise Unreadable(f"this edit is {cells['state']} here and {STATES[self.states[edit]]} in an earlier row")
        if state == _EDITED:
            self._rate(row, edit, cells["judge"])
        elif layout.has_scores(row):
            raise Unreadable(
                f"the edit is {cells['state']} and has scores; there is no picture that they could be about"
            )

    def _rate(self, row: Row, edit: int, judge: str) -> None:
        layout = self._layout
        code = self._judge_codes.setdefault(judge, len(self._judge_codes))
        axes, raters = self.judges.setdefault(judge, set()), self.raters.setdefault(judge, {})
        name = layout.said_by(row)
        if raters and ("" in raters) == bool(name):
            raise Unreadable(
                f"some rows of {judge!r} name a rater or epoch and others do not; fill it in for all of them"
            )
        rater = raters.setdefault(name, len(raters))
        for axis, rating in layout.ratings(row):
            place = self._axis_codes[axis]
            answer = hash((edit, code, rater, place))
            if answer in self._seen:
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                raise Unreadable(f"{axis} of this edit by {judge!r} is in an earlier row; {how}")
            self._seen.add(answer)
            axes.add(axis)
            self.edits.append(edit)
            self.by.append(code)
            self.rater.append(rater)
            self.axis.append(place)
            self.outcome.append(_outcome(rating))
            self.scores.append(rating.score if isinstance(rating, Rated) else float("nan"))

    @property
    def unlabelled(self) -> dict[str, int]:
        """How many portraits have no group, by the columns that have such."""
        counts = {
            group: sum(group not in portrait.attributes for portrait in self.portraits.values())
            for group in self._asked.groups
        }
        return {group: count for group, count in counts.items() if count}

    @property
    def has_states(self) -> bool:
        """Whether rows say what became of an edit; otherwise only edits that were made are in the file."""
        return self._layout.has("state") or "state" in self._layout.fixed

    @property
    def has_raters(self) -> bool:
        """Whether answers are told apart by who gave them."""
        return self._layout.has("rater")

    def rating(self, entry: int) -> Rating:
        """One entry as it is kept in the ledger."""
        outcome = self.outcome[entry]
        if outcome == RATED:
            return Rated(score=self.scores[entry], evidence="")
        if outcome == ABSTAINED:
            return Abstained(reason="no reason given")
        return Failed(error="no reason given", retryable=False)

    def _portrait(self, row: Row) -> str:
        layout = self._layout
        name = layout.cell(row, "portrait")
        if not name:
            raise Unreadable("no portrait; name its column with --map portrait=COLUMN")
        labels = {group: value for group in self._asked.groups if (value := layout.cell(row, group))}
        known = self.portraits.get(name)
        if known is None:
            self.portraits[name] = Portrait(
                id=name,
                image=ImageFile(path=Path(), sha256=""),
                attributes=labels,
                label_origin="given with the rows",
                licence="not stated",
                block=layout.cell(row, "block"),
            )
        else:
            before = {**known.attributes, "block": known.block}
            now = {**labels, "block": layout.cell(row, "block")}
            _same(f"portrait {name!r}", before, now, "a portrait belongs to one group and one block")
        return name

    def _prompt(self, name: str, row: Row) -> None:
        if name in self.prompts and not self._prompts_described:
            return
        cells = {column: self._layout.cell(row, column) for column in _PROMPT_COLUMNS}
        if name not in self.prompts:
            self.prompts[name] = Prompt(
                id=name,
                text=cells["prompt_text"] or name,
                category=cells["category"] or "rows",
                subcategory=cells["subcategory"] or "rows",
            )
            self._described[name] = cells
        _same(f"prompt {name!r}", self._described[name], cells, "give another prompt another name")


def _same(what: str, before: Mapping[str, str], now: Mapping[str, str], why: str) -> None:
    for column in (*before, *now):
        was, now_is = before.get(column, ""), now.get(column, "")
        if was != now_is:
            raise Unreadable(f"{what} has {column} {now_is!r}, and {was!r} in an earlier row; {why}")


def _outcome(rating: Rating) -> int:
    match rating:
        case Rated():
            return RATED
        case Abstained():
            return ABSTAINED
        case _:
            return FAILED
