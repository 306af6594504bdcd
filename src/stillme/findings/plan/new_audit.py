"""Write the audit.toml of a new audit, for the portraits and the earlier run that it is about."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillme.audit.config import SCHEMA_FILE, audit_schema
from stillme.audit.experiments import CELLS, PAPERS_SAMPLE, Cases, Experiment, Setup, experiment
from stillme.audit.grid import CellNames, draw_among, lacking_labels, write_cells
from stillme.audit.loading import FILE
from stillme.audit.template import OWN_FILES, small_audit
from stillme.core import registry
from stillme.core.errors import StillmeError
from stillme.core.files import write_whole
from stillme.core.types import Arm, Portrait
from stillme.estimates import EditState, RatingState, one_judge
from stillme.portraits import folder as portrait_folder
from stillme.runs import RecordedRun, folder_of, opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a new audit is about."""

    title: str = ""
    """By default the folder's name."""
    experiment: Experiment | None = None
    editors: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    """Plugins to write instead of the known-answer editors and the instruments."""
    as_paper: bool = False
    portraits: Path | None = None
    run: Path | None = None
    """The first experiment's run, for the second."""
    cases: Cases = "stratified"

    def __post_init__(self) -> None:
        if self.as_paper and self.experiment is None:
            raise StillmeError("--as paper goes with --experiment: name the experiment that it sets back.")
        if self.experiment and (self.editors or self.judges):
            raise StillmeError("--experiment has the paper's editors and judges. Leave --editor and --judge out.")
        if self.run and self.experiment != "mitigation":
            raise StillmeError("--from goes with --experiment mitigation, which compares with an earlier run.")
        if self.cases == "drifted" and (self.experiment != "mitigation" or self.run is None):
            raise StillmeError(
                "--cases drifted selects mitigation cases by the first experiment's results. Write --experiment "
                "mitigation and name that run with --from RUN, or leave --cases out to draw before any result is seen."
            )


def start(folder: Path, wanted: Start, *, force: bool = False) -> Iterator[str]:
    """Write audit.toml, and what it needs beside it, into `folder`; a sentence for each, and for what to know."""
    file = folder / FILE
    if file.exists() and not force:
        raise StillmeError(f"{file} already exists. Choose another folder, or overwrite it with --force.")
    setup = _setup(folder, wanted)
    title = wanted.title or folder.resolve().name
    if wanted.experiment:
        text = experiment(wanted.experiment, title, setup)
    else:
        editors = [_in_folder(folder, "editor", use) for use in wanted.editors]
        judges = [_in_folder(folder, "judge", use) for use in wanted.judges]
        text = small_audit(title, setup.source, setup.portraits, editors=editors, judges=judges)
    drawn = draw_changed(wanted.run, size=PAPERS_SAMPLE) if wanted.run and wanted.cases == "drifted" else []
    folder.mkdir(parents=True, exist_ok=True)
    if drawn:
        write_cells(folder / CELLS, drawn)
        yield f"Wrote {folder / CELLS}: {len(drawn):,} cells in which race or gender changed"
    # Text editors complete and check the file by it.
    write_whole(folder / SCHEMA_FILE, json.dumps(audit_schema(), indent=1))
    write_whole(file, f"#:schema {SCHEMA_FILE}\n{text}")
    yield f"Wrote {file}"
    factors = tomllib.loads(text).get("estimates", {}).get("factors", ())
    if advice := larger_set(setup.source, factors):
        yield f"{advice}."
    if wanted.run and (others := _other_editors(wanted.run, text)):
        yield (
            f"The editors of {wanted.run} are not all in it: {', '.join(others)}. Copy their [[editors]] from that "
            "run's audit.toml, or none of their edits is taken over."
        )
    lacking = lacking_labels(setup.portraits) if wanted.as_paper else []
    if lacking:
        yield (
            f"The judges are told race, gender and age, but the portraits of {setup.source} lack {', '.join(lacking)}: "
            "`stillme run` will refuse. Name a set that has them with --portraits FOLDER."
        )


def _in_folder(folder: Path, kind: registry.Buildable, use: str) -> str:
    """A function's file as seen from the audit; for `python` alone, a file to begin with."""
    if use == "python":
        place, text = OWN_FILES[kind]
        file = folder / place.partition(":")[0]
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        return f"python:./{place}"
    name, _, place = use.partition(":")
    file, colon, function = place.rpartition(":")
    return f"{name}:{_seen_from(folder, Path(file))}{colon}{function}" if file.endswith(".py") else use


