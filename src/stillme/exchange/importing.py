"""Match scores to the edits of a run and append them: all of them, or none."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.audit import NamedJudge
from stillme.audit.load import FILE
from stillme.design import JudgeRecord
from stillme.errors import Invalid, Problem, StillmeError
from stillme.exchange import declaring
from stillme.exchange.columns import Choice, Layout
from stillme.exchange.declaring import Kind
from stillme.exchange.matching import Matching, Told
from stillme.exchange.table_files import read
from stillme.judges.imported import Imported, ImportedParameters
from stillme.results import Run, folder_of
from stillme.stages.changes import adopt
from stillme.store import AssessmentRow, Store
from stillme.types import Assessment, Failed, Rated, Rating

_CHUNK = 500


class InvalidJudgements(Invalid):
    """A file of scores that cannot be imported whole."""

    consequence = "nothing was imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an import did."""

    file: Path
    judge: str
    axes: tuple[str, ...]
    scores: int
    edits: int
    new: int
    """Assessments appended to the ledger."""
    already: int
    """Assessments that were there, word for word."""
    left_out: int
    """Rows that `where` did not want."""
    declared: bool
    """Whether the judge was added to audit.toml."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {name: getattr(self, name) for name in ("judge", "scores", "edits", "new", "already", "left_out")} | {
            "file": str(self.file),
            "axes": list(self.axes),
            "declared": self.declared,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.judge}: {self.scores:,} scores of {self.edits:,} edits on {', '.join(self.axes)}"]
        lines.append(f"{self.new:,} assessments imported, {self.already:,} were there.")
        if self.left_out:
            lines.append(f"{self.left_out:,} rows were left out by --where.")
        if self.declared:
            lines.append(f"The judge {self.judge!r} was added to audit.toml.")
        return "\n".join(lines)


def import_judgements(
    file: Path,
    path: Path,
    judge: str,
    choice: Choice,
    *,
    out: Path | None = None,
    declare: Kind | None = None,
    wait: float = 0.0,
) -> Found:
    """Import the scores in `file` into the run of the audit at `path`, as its judge of that name.

    With `declare`, a judge that the audit does not have is added to audit.toml, as one of that kind.
    """
    folder = folder_of(path, out)
    if not Store.exists(folder):
        raise StillmeError(f"{folder} has no run yet. `stillme edit {path}` makes the edits to be rated.")
    everything = read(file)
    layout = Layout(everything, choice, str(file))
    rows = layout.chosen(everything)
    if not rows:
        raise StillmeError(f"{file} has no row" + (" that --where wants." if choice.where else "."))
    problems: list[Problem] = []
    answers = list(layout.read(rows, problems))
    with Store.writing(folder, wait=wait) as store:
        # A judge that was just added to audit.toml is known from here on.
        adopt(folder, store)
        run = Run(store)
        told = Matching(run).assessments(answers, problems)
        if problems:
            raise InvalidJudgements(str(file), problems)
        known, table = _judge(run, judge, told, declare)
        fresh, already = _sorted(known, store, told, _provenance(file), problems)
        if problems:
            raise InvalidJudgements(str(file), problems)
        if table:
            declaring.add(folder / FILE, table)
        store.add_assessments(fresh)
        if table and (reason := adopt(folder, store)):
            raise StillmeError(f"The scores are kept, but {judge!r} is not part of the run yet: {reason}")
    return Found(
        file=file,
        judge=judge,
        axes=known.capabilities.axes,
        scores=len(answers),
        edits=len({assessment.target.request.key for assessment in told}),
        new=len(fresh),
        already=already,
        left_out=len(everything) - len(rows),
        declared=bool(table),
    )


def _judge(run: Run, judge: str, told: Sequence[Told], kind: Kind | None) -> tuple[JudgeRecord, str]:
    """The run's judge of that name; or a new one, with the lines that audit.toml needs for it."""
    file = run.folder / FILE
    if known := run.design.judge(judge):
        if not known.capabilities.given:
            raise StillmeError(
                f"The judge {judge!r} of {file} is asked by stillme itself, so its scores cannot be imported. "
                "Import them under another name."
            )
        return known, ""
    said = {axis for assessment in told for axis in assessment.ratings}
    parameters = ImportedParameters(source=judge, kind=kind or "model", axes=tuple(said))
    epochs = max(assessment.epoch for assessment in told) + 1
    table = declaring.lines(judge, parameters, epochs)
    if kind is None:
        raise StillmeError(
            f"{file} has no judge {judge!r}. Let --declare model or --declare person add it, or add:\n\n{table}"
        )
    return NamedJudge(name=judge, judge=Imported(parameters), epochs=epochs).record(), table


