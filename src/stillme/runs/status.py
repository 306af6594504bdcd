"""A run's progress, and which models and weights made its rows.

Rows are grouped and counted by the database. Counts are kept, and later only new rows are counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stillme.core.files import cache_folder, write_whole
from stillme.core.rubric import REPEATS
from stillme.core.types import Arm, Failed, Json, plain
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.mitigation.features import extraction_key
from stillme.runs.run import RecordedRun
from stillme.runs.store import Totals
from stillme.runs.store.summaries import AnsweringModel, EditingWeights, Failure, ProgressKey, TableSums

if TYPE_CHECKING:  # both need numpy, and most runs have neither
    from stillme.runs.behaviour import Gaps
    from stillme.runs.control_pairs.reading import ControlPairAnswers

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run's progress, and what a reader should know of it."""

    folder: Path
    counts: Counts
    totals: Totals
    failures: tuple[Failure, ...] = ()
    models: tuple[ModelNames, ...] = ()
    """Which models really answered."""
    weights: tuple[EditorWeights, ...] = ()
    """Which weights edits were made with."""
    gaps: Gaps | None = None
    """Combined scores that lack a judge."""
    control_pairs: tuple[ControlPairAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    made: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """When the first and the last edit of each editor were made, UTC."""
    pictures: str = ""
    """Where new pictures are kept; empty for the run folder."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        return self.counts.complete

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return plain(
            {
                "folder": self.folder,
                "pictures": self.pictures or None,
                **self.counts.as_json(),
                **{name: getattr(self.totals, name) for name in ("cost", "unpriced", "seconds")},
                "failures": self.failures,
                "models": self.models,
                "made": {editor: {"first": first, "last": last} for editor, (first, last) in self.made.items()},
                "weights": self.weights,
                "combined": self.gaps,
                "control_pairs": self.control_pairs,
                "alarms": [answers.alarm for answers in self.control_pairs if answers.alarm],
            }
        )

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.folder}"]
        done_by = self.counts
        for kind, entries in (
            ("describe", done_by.extractors),
            ("edit", done_by.editors),
            ("judge", done_by.judges),
            ("read", done_by.readers),
        ):
            for name, counts in entries.items():
                rest = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word not in ("total", "done") and n)
                done, total = counts["done"], counts["total"]
                share = f"{done / total:4.0%}" if total else "  –"
                lines.append(f"  {kind:<9}{name:<20}{share}  {done:,} of {total:,}{f' ({rest})' if rest else ''}")
        lines.append(f"  cost     {self.totals.cost_text}, {self.totals.seconds:,.0f} s of work")
        if self.pictures:
            lines.append(f"  pictures {self.pictures}")
        lines += [f"  made     {editor:<20}{_period(first, last)}" for editor, (first, last) in self.made.items()]
        lines += [f"  weights  {entry.editor:<20}{entry}" for entry in self.weights]
        lines += shortened(self.failures)
        lines += [f"  warning: {judge}" for judge in drifted(self.models)]
        lines += [
            f"  warning: the edits of {entry.editor} were made with different weights and must not be pooled"
            for entry in self.weights
            if entry.mixed
        ]
        if self.gaps:
            lines.append(f"  {self.gaps}")
        lines += [line for answers in self.control_pairs for line in answers.lines()]
        return "\n".join(lines)


def shortened(failures: Sequence[Failure]) -> Iterator[str]:
    """The most frequent reasons, a line each, and how many more there are."""
    yield from (f"  {failure}" for failure in failures[:_SHOWN])
    if len(failures) > _SHOWN:
        yield f"  and {len(failures) - _SHOWN:,} more reasons; `stillme export` lists all"


def _period(first: str, last: str) -> str:
    """When, to the minute, UTC."""
    begin, end = _minute(first), _minute(last)
    return f"{begin} UTC" if begin == end else f"{begin} to {end} UTC"


def status_of(run: RecordedRun) -> Status:
    """Count the rows of a run, without disturbing a process that is writing them."""
    store = run.store
    counts, totals, origins = _read(run)
    return Status(
        folder=run.folder,
        counts=counts,
        totals=totals,
        failures=tuple(store.failures()),
        models=tuple(model_names(run, origins.models)),
        weights=tuple(editor_weights(run, origins.weights)),
        gaps=_gaps(run),
        control_pairs=_control_pairs(run),
        made={
            editor.name: origins.times[editor.spec.key]
            for editor in run.design.editors
            if editor.spec.key in origins.times
        },
        pictures=store.places.current,
    )


def _gaps(run: RecordedRun) -> Gaps | None:
    if len(run.design.analysis.combined) < 2:
        return None
    from stillme.runs.behaviour import gaps

    return gaps(run)


def _control_pairs(run: RecordedRun) -> tuple[ControlPairAnswers, ...]:
    if not any(run.store.control_pairs(judge.spec.key) for judge in run.judges):
        return ()
    from stillme.runs.control_pairs.reading import answered_by

    return tuple(answered_by(run.store, run.judges))


_DATED = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{8}|\d{3})")
"""How vendors name a snapshot: `-2026-01-10`, `-09-2026`, `-20260110`, `@20260110`, `-001`."""
_FLOATING = "-latest"
_PREFIX = "models/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """One judge: the model that it asks for, and those that answered, the earliest first."""

    judge: str
    asked: str
    answered: tuple[AnsweringModel, ...]

    @property
    def total(self) -> int:
        """Answers that name their model."""
        return sum(model.answers for model in self.answered)

    @property
    def others(self) -> tuple[AnsweringModel, ...]:
        """Models that are neither the one asked for nor a dated snapshot of it."""
        return tuple(model for model in self.answered if not is_snapshot(model.name, of=self.asked))

    @property
    def changed(self) -> bool:
        """Whether different models answered. The bare name and one snapshot of it need not be different."""
        return len({model.name for model in self.answered} - {self.asked}) > 1

    @property
    def drifted(self) -> bool:
        """Whether a reader must know."""
        return self.changed or bool(self.others)

    def __str__(self) -> str:
        models = "; ".join(f"{model.name} ({model.answers:,}, first {_minute(model.first)})" for model in self.answered)
        what = "the model changed during the run" if self.changed else "another model answered"
        return f"{self.judge} asked for {self.asked}, and {what}: {models}"

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "judge": self.judge,
            "asked": self.asked,
            "drifted": self.drifted,
            "answered": [
                {"model": model.name, "answers": model.answers, "first": model.first} for model in self.answered
            ],
        }


def model_names(run: RecordedRun, answering: Sequence[AnsweringModel] | None = None) -> list[ModelNames]:
    """Every judge of the run whose answers say which model gave them; of these models, or of all that answered."""
    answering = run.store.answering_models() if answering is None else answering
    return [
        ModelNames(
            judge=judge.name,
            asked=str(judge.spec.parameters.get("model", "")),
            answered=tuple(model for model in answering if model.judge == judge.spec.key),
        )
        for judge in run.judges
        if any(model.judge == judge.spec.key for model in answering)
    ]


def drifted(names: Sequence[ModelNames]) -> Iterator[ModelNames]:
    """Judges that were not the same model throughout, or not the one asked for."""
    return (judge for judge in names if judge.drifted)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def is_snapshot(name: str, *, of: str) -> bool:
    """Whether a model is the one asked for, or a dated snapshot of it."""
    asked = of.removeprefix(_PREFIX).removesuffix(_FLOATING)
    rest = name.removeprefix(_PREFIX)
    if not rest.startswith(asked):
        return False
    return rest.removeprefix(asked) in ("", _FLOATING) or bool(_DATED.fullmatch(rest.removeprefix(asked)))


_COMMIT = 12
"""Characters of a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorWeights:
    """One editor: the weights of its edits, the earliest first."""

    editor: str
    used: tuple[EditingWeights, ...]

    @property
    def mixed(self) -> bool:
        """Whether its edits were made with different weights, and must not be pooled."""
        return len(self.used) > 1

    def __str__(self) -> str:
        return "; ".join(f"{_named(used.weights)} ({used.edits:,} edits)" for used in self.used)

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "editor": self.editor,
            "mixed": self.mixed,
            "used": [{"weights": dict(used.weights), "edits": used.edits} for used in self.used],
        }


