"""Match scores to the edits of a run and append them: all of them, or none."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.audit import Audit, NamedJudge
from stillme.errors import Invalid, Problem, StillmeError
from stillme.exchange import declaring
from stillme.exchange.columns import Choice, Layout
from stillme.exchange.declaring import Kind
from stillme.exchange.matching import Matching, Told
from stillme.exchange.table_files import read
from stillme.judges.imported import Imported, ImportedParameters
from stillme.stages import described
from stillme.store import AssessmentRow, Store
from stillme.types import Assessment, Failed, ImageFile, Rated, Rating

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
    loaded = described.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme edit {path}` makes the edits to be rated.")
    everything = read(file)
    layout = Layout(everything, choice, str(file))
    rows = layout.chosen(everything)
    if not rows:
        raise StillmeError(f"{file} has no row" + (" that --where wants." if choice.where else "."))
    problems: list[Problem] = []
    answers = list(layout.read(rows, problems))
    with Store.writing(loaded.folder, wait=wait) as store:
        told = Matching(loaded, store).assessments(answers, problems)
        if problems:
            raise InvalidJudgements(str(file), problems)
        named, table = _judge(loaded, judge, told, declare)
        fresh, already = _sorted(named, loaded, store, told, _provenance(file), problems)
        if problems:
            raise InvalidJudgements(str(file), problems)
        if table:
            declaring.add(loaded.file, table)
        store.add_assessments(fresh)
    return Found(
        file=file,
        judge=judge,
        axes=named.judge.capabilities.axes,
        scores=len(answers),
        edits=len({each.target.request.key for each in told}),
        new=len(fresh),
        already=already,
        left_out=len(everything) - len(rows),
        declared=bool(table),
    )


def _judge(loaded: Audit, judge: str, told: Sequence[Told], kind: Kind | None) -> tuple[NamedJudge, str]:
    """The audit's judge of that name; or a new one, with the lines that audit.toml needs for it."""
    known = {named.name: named for named in loaded.judges}
    if judge in known:
        if not known[judge].judge.capabilities.given:
            raise StillmeError(
                f"The judge {judge!r} of {loaded.file} is asked by stillme itself, so its scores cannot be imported. "
                "Import them under another name."
            )
        return known[judge], ""
    said = {axis for each in told for axis in each.ratings}
    parameters = ImportedParameters(source=judge, kind=kind or "model", axes=tuple(said))
    epochs = max(each.epoch for each in told) + 1
    table = declaring.lines(judge, parameters, epochs)
    if kind is None:
        raise StillmeError(
            f"{loaded.file} has no judge {judge!r}. Let --declare model or --declare person add it, or add:\n\n{table}"
        )
    return NamedJudge(name=judge, judge=Imported(parameters), epochs=epochs), table


def _sorted(
    named: NamedJudge,
    loaded: Audit,
    store: Store,
    told: Sequence[Told],
    provenance: Mapping[str, str],
    problems: list[Problem],
) -> tuple[list[AssessmentRow], int]:
    """What is new, ready to be kept, and how much was there word for word."""
    fresh: list[AssessmentRow] = []
    already = 0
    axes = named.judge.capabilities.axes
    for start in range(0, len(told), _CHUNK):
        chunk = told[start : start + _CHUNK]
        keyed = list(_keyed(named, loaded, chunk, problems))
        finished = store.finished_assessments([key for key, _ in keyed])
        said: defaultdict[str, dict[str, tuple[str, float | None]]] = defaultdict(dict)
        for key, axis, outcome, score in store.judgements(sorted(finished)):
            said[key][axis] = (outcome, score)
        for key, each in keyed:
            if stray := [axis for axis in each.ratings if axis not in axes]:
                at = f"the judge {named.name!r} is declared for {', '.join(axes)}, not for {', '.join(stray)}"
                problems.append(Problem(place=each.places[0], message=f"{at}; declare another judge for all of them"))
            elif key not in finished:
                fresh.append(_row(key, each, named, loaded, store, provenance))
            elif said[key] == {axis: _plain(rating) for axis, rating in each.ratings.items()}:
                already += 1
            else:
                problems.append(Problem(place=each.places[0], message=_differs(named, said[key], each)))
    return fresh, already


def _keyed(
    named: NamedJudge, loaded: Audit, told: Sequence[Told], problems: list[Problem]
) -> Iterator[tuple[str, Told]]:
    for each in told:
        image = each.target.stored.image if each.target.stored else None
        keys = {epoch: key for key, epoch in loaded.assessments(named, each.target.request, image or "")}
        if each.epoch in keys:
            yield keys[each.epoch], each
        else:
            problems.append(
                Problem(
                    place=each.places[0],
                    message=f"answer {each.epoch + 1} about this edit; {named.name!r} has epochs = {named.epochs} in "
                    "audit.toml, raise it",
                )
            )


def _row(
    key: str, told: Told, named: NamedJudge, loaded: Audit, store: Store, provenance: Mapping[str, str]
) -> AssessmentRow:
    stored = told.target.stored
    assert stored is not None
    assert stored.image is not None
    edited = ImageFile(path=store.pictures.find(stored.image) or Path(stored.image), sha256=stored.image)
    return AssessmentRow(
        key=key,
        pair=loaded.pair(named, told.target.request, edited, told.epoch),
        judge=named.judge.spec,
        assessment=Assessment(ratings=told.ratings, effective={**provenance, "places": list(told.places)}),
        attempts=1,
        seconds=0.0,
        cost=0.0,
    )


def _differs(named: NamedJudge, before: Mapping[str, tuple[str, float | None]], told: Told) -> str:
    was = ", ".join(f"{axis} {_shown(*said)}" for axis, said in sorted(before.items()))
    now = ", ".join(f"{axis} {_shown(*_plain(said))}" for axis, said in sorted(told.ratings.items()))
    return (
        f"{named.name!r} has already said of this edit: {was}; and now {now}. What is kept is never changed: give the "
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
