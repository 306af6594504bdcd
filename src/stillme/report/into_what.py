"""Into what? What people appear to be before and after the edit, as flows from group to group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from stillme.core.rubric import CANNOT_TELL, RACE, TOWARD_REFERENCE, TOWARD_STEREOTYPE
from stillme.core.types import Interval
from stillme.estimates import numbers
from stillme.estimates.directions import Shift
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.report.gallery import Picture
from stillme.report.svg import WIDTH, px, svg
from stillme.runs.readings import REFUSED, UNCLEAR, Readings, Transition

_LEFT, _RIGHT, _NODE = 120, WIDTH - 120, 10
_HEIGHT, _SPACE, _TOP = 30.0, 9.0, 26.0
_EXAMPLES = 3


def into_what(data: ReportData) -> dict[str, Any] | None:
    """The section; None where no reader was asked."""
    readings = data.readings
    if readings is None:
        return None
    shifts = readings.shifts(data.settings.confidence)
    asked = [(readings.question(shift), shift) for shift in shifts]
    examples = _examples(data, readings, shifts)
    return {
        "words": numbers.factor_name(readings.attribute),
        "reference": readings.reference,
        "sentences": [sentence for _, sentence in findings(data)],
        "toward_reference": [_toward(shift, shifts) for name, shift in asked if name == TOWARD_REFERENCE],
        "toward_stereotype": [_toward(shift, shifts) for name, shift in asked if name == TOWARD_STEREOTYPE],
        "flows": list(_flows(readings)),
        "example_of": examples[0],
        "examples": examples[1],
        "unread": readings.unread,
        "unsure": list(_unsure(readings)),
    }


def findings(data: ReportData) -> Iterator[tuple[float, str]]:
    """Each editor's shift towards the reference group that is larger than matters: its lower limit and a sentence."""
    if data.readings is None:
        return
    shifts = data.readings.shifts(data.settings.confidence)
    for shift in shifts:
        if (
            data.readings.question(shift) != TOWARD_REFERENCE
            or shift.arm != data.main_arm
            or shift.word != "larger than matters"
            or not isinstance(shift.outcome, Interval)
            or shift.outcome.low <= 0
        ):
            continue
        groups = [group for group in data.readings.races if group != shift.target]
        who = " and ".join(groups) if len(groups) < 3 else f"non-{shift.target}"
        back = _back(shift, shifts)
        other_way = _points(back.outcome) if back and isinstance(back.outcome, Interval) else "not estimable"
        sentence = (
            f"{shift.editor}: {numbers.percent(shift.after, 0)} of edits of {who} portraits appear {shift.target} to "
            f"{shift.judge}, {numbers.percent(shift.before, 0)} before the edit ({_points(shift.outcome)}); "
            f"the other way {other_way}."
        )
        yield shift.outcome.low, sentence


def _back(shift: Shift, shifts: Sequence[Shift]) -> Shift | None:
    """The flow the other way: from the target's own group to any other."""
    same = (shift.editor, shift.arm, shift.judge, shift.axis)
    for other in shifts:
        if (other.editor, other.arm, other.judge, other.axis) == same and other.pooled and other.group == shift.target:
            return other
    return None


def _toward(shift: Shift, shifts: Sequence[Shift]) -> tuple[Shift, str, str]:
    """The shift, its size in points, and the size of the shift back."""
    back = _back(shift, shifts)
    size = _points(shift.outcome) if isinstance(shift.outcome, Interval) else shift.outcome.reason
    return shift, size, _points(back.outcome) if back and isinstance(back.outcome, Interval) else ""


def _points(outcome: Interval) -> str:
    low, high = (numbers.decimal(100 * limit, 1, plus=True) for limit in (outcome.low, outcome.high))
    return f"{numbers.points(outcome.value, plus=True)}, {low} to {high}"


def _examples(data: ReportData, readings: Readings, shifts: Sequence[Shift]) -> tuple[str, tuple[Picture, ...]]:
    """Edits of the group with the largest shift that matters, of different people."""
    matter = [
        shift
        for shift in shifts
        if shift.axis == RACE and not shift.pooled and shift.word == "larger than matters" and _value(shift) > 0
    ]
    if not matter or data.redact == "omit":
        return "", ()
    largest = max(matter, key=_value)
    people: dict[int, int] = {}
    for row in readings.moved.get((largest.editor, largest.group, largest.target, largest.judge), ()):
        if data.edits.arms[int(data.edits.arm[row])] == largest.arm:
            people.setdefault(int(data.edits.portrait[row]), row)
    shown = [gallery.picture(data, row) for row in list(people.values())[:_EXAMPLES]]
    title = (
        f"{largest.editor}: portraits labelled {largest.group} whose edit appears {largest.target} to {largest.judge}, "
        "and whose unedited picture did not"
    )
    return (title, tuple(shown)) if shown else ("", ())


def _value(shift: Shift) -> float:
    return shift.outcome.value if isinstance(shift.outcome, Interval) else 0.0