def editor_weights(run: RecordedRun, recorded: Sequence[EditingWeights] | None = None) -> list[EditorWeights]:
    """Every editor of the run that records its weights; of these, or of all that edits were made with."""
    recorded = run.store.editing_weights() if recorded is None else recorded
    weights = (
        EditorWeights(editor=editor.name, used=tuple(used for used in recorded if used.editor == editor.spec.key))
        for editor in run.design.editors
    )
    return [entry for entry in weights if entry.used]


def _named(weights: Mapping[str, Json]) -> str:
    return " + ".join(f"{part.get('repo')} at {_short(str(part.get('revision')))}" for part in _parts(weights))


def _parts(weights: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    yield weights
    yield from weights.get("others", ())


def _short(revision: str) -> str:
    kind, _, value = revision.rpartition(":")
    return f"{kind}:{value[:_COMMIT]}" if kind else value[:_COMMIT]


_KEPT = 50
"""Runs whose counts are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far a run has come, by extractor, by editor and by judge."""

    extractors: Mapping[str, Mapping[str, int]]
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    readers: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    imported: tuple[str, ...] = ()
    """Judges whose scores are imported: what they left out is not missing."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        asked = (counts for name, counts in self.judges.items() if name not in self.imported)
        counted = (*self.extractors.values(), *self.editors.values(), *asked, *self.readers.values())
        return all(counts["done"] == counts["total"] for counts in counted)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "extractors": [{"name": name, **counts} for name, counts in self.extractors.items()],
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
        } | ({"readers": [{"name": name, **counts} for name, counts in self.readers.items()]} if self.readers else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """What rows say of who made them."""

    times: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """When the first and the last edit of each editor's specification were made, UTC."""
    models: tuple[AnsweringModel, ...] = ()
    weights: tuple[EditingWeights, ...] = ()

    @classmethod
    def kept(cls, values: Mapping[str, Json]) -> Origins:
        """As they were kept."""
        return cls(
            times={editor: (first, last) for editor, (first, last) in values["times"].items()},
            models=tuple(AnsweringModel(**model) for model in values["models"]),
            weights=tuple(EditingWeights(**used) for used in values["weights"]),
        )

    def and_after(self, run: RecordedRun, since: Mapping[str, int]) -> Origins:
        """With those of the rows after the ones with these numbers, by table."""
        times = dict(self.times)
        for editor, (first, last) in run.store.editing_times(since.get("edit", 0)).items():
            earliest, latest = times.get(editor, (first, last))
            times[editor] = min(earliest, first), max(latest, last)
        models = {(model.judge, model.name): model for model in self.models}
        for new in run.store.answering_models(since.get("assessment", 0)):
            if old := models.get((new.judge, new.name)):
                new = replace(old, answers=old.answers + new.answers, first=min(old.first, new.first))
            models[new.judge, new.name] = new
        weights = {(used.editor, json.dumps(used.weights)): used for used in self.weights}
        for more in run.store.editing_weights(since.get("edit", 0)):
            key = more.editor, json.dumps(more.weights)
            weights[key] = replace(more, edits=more.edits + (weights[key].edits if key in weights else 0))
        return Origins(times=times, models=tuple(models.values()), weights=tuple(weights.values()))


def count(run: RecordedRun) -> tuple[Counts, Totals]:
    """Count the run, without disturbing a process that is writing to it; what was counted before is not read again."""
    counts, totals, _ = _read(run)
    return counts, totals


def _read(run: RecordedRun) -> tuple[Counts, Totals, Origins]:
    name = str(run.folder.resolve())
    kept = _kept()
    entry = kept.pop(name, {})
    asks = json.dumps([run.plan, _asked(run)])
    with run.store.snapshot():
        state, known = run.store.state(), "origins" in entry
        if known and entry["state"] == state:
            counts, origins = entry["counts"], Origins.kept(entry["origins"])
            return Counts(**counts | {"imported": tuple(counts["imported"])}), Totals(**entry["totals"]), origins
        goes_on = known and entry["asks"] == asks and run.store.continues(entry["state"])
        progress, sums = _summed_up(run, entry if goes_on else None)
        since: dict[str, int] = entry["state"]["rows"] if goes_on else {}
        origins = (Origins.kept(entry["origins"]) if goes_on else Origins()).and_after(run, since)
        requests = entry["requests"] if goes_on else run.store.requests_by_editor(run.plan)
        counts, totals = _counts(run, progress, requests), run.store.totals(sums)
    # The latest last. What cannot be kept is counted again.
    kept[name] = {
        "state": state,
        "asks": asks,
        "progress": [[*key, number] for key, number in progress.items()],
        "sums": sums,
        "requests": requests,
        "origins": asdict(origins),
        "counts": asdict(counts),
        "totals": asdict(totals),
    }
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps(dict(list(kept.items())[-_KEPT:])))
    return counts, totals, origins


