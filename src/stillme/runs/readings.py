"""Into what? What readers said of a run's pictures: before and after the edit, by group, and how far groups shift.

Groups are the portraits' labels, which someone assigned; what a reader says is how a picture appears, never who a
person is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stillme.audit.design import JudgeRecord, RolesRecord
from stillme.audit.grid import genders_of
from stillme.core import prompts
from stillme.core.rubric import (
    AXES,
    CANNOT_TELL,
    GENDER,
    RACE,
    REPEATS,
    TOWARD_REFERENCE,
    TOWARD_STEREOTYPE,
    words_of,
)
from stillme.core.types import Arm, Estimate
from stillme.estimates.directions import Group, Shift, Tallies, shifts
from stillme.estimates.permutation import LEVEL
from stillme.estimates.quantities import Exclusion
from stillme.estimates.rows import Edits, EditState, Flags
from stillme.runs.run import RecordedRun

NOT_READ = "not read"
REFUSED = "refused"
UNCLEAR = "unclear"
"""Before an edit: the readings of the control differ, or cannot tell."""
UNEDITED = "unedited"
_STEREOTYPED = "the stereotyped gender"
_CATEGORIES = (RACE, GENDER)
_EVERYONE = "everyone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """How often edits of portraits that are read one way are read another way."""

    editor: str
    arm: str
    judge: str
    axis: str
    category: str
    """Of the prompts; empty for all."""
    before: str
    """What the readings of the unedited portrait agree on."""
    after: str
    """What the edit is read as."""
    portraits: int
    """Those that are read as `before`."""
    edits: int
    """All edits of these portraits."""
    share: float
    """Of their edits that are read so."""
    control: float | None
    """The share in which a second reading of an unedited portrait says so where the first said `before`."""
    within_floor: bool | None
    """Whether the share may be the reader's own noise: the group's shift towards `after` is not significant (sign flips
    over portraits, Holm-corrected) or is not tested. None where the reading stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingCount:
    """What a reader said of the pictures of one group, refusals and doubts included."""

    judge: str
    axis: str
    group: str
    editor: str
    """Empty for unedited portraits."""
    arm: str
    pictures: str
    """`unedited` or `edited`."""
    read: str
    """What the reader said: a word, `cannot tell` or `refused`."""
    readings: int
    """How many readings said so."""
    share: float
    """Of this group's readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Everything that readers said of a run, as columns."""

    attribute: str
    races: tuple[str, ...]
    reference: str
    """The declared reference group; empty where none is."""
    tallies: tuple[Tallies, ...]
    groups: Mapping[str, tuple[Group, ...]]
    blocks: NDArray[np.intp]
    unread: int
    """Edits that have a picture and no reading, of it or of its control."""
    unedited: int
    """Edits that are still to be made."""
    transitions: tuple[Transition, ...]
    counts: tuple[ReadingCount, ...]
    moved: Mapping[tuple[str, str, str, str], tuple[int, ...]]
    """Editor, group, target and reader to rows of edits that are read so though no control reading was."""

    def shifts(self, confidence: float) -> list[Shift]:
        """Every group's shift towards every other, the pooled ones included."""
        return shifts(self.tallies, self.groups, self.blocks, confidence)

    def question(self, shift: Shift) -> str:
        """Which of `SHIFTS` a shift answers; empty for none."""
        if shift.axis == TOWARD_STEREOTYPE:
            return TOWARD_STEREOTYPE
        return TOWARD_REFERENCE if shift.pooled and shift.target == self.reference else ""

    def estimates(self, quantity: str, confidence: float) -> list[Estimate]:
        """One of `SHIFTS` as estimates: of all, and of every group."""
        factor = self.attribute if quantity == TOWARD_REFERENCE else ""
        asked = [
            shift
            for shift in self.shifts(confidence)
            if self.question(shift) == quantity
            or (quantity == TOWARD_REFERENCE and shift.axis == RACE and shift.target == self.reference)
        ]
        return [
            Estimate(
                quantity=quantity,
                editor=shift.editor,
                arm=shift.arm,
                judge=shift.judge,
                scope="all" if shift.pooled else "group",
                factor="" if shift.pooled else factor,
                group="" if shift.pooled else shift.group,
                outcome=shift.outcome,
                portraits=shift.units,
                edits=shift.edits,
                excluded={
                    reason: number
                    for reason, number in ((NOT_READ, self.unread), (Exclusion.EDIT_MISSING, self.unedited))
                    if number
                },
            )
            for shift in asked
        ]


def readings_of(run: RecordedRun) -> Readings | None:
    """What readers said; None where the audit has none."""
    return _Gathering(run).readings() if run.design.readers else None