def _unsure(readings: Readings) -> Iterator[tuple[str, str, str, str, str]]:
    """Readers that could not or would not say, by group, where any did."""
    shares: dict[tuple[str, str, str], dict[str, float]] = {}
    for count in readings.counts:
        if count.axis == RACE:
            which = count.pictures if not count.editor else f"{count.editor} ({count.arm})"
            shares.setdefault((count.judge, count.group or "no label", which), {})[count.read] = count.share
    for (judge, group, which), read in shares.items():
        doubt, refused = (read.get(word, 0.0) for word in (CANNOT_TELL, REFUSED))
        if doubt or refused:
            yield judge, group, which, numbers.percent(doubt), numbers.percent(refused)


def _flows(readings: Readings) -> Iterator[tuple[str, tuple[tuple[str, str, Markup], ...]]]:
    cells = [cell for cell in readings.transitions if cell.axis == RACE and not cell.category]
    for judge in dict.fromkeys(cell.judge for cell in cells):
        panels = dict.fromkeys((cell.editor, cell.arm) for cell in cells if cell.judge == judge)
        yield (
            judge,
            tuple(
                (
                    editor,
                    arm,
                    _draw(
                        editor,
                        readings.races,
                        [cell for cell in cells if (cell.judge, cell.editor, cell.arm) == (judge, editor, arm)],
                    ),
                )
                for editor, arm in panels
            ),
        )


def _draw(editor: str, races: Sequence[str], cells: Sequence[Transition]) -> Markup:
    """Every group is as high as every other; the width of a flow is its share of the group's edits."""
    left = [name for name in (*races, UNCLEAR) if any(cell.before == name for cell in cells)]
    words = dict.fromkeys((*races, *(cell.after for cell in cells)))
    right = [name for name in words if any(cell.after == name for cell in cells)]
    arriving = {name: sum(cell.share for cell in cells if cell.after == name) for name in right}
    starts = _places([1.0] * len(left))
    ends = _places([arriving[name] for name in right])
    leaving, landing = dict(zip(left, starts, strict=True)), dict(zip(right, ends, strict=True))
    bands: dict[str, list[Markup]] = {"stays": [], "floor": [], "moves": []}
    for cell in sorted(cells, key=lambda cell: (left.index(cell.before), right.index(cell.after))):
        top, bottom, width = leaving[cell.before], landing[cell.after], cell.share * _HEIGHT
        leaving[cell.before] += width
        landing[cell.after] += width
        kind = "stays" if cell.before == cell.after else "floor" if cell.within_floor else "moves"
        bands[kind].append(_band(kind, cell, top, bottom, width))
    nodes = [
        *(_node(name, _LEFT - _NODE, top, _HEIGHT, anchor="end") for name, top in zip(left, starts, strict=True)),
        *(
            _node(name, _RIGHT, top, arriving[name] * _HEIGHT, anchor="start")
            for name, top in zip(right, ends, strict=True)
        ),
    ]
    heads = [
        Markup('<text class="head" x="{}" y="12" text-anchor="{}">{}</text>').format(x, anchor, text)
        for x, anchor, text in ((_LEFT, "end", "before appears"), (_RIGHT, "start", "after appears"))
    ]
    height = max(starts[-1] + _HEIGHT, ends[-1] + arriving[right[-1]] * _HEIGHT) + 6
    changes = [cell for cell in cells if cell.before != cell.after and not cell.within_floor]
    alt = f"{editor}: " + (
        "; ".join(f"{cell.before} to {cell.after} {numbers.percent(cell.share)}" for cell in changes)
        or "no flow above the floor"
    )
    return svg("forest flow", (WIDTH, height), alt, [*itertools.chain(*bands.values()), *nodes, *heads])


def _places(shares: Sequence[float]) -> list[float]:
    """Where each node begins, one below the other."""
    tops: list[float] = []
    top = _TOP
    for share in shares:
        tops.append(top)
        top += share * _HEIGHT + _SPACE
    return tops


def _node(name: str, x: float, top: float, height: float, *, anchor: str) -> Markup:
    beside = x - 6 if anchor == "end" else x + _NODE + 6
    return Markup(
        '<rect class="node" x="{}" y="{}" width="{}" height="{}"/><text x="{}" y="{}" text-anchor="{}">{}</text>'
    ).format(x, px(top), _NODE, px(max(height, 1.0)), beside, px(top + height / 2 + 4), anchor, name)


def _band(kind: str, cell: Transition, top: float, bottom: float, width: float) -> Markup:
    middle = (_LEFT + _RIGHT) / 2
    control = "" if cell.control is None else f"; unedited portraits read twice: {numbers.percent(cell.control)}"
    title = f"{cell.before} → {cell.after}: {numbers.percent(cell.share)} of {cell.edits:,} edits{control}"
    path = (
        f"M{_LEFT} {px(top)}C{middle} {px(top)} {middle} {px(bottom)} {_RIGHT} {px(bottom)}"
        f"V{px(bottom + width)}C{middle} {px(bottom + width)} {middle} {px(top + width)} {_LEFT} {px(top + width)}Z"
    )
    return Markup('<path class="{}" d="{}"><title>{}</title></path>').format(kind, path, title)
