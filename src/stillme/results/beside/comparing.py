"""Find what answers each number of the paper."""

from __future__ import annotations

from collections.abc import Iterator

from stillme.design import EditorRecord
from stillme.estimates import Scores, adherence
from stillme.estimates.agreement import against_people
from stillme.estimates.rows import ALL
from stillme.paper import Published, published, setting
from stillme.results.beside.design import design_differences
from stillme.results.beside.part import PEOPLE, axis_of, with_prompts
from stillme.results.beside.records import Beside, PaperComparison, TestBeside
from stillme.results.beside.significance import beside_test
from stillme.results.run import Run
from stillme.types import Arm, Interval, NotEstimable

ADHERENCE = "adherence"


def beside_paper(run: Run, *, judge: str = "", factor: str = "") -> PaperComparison:
    """Every number of the paper with the run's; `judge` and `factor` replace those that stillme would choose."""
    yours = _Yours(run, judge, factor)
    numbers: list[Beside] = []
    tests: list[TestBeside] = []
    left_out: list[tuple[Published, str]] = []
    for number in published():
        if reason := number.unanswered or yours.missing(number):
            left_out.append((number, reason))
        elif number.unit in ("H", "p"):
            tests.append(yours.test(number))
        else:
            numbers += yours.answers(number)
    differences = design_differences(run, yours.editors, numbers) if numbers or tests else ()
    return PaperComparison(
        numbers=tuple(numbers), tests=tuple(tests), differences=tuple(differences), left_out=tuple(left_out)
    )


class _Yours:
    """What the run has to say."""

    def __init__(self, run: Run, judge: str, factor: str) -> None:
        self._run = run
        # A planted editor does what its parameters say, so the paper's numbers are no measure for it.
        self.editors = [editor for editor in run.design.editors if editor.answers is None]
        names = [editor.name for editor in self.editors]
        self._diagnostic = with_prompts(run, names, "diagnostic", judge=judge, factor=factor)
        self._roles = with_prompts(run, names, "roles", judge=judge, factor=factor)

    def missing(self, number: Published) -> str:
        """Why the run has nothing for this number; empty where it has."""
        part = self._roles if number.quantity == ADHERENCE else self._diagnostic
        if not self.editors:
            return "every editor of yours plants known changes"
        if not len(part.edits):
            return "your audit has none of the paper's prompts for this"
        if not self._editors(number):
            return f"no editor of yours is {number.editor}"
        if number.group and number.group not in part.levels:
            return f"no group of your portraits is called {number.group}"
        for arm in (Arm.BASELINE, Arm.FEATURE) if number.sample == "mitigation" else (Arm.BASELINE,):
            if not part.has(arm):
                return f"the audit has no edit of the {arm} arm"
        if number.quantity == ADHERENCE:
            return "" if self._role_scores() else "no judge of this audit rates role edits"
        by_people = number.judge != "models" or number.sample == "rated by people"
        if by_people and part.people(number.quantity) is None:
            return "no person has rated edits of the paper's prompts on this axis"
        if number.judge != PEOPLE and part.model(number.quantity) is None:
            return f"no judge of this audit rates {axis_of(number.quantity)}"
        return ""

    def answers(self, number: Published) -> Iterator[Beside]:
        """The run's number, for every editor that the paper's is about."""
        if number.quantity == ADHERENCE:
            yield from self._adherence(number)
        elif number.statistic == "bias":
            yield self._bias(number)
        elif number.editor == ALL:
            yield self._estimated(number, ALL)
        else:
            yield from (self._estimated(number, editor.name) for editor in self._editors(number))

    def test(self, number: Published) -> TestBeside:
        """The paper's test on the run's edits."""
        return beside_test(self._diagnostic, number, self._together)

    @property
    def _together(self) -> str:
        return " + ".join(editor.name for editor in self.editors)

    def _editors(self, number: Published) -> list[EditorRecord]:
        if number.editor in (ALL, "each"):
            return self.editors
        known = [(editor, setting().editor(editor.name, editor.spec.use)) for editor in self.editors]
        return [editor for editor, paper in known if paper is not None and paper.name == number.editor]

    def _estimated(self, number: Published, editor: str) -> Beside:
        score = self._diagnostic.score(number)
        estimate = self._diagnostic.estimate(number, editor)
        return Beside(
            published=number,
            editor=self._together if editor == ALL else editor,
            judge=score.judge,
            yours=estimate.outcome if estimate else NotEstimable(reason="no edit was rated"),
            portraits=estimate.portraits if estimate else 0,
            edits=estimate.edits if estimate else 0,
        )

    def _bias(self, number: Published) -> Beside:
        part = self._diagnostic.in_arm(number.arm)
        model, people = part.model(number.quantity), part.people(number.quantity)
        assert model is not None
        assert people is not None
        biases = against_people(part.edits, model, people, part.settings(by_group=False), by_editor=False)
        bias = next(row for row in biases if row.measure == "bias")
        return Beside(
            published=number,
            editor=self._together,
            judge=f"{model.judge} − people",
            yours=bias.outcome,
            portraits=bias.portraits,
            edits=bias.edits,
        )

    def _role_scores(self) -> list[Scores]:
        scores = (self._roles.model(axis) for axis in ("role_target", "gender_change"))
        return [score for score in scores if score is not None]

    def _adherence(self, number: Published) -> Iterator[Beside]:
        names = {editor.name for editor in self._editors(number)}
        part = self._roles.in_arm(number.arm)
        scores = [score for axis in ("role_target", "gender_change") if (score := part.model(axis))]
        for rate in adherence(part.edits, scores, part.settings(by_group=False), genders=self._run.genders):
            if rate.editor in names and not rate.place and not rate.pronoun:
                yield Beside(
                    published=number,
                    editor=rate.editor,
                    judge=rate.judge,
                    yours=rate.outcome if number.statistic == "stereotype followed" else _complement(rate.outcome),
                    portraits=rate.portraits,
                    edits=rate.edits,
                    layout=rate.layout,
                )


def _complement(followed: Interval | NotEstimable) -> Interval | NotEstimable:
    if not isinstance(followed, Interval):
        return followed
    return Interval(
        value=1 - followed.value,
        low=1 - followed.high,
        high=1 - followed.low,
        confidence=followed.confidence,
        method=followed.method,
    )