def _asked(run: RecordedRun) -> list[tuple[str, int]]:
    """Judges and epochs of which every picture needs an answer."""
    return [(judge.spec.key, epoch) for judge in run.judges for epoch in range(judge.asked)]


def _summed_up(
    run: RecordedRun, before: Mapping[str, Json] | None
) -> tuple[Counter[ProgressKey], dict[str, TableSums]]:
    """How requests stand and what all rows come to: what was counted before, and the rows since then."""
    progress, sums, since = Counter[ProgressKey](), dict[str, TableSums](), dict[str, int]()
    if before is not None:
        progress.update({(kind, who, what): number for kind, who, what, number in before["progress"]})
        sums.update({table: TableSums(*numbers) for table, numbers in before["sums"].items()})
        since = before["state"]["rows"]
    progress.update(run.store.progress(run.plan, _asked(run), since))
    for table, new in run.store.sums(since).items():
        sums[table] = TableSums._make(map(add, sums[table], new)) if table in sums else new
    # A state that no request is in any more is left out, as one that none was ever in.
    return +progress, sums


def _counts(run: RecordedRun, progress: Counter[ProgressKey], requests: Mapping[str, int]) -> Counts:
    states: dict[str, Counter[str]] = {editor.name: Counter() for editor in run.design.editors}
    for (kind, name, state), number in progress.items():
        if kind == "edit":
            states[name][str(state)] += number
    pictures = sum(counts["edited"] for counts in states.values())
    return Counts(
        extractors=_descriptions(run),
        editors={
            name: {"total": requests.get(name, 0), "done": counts["edited"] + counts["refused"], **counts}
            for name, counts in states.items()
        },
        judges={
            judge.name: {
                "total": pictures * judge.asked,
                "done": sum(progress["judge", judge.spec.key, epoch] for epoch in range(judge.asked)),
            }
            for judge in run.judges
        },
        readers=_readings(run) if run.design.readers else {},
        imported=tuple(judge.name for judge in run.judges if judge.capabilities.given),
    )


