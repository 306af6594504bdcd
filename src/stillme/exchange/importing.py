"""Match scores to the edits of a run and append them: all of them, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import rubric
from stillme.audit import NamedJudge
from stillme.audit.loading import FILE
from stillme.design import JudgeRecord
from stillme.errors import Problem, StillmeError
from stillme.exchange import declaring
from stillme.exchange.columns import Answer, ColumnMapping, InvalidJudgements, Layout
from stillme.exchange.declaring import Kind
from stillme.exchange.matching import MatchedAssessment, Matching
from stillme.exchange.table_files import Row, columns_of, read
from stillme.files import sha256_of
from stillme.judges.imported import Imported, ImportedParameters
from stillme.results import Run, folder_of
from stillme.stages.changes import adopt
from stillme.store import AssessmentRow, Store
from stillme.types import Assessment, Failed, Rated, Rating

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """What an import did."""

    file: Path
    judge: str
    axes: tuple[str, ...]
    scores: int
    edits: int
    new: int
    """Assessments appended to the ledger."""
    already: int
    """Assessments that were there with the same scores."""
    left_out: int
    """Rows that `where` left out."""
    unread: tuple[str, ...]
    """Columns of the file that have no meaning here."""
    declared: bool
    """Whether the judge was added to audit.toml."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {name: getattr(self, name) for name in ("judge", "scores", "edits", "new", "already", "left_out")} | {
            "file": str(self.file),
            "axes": list(self.axes),
            "unread_columns": list(self.unread),
            "declared": self.declared,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.judge}: {self.scores:,} scores of {self.edits:,} edits on {', '.join(self.axes)}"]
        lines.append(f"{self.new:,} assessments imported, {self.already:,} already there.")
        if self.left_out:
            lines.append(f"{self.left_out:,} rows were left out by --where.")
        if self.unread:
            lines.append(f"Columns that were not read: {', '.join(self.unread)}.")
        if self.declared:
            lines.append(f"The judge {self.judge!r} was added to audit.toml.")
        return "\n".join(lines)


def import_judgements(
    file: Path,
    path: Path,
    judge: str,
    mapping: ColumnMapping,
    *,
    out: Path | None = None,
    declare: Kind | None = None,
    wait: float = 0.0,
) -> ImportSummary:
    """Import the scores in `file` into the run of the audit at `path`, as its judge of that name.

    With `declare`, a judge that the audit does not have is added to audit.toml, as one of that kind.
    """
    folder = folder_of(path, out)
    if not Store.exists(folder):
        raise StillmeError(f"{folder} has no run yet. `stillme run {path} --only edit` makes the edits to be rated.")
    layout = Layout(columns_of(file), mapping, str(file))
    counted = {True: 0, False: 0}

    def kept() -> Iterator[Row]:
        for row in read(file):
            selected = layout.selects(row)
            counted[selected] += 1
            if selected:
                yield row

    problems: list[Problem] = []
    scores = 0

    def answers() -> Iterator[Answer]:
        nonlocal scores
        for answer in layout.read(kept(), problems):
            scores += 1
            yield answer

    with Store.writing(folder, wait=wait) as store:
        # A judge that was just added to audit.toml is known from here on.
        adopt(folder, store)
        run = Run(store)
        matched = Matching(run).assessments(answers(), problems)
        if not counted[True]:
            raise StillmeError(f"{file} has no rows" + (" that match --where." if counted[False] else "."))
        if problems:
            raise InvalidJudgements(str(file), problems)
        record, table = _judge(run, judge, matched, declare)
        problems += _axes_without_scores(run, record, matched)
        new, already = _new_rows(record, store, matched, _provenance(file), problems)
        if problems:
            raise InvalidJudgements(str(file), problems)
        if table:
            declaring.append_table(folder / FILE, table)
        store.add_assessments(new)
        if table and (reason := adopt(folder, store)):
            raise StillmeError(f"The scores are kept, but {judge!r} is not part of the run yet: {reason}")
    return ImportSummary(
        file=file,
        judge=judge,
        axes=record.capabilities.axes,
        scores=scores,
        edits=len({assessment.target.request.key for assessment in matched}),
        new=len(new),
        already=already,
        left_out=counted[False],
        unread=layout.unread,
        declared=bool(table),
    )