def _sorted(
    judge: JudgeRecord,
    store: Store,
    told: Sequence[Told],
    provenance: Mapping[str, str],
    problems: list[Problem],
) -> tuple[list[AssessmentRow], int]:
    """What is new, ready to be kept, and how much was there word for word."""
    fresh: list[AssessmentRow] = []
    already = 0
    axes = judge.capabilities.axes
    for start in range(0, len(told), _CHUNK):
        chunk = told[start : start + _CHUNK]
        keyed = list(_keyed(judge, chunk, problems))
        finished = store.finished_assessments([key for key, _ in keyed])
        said: defaultdict[str, dict[str, tuple[str, float | None]]] = defaultdict(dict)
        for key, axis, outcome, score in store.judgements(sorted(finished)):
            said[key][axis] = (outcome, score)
        for key, answer in keyed:
            if stray := [axis for axis in answer.ratings if axis not in axes]:
                at = f"the judge {judge.name!r} is declared for {', '.join(axes)}, not for {', '.join(stray)}"
                problems.append(Problem(place=answer.places[0], message=f"{at}; declare another judge for all of them"))
            elif key not in finished:
                fresh.append(_row(key, answer, judge, provenance))
            elif said[key] == {axis: _plain(rating) for axis, rating in answer.ratings.items()}:
                already += 1
            else:
                problems.append(Problem(place=answer.places[0], message=_differs(judge, said[key], answer)))
    return fresh, already


def _keyed(judge: JudgeRecord, told: Sequence[Told], problems: list[Problem]) -> Iterator[tuple[str, Told]]:
    for answer in told:
        image = answer.target.stored.image if answer.target.stored else None
        keys = {epoch: key for key, epoch in judge.assessments(answer.target.request.key, image or "")}
        if answer.epoch in keys:
            yield keys[answer.epoch], answer
        else:
            problems.append(
                Problem(
                    place=answer.places[0],
                    message=f"answer {answer.epoch + 1} about this edit; {judge.name!r} has epochs = {judge.epochs} in "
                    "audit.toml, raise it",
                )
            )


def _row(key: str, told: Told, judge: JudgeRecord, provenance: Mapping[str, str]) -> AssessmentRow:
    return AssessmentRow(
        key=key,
        edit=told.target.request.key,
        epoch=told.epoch,
        judge=judge.spec,
        assessment=Assessment(ratings=told.ratings, effective={**provenance, "places": list(told.places)}),
        attempts=1,
        seconds=0.0,
        cost=0.0,
    )


def _differs(judge: JudgeRecord, before: Mapping[str, tuple[str, float | None]], told: Told) -> str:
    was = ", ".join(f"{axis} {_shown(*said)}" for axis, said in sorted(before.items()))
    now = ", ".join(f"{axis} {_shown(*_plain(said))}" for axis, said in sorted(told.ratings.items()))
    return (
        f"{judge.name!r} has already said of this edit: {was}; and now {now}. What is kept is never changed: give the "
        "corrected scores another `source` in audit.toml, and import them all"
    )


def _plain(rating: Rating) -> tuple[str, float | None]:
    match rating:
        case Rated(score=score):
            return "rated", score
        case Failed():
            return "failed", None
        case _:
            return "abstained", None


def _shown(outcome: str, score: float | None) -> str:
    return f"{score:g}" if score is not None else outcome


def _provenance(file: Path) -> Mapping[str, str]:
    return {"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