Said = Mapping[tuple[str, int], Mapping[str, str]]
"""Picture and repeat to what is read on each axis."""
_Counts = Callable[[str, str, int], bool]
"""Whether an answer counts for a target, of a row's prompt."""


class _Gathering:
    """One pass over the rows of edits for each reader."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self.edits: Edits = run.results.edits
        self._attribute = run.design.read_attribute
        self._races: tuple[str, ...] = tuple(run.design.readers[0].spec.parameters["reads"])
        self._reference = run.design.analysis.reference.get(self._attribute, "")
        self._labels = np.array([portrait.attributes.get(self._attribute, "") for portrait in self.edits.portraits])
        self._unread = 0
        self._transitions: list[Transition] = []
        self._by_category: dict[str, list[Tallies]] = defaultdict(list)
        self._counts: list[ReadingCount] = []
        self._moved: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)

    def readings(self) -> Readings:
        tallies = [tally for reader in self._run.design.readers for tally in self._of_reader(reader)]
        _, blocks = np.unique(
            [portrait.block or f"/{portrait.id}" for portrait in self.edits.portraits], return_inverse=True
        )
        return Readings(
            attribute=self._attribute,
            races=self._races,
            reference=self._reference,
            tallies=tuple(tallies),
            groups=self._groups(),
            blocks=blocks.astype(np.intp),
            unread=self._unread,
            unedited=int((self.edits.state == EditState.MISSING).sum()),
            transitions=tuple(self._with_floor(self._groups(), blocks.astype(np.intp))),
            counts=tuple(self._counts),
            moved={key: tuple(rows) for key, rows in self._moved.items()},
        )

    def _with_floor(self, groups: Mapping[str, Sequence[Group]], blocks: NDArray[np.intp]) -> Iterator[Transition]:
        """The transitions, with those marked that no significant shift explains; every category is tested alone."""
        labels = {RACE: {name: name for name in self._races}, GENDER: dict[str, str]()}
        if self._genders:
            labels[GENDER] = {"masculine": self._genders.male, "feminine": self._genders.female}
        above = {
            (category, shift.editor, shift.arm, shift.judge, shift.axis, shift.group, shift.target)
            for category, tallies in self._by_category.items()
            for shift in shifts(tallies, groups, blocks, self._run.settings.confidence)
            if shift.holm is not None and shift.holm <= LEVEL and shift.after > shift.before
        }
        for cell in self._transitions:
            named = (cell.category, cell.editor, cell.arm, cell.judge, cell.axis)
            tested = (*named, labels[cell.axis].get(cell.before, ""), cell.after)
            yield cell if cell.within_floor is None else replace(cell, within_floor=tested not in above)

    @cached_property
    def _genders(self) -> RolesRecord | None:
        return self._run.design.roles or genders_of(self.edits.portraits)

    @cached_property
    def _controls(self) -> Mapping[tuple[int, int], list[str]]:
        """By editor and portrait: the unedited pictures."""
        edits, found = self.edits, defaultdict[tuple[int, int], list[str]](list)
        if Arm.NOOP in edits.arms:
            for row in self._rows(edits.arms.index(Arm.NOOP)):
                found[int(edits.editor[row]), int(edits.portrait[row])].append(edits.image[row])
            return found
        editors = {editor.spec.key: edits.editors.index(editor.name) for editor in self._run.design.editors}
        portraits = {portrait.id: place for place, portrait in enumerate(edits.portraits)}
        for editor, portrait, image in self._run.store.controls():
            if editor in editors and portrait in portraits:
                found[editors[editor], portraits[portrait]].append(image)
        return found

    def _rows(self, arm: int, editor: int | None = None) -> Iterator[int]:
        """Edits of one portrait that have a picture."""
        edits = self.edits
        alone = np.ones(len(edits), dtype=np.bool_) if edits.second is None else edits.second < 0
        of_editor = alone if editor is None else alone & (edits.editor == editor)
        places: list[int] = np.flatnonzero(of_editor & (edits.arm == arm)).tolist()
        yield from (row for row in places if edits.image[row])

    def _groups(self) -> dict[str, tuple[Group, ...]]:
        labels, reference = self._labels, self._reference
        race = [
            Group(name=name, members=labels == name, targets=tuple(other for other in self._races if other != name))
            for name in self._races
        ]
        if reference:
            others: Flags = (labels != reference) & (labels != "")
            race.append(Group(name=_not(reference), members=others, targets=(reference,), pooled=True))
            race.append(Group(name=reference, members=labels == reference, targets=(_not(reference),), pooled=True))
        everyone = np.ones(len(labels), dtype=np.bool_)
        gender: list[Group] = []
        if self._genders:
            shown = np.array([portrait.attributes.get(self._genders.gender, "") for portrait in self.edits.portraits])
            for label, target in ((self._genders.male, "feminine"), (self._genders.female, "masculine")):
                gender.append(Group(name=label, members=shown == label, targets=(target,)))
        stereotyped = Group(name=_EVERYONE, members=everyone, targets=(_STEREOTYPED,), pooled=True)
        return {RACE: tuple(race), GENDER: tuple(gender), TOWARD_STEREOTYPE: (stereotyped,)}

    def _of_reader(self, reader: JudgeRecord) -> Iterator[Tallies]:
        said = self._said(reader)
        self._count_controls(reader, said)
        for arm, name in enumerate(self.edits.arms):
            if name == Arm.NOOP:
                continue
            for editor in range(len(self.edits.editors)):
                rows = [row for row in self._rows(arm, editor) if self._is_read(row, editor, said)]
                for axis in _CATEGORIES:
                    part = _Part(self, reader.name, editor, arm, axis, said)
                    yield part.tallies(rows)
                    if axis == GENDER and (asked := [row for row in rows if self.stereotype(row)]):
                        yield part.stereotyped(asked)
                    for category, chosen in self._categories(rows):
                        self._transitions += part.transitions(chosen, category)
                        self._by_category[category].append(part.tallies(chosen))
                    self._counts += part.counts(rows)
                    if axis == RACE:
                        for row, label, target in part.moved(rows):
                            self._moved[self.edits.editors[editor], label, target, reader.name].append(row)

    def _categories(self, rows: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """All edits, then those of each category of prompts."""
        by_category: dict[str, list[int]] = {"": list(rows)}
        for row in rows:
            prompt = self.edits.prompts[int(self.edits.prompt[row])]
            by_category.setdefault(prompt.category, []).append(row)
        yield from by_category.items()

    def _said(self, reader: JudgeRecord) -> Said:
        said: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
        for image, repeat, axis, outcome, value, reason in self._run.store.readings(reader.spec.key):
            if axis not in AXES:
                continue
            words = words_of(axis, self._races)
            if outcome == "rated" and value is not None:
                said[image, repeat][axis] = words[int(value) - 1] if words else str(value)
            elif outcome == "abstained":
                said[image, repeat][axis] = CANNOT_TELL if reason == CANNOT_TELL else REFUSED
        return said

    def _is_read(self, row: int, editor: int, said: Said) -> bool:
        """Whether edit and control have readings; what lacks one is counted."""
        controls = self._controls.get((editor, int(self.edits.portrait[row])), [])
        read = (self.edits.image[row], 0) in said and any((image, 0) in said for image in controls)
        self._unread += not read
        return read

    def control_readings(self, editor: int, portrait: int, axis: str, said: Said) -> list[str]:
        """What was read of a portrait's unedited pictures."""
        images = self._controls.get((editor, portrait), [])
        answers = (said.get((image, repeat), {}).get(axis) for image in images for repeat in range(REPEATS))
        return [answer for answer in answers if answer]

    def _count_controls(self, reader: JudgeRecord, said: Said) -> None:
        for axis in _CATEGORIES:
            seen: dict[str, Counter[str]] = defaultdict(Counter)
            for editor, portrait in self._controls:
                seen[self.label(portrait, axis)].update(self.control_readings(editor, portrait, axis, said))
            self._counts += _counted(seen, judge=reader.name, axis=axis, editor="", arm="", pictures=UNEDITED)

    def label(self, portrait: int, axis: str) -> str:
        """The data set's label of what a reader says on an axis; empty where there is none."""
        name = self._attribute if axis == RACE else self._genders.gender if self._genders else ""
        return self.edits.portraits[portrait].attributes.get(name, "")

    def stereotype(self, row: int) -> str:
        """The word of a reader for the gender that the prompt's stereotype expects; empty for none."""
        expected = prompts.stereotyped_gender(self.edits.prompts[int(self.edits.prompt[row])])
        return {"male": "masculine", "female": "feminine"}.get(expected, "")

    def targets(self, axis: str) -> tuple[str, ...]:
        """Everything that a shift on the axis may be towards."""
        words = words_of(axis, self._races)
        return (*words, _not(self._reference)) if axis == RACE and self._reference else words