def _readings(run: RecordedRun) -> dict[str, dict[str, int]]:
    """Pictures of one portrait; a control that is still to be made counts as a picture of its own."""
    edited: set[str] = set()
    controls: set[str] = set()
    keys = {editor.name: editor.spec.key for editor in run.design.editors}
    made = {(editor, portrait): image for editor, portrait, image in run.store.controls()}
    for row in run.rows():
        if not row.image or len(row.request.portraits) != 1:
            continue
        if row.request.arm is Arm.NOOP:
            controls.add(row.image)
            continue
        edited.add(row.image)
        if Arm.NOOP not in run.design.arms:
            place = keys[row.request.editor], row.request.portraits[0]
            controls.add(made.get(place, " ".join(place)))
    wanted = {(image, 0) for image in edited} | {(image, repeat) for image in controls for repeat in range(REPEATS)}
    return {
        reader.name: {
            "total": len(wanted),
            "done": len(wanted & {(image, repeat) for image, repeat, *_ in run.store.readings(reader.spec.key)}),
        }
        for reader in run.design.readers
    }


def _descriptions(run: RecordedRun) -> dict[str, dict[str, int]]:
    readers = {editor.name for editor in run.design.editors if editor.capabilities.reads_instruction}
    ids = run.portraits_of(readers, NEEDS_FEATURES) if run.design.extractors else set[str]()
    portraits = [portrait for portrait in run.design.portraits if portrait.id in ids]
    described: dict[str, dict[str, int]] = {}
    for extractor in run.design.extractors:
        keys = sorted({extraction_key(portrait.image, extractor.spec) for portrait in portraits})
        found = run.store.features(keys).values()
        waiting = sum(isinstance(extraction, Failed) for extraction in found)
        kinds = Counter(type(extraction).__name__.lower() for extraction in found if not isinstance(extraction, Failed))
        described[extractor.name] = {"total": len(keys), "done": len(found) - waiting, **kinds}
        described[extractor.name] |= {"to retry": waiting} if waiting else {}
    return described


def _kept() -> dict[str, dict[str, Json]]:
    # A damaged file is an empty one: it only saves time.
    with suppress(OSError, ValueError):
        kept = json.loads(_file().read_text("utf-8"))
        if isinstance(kept, dict):
            return cast("dict[str, dict[str, Json]]", kept)
    return {}


def _file() -> Path:
    return cache_folder() / "counts.json"