def _setup(folder: Path, wanted: Start) -> Setup:
    run = _seen_from(folder, folder_of(wanted.run)) if wanted.run else ""
    place = wanted.portraits or (_portraits_of(wanted.run) if wanted.run else None)
    if place is None:
        return Setup(as_paper=wanted.as_paper, run=run, cases=wanted.cases)
    return Setup(
        as_paper=wanted.as_paper,
        source=_seen_from(folder, place),
        portraits=portrait_folder.load(place),
        run=run,
        cases=wanted.cases,
    )


def _other_editors(path: Path, text: str) -> list[str]:
    """Editors of an earlier run that the new audit.toml does not name."""
    named = {editor.get("name", editor["use"]) for editor in tomllib.loads(text)["editors"]}
    with opened(path) as run:
        return [editor.name for editor in run.design.editors if editor.name not in named]


def _portraits_of(path: Path) -> Path | None:
    """The folder of an earlier run's portraits; None for the embedded ones."""
    with opened(path) as run:
        source = str(run.design.resolved.get("portraits", {}).get("source", ""))
        place = run.folder / source
    if source in registry.plugins("portrait set"):
        return None
    if not place.is_dir():
        raise StillmeError(f"The portraits of {path} are not in {place} any more. Name them with --portraits FOLDER.")
    return place


def _seen_from(folder: Path, place: Path) -> str:
    """A path relative to the new audit.toml, in a form that is no set's name."""
    written = Path(os.path.relpath(place.resolve(), folder.resolve())).as_posix()
    return written if written.startswith(".") else f"./{written}"


_AXES = ("race_change", "gender_change")
_CHANGED = 2
"""From this score on the caption of the paper's Table 4 calls an identity changed; Appendix D.2 names no score."""


def draw_changed(path: Path, *, size: int, seed: int = 0) -> list[CellNames]:
    """Draw cells of a run whose baseline edit changed race or gender (Appendix D.2); all of them if there are fewer."""
    with opened(path) as run:
        cells = _changed(run)
        if not cells:
            raise StillmeError(
                f"{path} has no baseline edit with a race or gender change of {_CHANGED} or more, so nothing can be "
                "drawn by outcome. Let a model or people judge it first, or leave out --cases drifted."
            )
        return draw_among(cells, run.design.portraits, factors=run.design.factors, size=size, seed=seed)


def _changed(run: RecordedRun) -> set[CellNames]:
    edits = run.results.edits
    baseline = np.array([arm == Arm.BASELINE for arm in edits.arms], dtype=np.bool_)
    edited = baseline[edits.arm] & (edits.state == EditState.EDITED)
    cells: set[CellNames] = set()
    for axis in _AXES:
        if score := one_judge(run.results.scores, axis):
            changed = edited & (score.state == RatingState.RATED) & (np.nan_to_num(score.value) >= _CHANGED)
            codes = zip(edits.editor[changed], edits.portrait[changed], edits.prompt[changed], strict=True)
            cells |= {
                (edits.editors[int(editor)], edits.portraits[int(portrait)].id, edits.prompts[int(prompt)].id)
                for editor, portrait, prompt in codes
            }
    return cells


SMALL, LARGE = "synthetic", "synthetic-36"


def larger_set(source: str, factors: Sequence[str], edits: int | None = None) -> str:
    """What `synthetic-36` would bring for these factors and what it costs; empty where the audit gains nothing.

    A preset varies inside an identity, so that its gaps gain nothing but more portraits.
    """
    if source != SMALL:
        return ""
    small, large = registry.portrait_set(SMALL), registry.portrait_set(LARGE)
    gains = [
        f"{factor} {few} → {more}"
        for factor in factors
        if (few := fewest_identities(small, factor)) and (more := fewest_identities(large, factor))
    ]
    if not gains:
        return ""
    times = len(large) // len(small)
    price = f"{times} × the edits" + (f" ({times * edits:,})" if edits else "")
    return f'`source = "{LARGE}"` has more identities a group ({", ".join(gains)}), for {price}, cost and time'


def fewest_identities(portraits: Sequence[Portrait], factor: str) -> int:
    """Of the group with the fewest; 0 where the factor varies inside identities, or no portrait has it."""
    groups = dict(_groups(portraits, factor))
    several = sum(len(blocks) for blocks in groups.values()) > len(set[str]().union(*groups.values()))
    return 0 if several else min(map(len, groups.values()), default=0)


def _groups(portraits: Sequence[Portrait], factor: str) -> Iterator[tuple[str, set[str]]]:
    levels = {portrait.attributes[factor] for portrait in portraits if factor in portrait.attributes}
    for level in levels:
        yield level, {portrait.block for portrait in portraits if portrait.attributes.get(factor) == level}