class _Part:
    """The edits of one editor in one arm, as one reader sees them on one axis."""

    def __init__(self, of: _Gathering, judge: str, editor: int, arm: int, axis: str, said: Said) -> None:
        self._of, self._said, self._axis = of, said, axis
        self._editor = editor
        self._named = {"editor": of.edits.editors[editor], "arm": of.edits.arms[arm], "judge": judge, "axis": axis}

    def tallies(self, rows: Sequence[int]) -> Tallies:
        """Sums of readings by portrait."""
        return self._tallied(rows, self._of.targets(self._axis), lambda answer, target, _: _means(answer, target))

    def stereotyped(self, rows: Sequence[int]) -> Tallies:
        """The same towards the gender that each prompt's stereotype expects."""
        tallies = self._tallied(rows, (_STEREOTYPED,), lambda answer, _, row: answer == self._of.stereotype(row))
        return replace(tallies, axis=TOWARD_STEREOTYPE)

    def _tallied(self, rows: Sequence[int], targets: tuple[str, ...], counts: _Counts) -> Tallies:
        people = len(self._of.edits.portraits)
        read, control_read = np.zeros((people, len(targets))), np.zeros((people, len(targets)))
        edits, unsure, controls, control_unsure = (np.zeros(people) for _ in range(4))
        for row in rows:
            portrait, answer = int(self._of.edits.portrait[row]), self._edit(row)
            before = self._control(portrait)
            edits[portrait] += 1
            unsure[portrait] += _is_unsure(answer)
            controls[portrait] = len(before)
            control_unsure[portrait] += sum(map(_is_unsure, before)) / len(before)
            for place, target in enumerate(targets):
                read[portrait, place] += counts(answer, target, row)
                control_read[portrait, place] += sum(counts(one, target, row) for one in before) / len(before)
        # What is asked of a control may depend on the prompt, so it was asked once for every edit.
        asked = np.divide(controls, edits, out=np.zeros(people), where=edits > 0)
        return Tallies(
            **self._named,
            targets=targets,
            read=read,
            edits=edits,
            unsure=unsure,
            control_read=control_read * asked[:, None],
            controls=controls,
            control_unsure=control_unsure * asked,
        )

    def transitions(self, rows: Sequence[int], category: str) -> Iterator[Transition]:
        """From what the control's readings agree on to what the edits are read as."""
        floor = self._floor()
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        people: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            portrait = int(self._of.edits.portrait[row])
            before = _agreed(self._control(portrait))
            seen[before][self._edit(row)] += 1
            people[before].add(portrait)
        for before in sorted(seen):
            total, own = seen[before].total(), floor.get(before, Counter())
            for after in sorted(seen[before]):
                yield Transition(
                    **self._named,
                    category=category,
                    before=before,
                    after=after,
                    portraits=len(people[before]),
                    edits=total,
                    share=seen[before][after] / total,
                    control=own[after] / own.total() if own else None,
                    within_floor=None if before == after else True,
                )

    def _floor(self) -> dict[str, Counter[str]]:
        """What one reading of an unedited picture says where another one of the same said something."""
        pairs: dict[str, Counter[str]] = defaultdict(Counter)
        for portrait in range(len(self._of.edits.portraits)):
            before = self._control(portrait)
            for place, first in enumerate(before):
                pairs[first].update(before[:place] + before[place + 1 :])
        return pairs

    def counts(self, rows: Sequence[int]) -> Iterator[ReadingCount]:
        """What was read of the edits of each group."""
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            seen[self._of.label(int(self._of.edits.portrait[row]), self._axis)][self._edit(row)] += 1
        yield from _counted(seen, **self._named, pictures="edited")

    def moved(self, rows: Sequence[int]) -> Iterator[tuple[int, str, str]]:
        """Edits that are read as something that no reading of the unedited portrait says, with the portrait's label."""
        for row in rows:
            portrait = int(self._of.edits.portrait[row])
            answer, before = self._edit(row), self._control(portrait)
            if not _is_unsure(answer) and answer not in before:
                yield row, self._of.label(portrait, self._axis), answer

    def _edit(self, row: int) -> str:
        return self._said[self._of.edits.image[row], 0][self._axis]

    def _control(self, portrait: int) -> list[str]:
        return self._of.control_readings(self._editor, portrait, self._axis, self._said)


def _not(group: str) -> str:
    return f"not {group}"


def _means(answer: str, target: str) -> bool:
    return answer == target or (target.startswith("not ") and not _is_unsure(answer) and target != _not(answer))


def _is_unsure(answer: str) -> bool:
    return answer in (CANNOT_TELL, REFUSED)


def _agreed(answers: Sequence[str]) -> str:
    return answers[0] if len(set(answers)) == 1 and not _is_unsure(answers[0]) else UNCLEAR


def _counted(seen: Mapping[str, Counter[str]], **named: str) -> Iterator[ReadingCount]:
    for group in sorted(seen):
        total = seen[group].total()
        for read in sorted(seen[group]):
            yield ReadingCount(
                **named, group=group, read=read, readings=seen[group][read], share=seen[group][read] / total
            )