def _judge(run: Run, judge: str, matched: Sequence[MatchedAssessment], kind: Kind | None) -> tuple[JudgeRecord, str]:
    """The run's judge of that name; or a new one, with the lines that audit.toml needs for it."""
    file = run.folder / FILE
    if known := run.design.judge(judge):
        if not known.capabilities.given:
            raise StillmeError(
                f"The judge {judge!r} of {file} is asked by stillme itself, so its scores cannot be imported. "
                "Import them under another name."
            )
        return known, ""
    axes = {axis for assessment in matched for axis in assessment.ratings}
    parameters = ImportedParameters(source=judge, kind=kind or "model", axes=tuple(axes))
    epochs = max(assessment.epoch for assessment in matched) + 1
    table = declaring.judge_table(judge, parameters, epochs)
    if kind is None:
        raise StillmeError(
            f"{file} has no judge {judge!r}. Add it with --declare model or --declare person, or by hand:\n\n{table}"
        )
    return NamedJudge(name=judge, judge=Imported(parameters), epochs=epochs).record(), table


def _axes_without_scores(run: Run, judge: JudgeRecord, matched: Sequence[MatchedAssessment]) -> Iterator[Problem]:
    """Axes that the judge declares and the file never scores. Rows are never changed, so they could not be added."""
    scored = {axis for assessment in matched for axis in assessment.ratings}
    prompts = {assessment.target.request.prompt for assessment in matched}
    subcategories = {run.design.prompt_by_id[prompt].subcategory for prompt in prompts}
    for axis in judge.capabilities.axes:
        only = rubric.load().axes[axis].only
        if axis not in scored and (not only or only in subcategories):
            declared = f"{judge.name!r} is declared for {axis}, and no row has a score on it"
            how = f"name its column with --map {axis}=COLUMN, or remove {axis} from `axes` in audit.toml"
            yield Problem(place="", message=f"{declared}; {how}")


def _new_rows(
    judge: JudgeRecord,
    store: Store,
    matched: Sequence[MatchedAssessment],
    provenance: Mapping[str, str],
    problems: list[Problem],
) -> tuple[list[AssessmentRow], int]:
    """The rows to append, and how many assessments are already there with the same scores."""
    new: list[AssessmentRow] = []
    already = 0
    axes = judge.capabilities.axes
    for start in range(0, len(matched), _CHUNK):
        keyed = list(_keyed(judge, matched[start : start + _CHUNK], problems))
        finished = store.finished_assessments([key for key, _ in keyed])
        stored: defaultdict[str, dict[str, tuple[str, float | None]]] = defaultdict(dict)
        for key, axis, outcome, score in store.judgements(sorted(finished)):
            stored[key][axis] = (outcome, score)
        for key, assessment in keyed:
            if undeclared := [axis for axis in assessment.ratings if axis not in axes]:
                declared = f"{judge.name!r} is declared for {', '.join(axes)}, not for {', '.join(undeclared)}"
                message = f"{declared}; import under another name, with --declare"
                problems.append(Problem(place=assessment.places[0], message=message))
            elif key not in finished:
                new.append(_row(key, assessment, judge, provenance))
            elif stored[key] == {axis: _plain(rating) for axis, rating in assessment.ratings.items()}:
                already += 1
            else:
                message = _differs(judge, stored[key], assessment)
                problems.append(Problem(place=assessment.places[0], message=message))
    return new, already


def _keyed(
    judge: JudgeRecord, matched: Sequence[MatchedAssessment], problems: list[Problem]
) -> Iterator[tuple[str, MatchedAssessment]]:
    for assessment in matched:
        image = assessment.target.stored.image if assessment.target.stored else None
        keys = {epoch: key for key, epoch in judge.assessments(assessment.target.request.key, image or "")}
        if assessment.epoch in keys:
            yield keys[assessment.epoch], assessment
        else:
            answer = f"answer {assessment.epoch + 1} about this edit"
            message = f"{answer}; {judge.name!r} has epochs = {judge.epochs} in audit.toml, raise it"
            problems.append(Problem(place=assessment.places[0], message=message))


def _row(key: str, matched: MatchedAssessment, judge: JudgeRecord, provenance: Mapping[str, str]) -> AssessmentRow:
    return AssessmentRow(
        key=key,
        edit=matched.target.request.key,
        epoch=matched.epoch,
        judge=judge.spec,
        assessment=Assessment(
            ratings=matched.ratings, effective={**provenance, "places": list(matched.places)} | matched.said_by
        ),
        attempts=1,
        seconds=0.0,
        cost=0.0,
    )


def _differs(judge: JudgeRecord, stored: Mapping[str, tuple[str, float | None]], matched: MatchedAssessment) -> str:
    before = ", ".join(f"{axis} {_shown(*score)}" for axis, score in sorted(stored.items()))
    now = ", ".join(f"{axis} {_shown(*_plain(rating))}" for axis, rating in sorted(matched.ratings.items()))
    return (
        f"{judge.name!r} already has {before} for this edit, the file {now}. Rows are never changed: give the "
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
    return {"file": file.name, "sha256": sha256_of(file)}
