"""Is this machine ready for an audit, and is a run whole? Each check tries the real thing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from stillme import __version__
from stillme.core import images, registry
from stillme.core.errors import InvalidParameters, PicturesUnreachable, StillmeError, StillRecording, StoreDamaged
from stillme.core.protocols import Editor, Judge, Needs
from stillme.core.tables import aligned, counted
from stillme.editors.diffusion.machine import gpus
from stillme.instruments import faces
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.runs.store.opening import LEDGER, clean_up, forget_rows, leftovers, require_whole
from stillme.runs.store.pictures import DAMAGED, LostPicture
from stillme.runs.store.rows import NONDETERMINISTIC, REPEATED

State = Literal["ok", "lacking", "broken"]

_MARKS: dict[State, str] = {"ok": "✓", "lacking": "·", "broken": "✗"}
_LEAST_FREE_GB = 1.0
_SHOWN = 3
_HASH = 64
"""Letters of a SHA-256."""
_HUB = ("huggingface.co", 443)
_HUB_SECONDS = 3.0
_IMPORT_SECONDS = 120.0
_TRY_IMPORTS = """
import importlib, json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what packages print is no answer
for target in sys.argv[1:]:
    module, _, name = target.partition(":")
    try:
        loaded = importlib.import_module(module)
        name and getattr(loaded, name)
        error = ""
    except BaseException as fault:
        while fault.__cause__ or fault.__context__:
            fault = fault.__cause__ or fault.__context__
        error = f"{type(fault).__name__}: {fault}"
    print(json.dumps([target, error]), file=answers, flush=True)
"""
"""Runs in a process of its own: an import that crashes or hangs must not take the doctor with it.

Libraries that import lazily wrap the error several times; the first of them tells what is wrong.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One check and its result."""

    name: str
    state: State
    """`lacking` is absent but optional; `broken` prevents every audit."""
    detail: str


def as_table(checks: Sequence[DoctorCheck]) -> str:
    """A line for each."""
    return "\n".join(aligned((_MARKS[check.state], check.name, check.detail) for check in checks))


def examine() -> list[DoctorCheck]:
    """Run every check; none stops the others."""
    online = _online()
    checks = [
        _tried("versions", _versions),
        _tried("run folder", _run_folder),
        _tried("disk", _disk),
        _tried("embedded portraits", _portraits),
        _tried("face models", _face_models),
        _tried("GPUs", _gpus),
        _tried("Hugging Face hub", lambda: _hub(online=online)),
    ]
    faults = _import_faults()
    return [*checks, *_plugins("editor", faults, online=online), *_plugins("judge", faults, online=online)]


def examine_run(folder: Path, *, download: bool = False) -> list[DoctorCheck]:
    """Look at a whole run: database, log, rows, keys, pictures and leftover files. Changes nothing.

    Pictures in an object store are looked up, and read only with `download`.
    """
    if not Store.exists(folder):
        raise StillmeError(f"{folder} has no run. Name a run folder, or leave it out to check this machine.")
    ledger = folder / LEDGER
    checks = [_tried("database", lambda: _database(ledger)), _tried("log", lambda: _log(folder))]
    if any(check.state == "broken" for check in checks):
        return checks
    try:
        with RecordedRun.open(folder) as run, run.store.snapshot():
            checks += [
                _tried("rows", lambda: _rows(run)),
                _tried("keys", lambda: _keys(run)),
                _tried("pictures", lambda: _pictures(run, download=download)),
                _tried("done twice", lambda: _repeats(run)),
                _tried("leftover files", lambda: _leftover_files(run)),
            ]
    except StillRecording as error:
        checks.append(DoctorCheck(name="rows", state="lacking", detail=str(error)))
    return checks


def accept_losses(folder: Path, *, download: bool = False) -> Iterator[str]:
    """Go on without what is lost: a sentence for everything that was given up.

    Damaged pictures in an object store are found with `download` only.
    """
    require_whole(folder / LEDGER)
    try:
        Store.opened(folder).close()
    except StoreDamaged:
        forget_rows(folder)
        yield "The lost rows are given up; `stillme run` makes them again"
    if count := clean_up(folder, deep=True):
        yield f"{counted(count, 'half-written file')} removed"
    try:
        with RecordedRun.open(folder) as run:
            damaged = [lost for lost in _lost(run, download=download) if lost.how == "damaged"]
            for lost in damaged:
                run.store.pictures.set_aside(lost.sha256)
    except StillmeError as error:
        yield f"The run cannot be read yet: {str(error).rstrip('.')}"
        return
    if damaged:
        yield f"{counted(len(damaged), 'damaged picture')} set aside as *{DAMAGED}; `stillme run` makes them again"


def _log(folder: Path) -> str:
    with Store.reading(folder):
        return "every row that was saved is there"


def _database(ledger: Path) -> str:
    require_whole(ledger)
    return "passes SQLite's integrity check"


def _rows(run: RecordedRun) -> str:
    """Every row leads to what it is about."""
    dangling = {what: count for what, count in run.store.dangling_rows() if count}
    if dangling:
        raise StoreDamaged("; ".join(f"{count:,} {what}" for what, count in dangling.items()))
    totals = run.totals()
    edits, judgements = counted(sum(totals.edits.values()), "edit"), counted(totals.assessments, "judgement")
    return f"{edits}, {judgements}, each with all it refers to"


def _keys(run: RecordedRun) -> str:
    """The key of a request is the hash of what it says."""
    wrong = [request.key for request in run.requests() if request.request(run.design).key != request.key]
    if wrong:
        raise StoreDamaged(f"{len(wrong):,} requests do not have the key of what they say, such as {wrong[0]}")
    return f"{counted(run.request_count, 'request')}, each under its own key"


def _pictures(run: RecordedRun, *, download: bool) -> str:
    if run.design.of_rows:
        return "none: the rows of this run were imported"
    names = _named(run)
    lost = _lost(run, download=download)
    if lost:
        shown = ", ".join(f"{picture.sha256[:12]}… is {picture.how}" for picture in lost[:_SHOWN])
        raise StoreDamaged(
            f"{len(lost):,} of {len(names):,} are not what they were: {shown}. Put them back from a copy, or have "
            "`stillme run` make them again (`--allow-remake` where that costs money)"
        )
    if run.store.pictures.place.reaches_elsewhere and not download:
        return (
            f"{len(names):,} are in {run.store.pictures}, none empty; whether they are what they were, --download tells"
        )
    return f"{len(names):,} are what they were"


def _lost(run: RecordedRun, *, download: bool) -> list[LostPicture]:
    """The pictures that are not what they were; unless all are read, those in an object store that are missing."""
    pictures, names = run.store.pictures, _named(run)
    if pictures.place.reaches_elsewhere and not download:
        return [LostPicture(sha256, "missing") for sha256 in pictures.lacking(names)]
    return list(pictures.lost(names))


def _named(run: RecordedRun) -> dict[str, None]:
    """The pictures that rows and portraits name."""
    named = dict.fromkeys(portrait.image.sha256 for portrait in run.design.portraits)
    return named | dict.fromkeys(row.image for row in run.rows() if row.image)


def _repeats(run: RecordedRun) -> str:
    counts = run.store.attempts.count(REPEATED, NONDETERMINISTIC)
    if any(counts.values()):
        came = f"{sum(counts.values()):,} results came twice, {counts[NONDETERMINISTIC]:,} with other content"
        raise _Absent(f"{came}; the first counts")
    return "nothing"


def _leftover_files(run: RecordedRun) -> str:
    """Files that no row needs: harmless."""
    drafts = sum(1 for _ in leftovers(run.folder))
    named = _named(run) | dict.fromkeys(run.store.pictures_named())
    try:
        files = list(run.store.pictures.names())
    except PicturesUnreachable as error:
        raise _Absent(str(error)) from None
    aside = sum(name.endswith(DAMAGED) for name in files)
    orphans = sum(len(stem) == _HASH and stem not in named for stem in (Path(name).stem for name in files))
    whose = ", perhaps of other runs" if run.store.pictures.place.is_elsewhere else ""
    found = {
        f"pictures that no row names{whose}": orphans,
        "set aside": aside,
        "half-written": drafts,
        "judgements whose edit is not there": run.store.assessments_without_edit(),
    }
    if any(found.values()):
        raise _Absent(", ".join(f"{count:,} {what}" for what, count in found.items() if count))
    return "nothing"


class _Absent(Exception):
    """What is absent but optional, and what to do."""


def _tried(name: str, attempt: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(name=name, state="ok", detail=attempt())
    except _Absent as lacking:
        return DoctorCheck(name=name, state="lacking", detail=str(lacking))
    except Exception as error:
        detail = str(error) if isinstance(error, StillmeError) else f"{type(error).__name__}: {error}"
        return DoctorCheck(name=name, state="broken", detail=detail)


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pillow", "onnxruntime"))
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"stillme {__version__}, {python}, {packages}"


def _run_folder() -> str:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".stillme-doctor-") as folder:
        with Store.writing(Path(folder)) as writer, Store.reading(Path(folder)) as reader:
            writer.record_audit("doctor", {})
            if reader.latest_audit() is None:
                raise StillmeError("a reader does not see what a writer wrote; is this a network folder?")
        return f"{Path.cwd()} can hold a run"


def _disk() -> str:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < _LEAST_FREE_GB:
        raise StillmeError(f"only {free:.1f} GB free in {Path.cwd()}; an audit of 5,000 edits needs about 5 GB")
    return f"{free:,.0f} GB free"


def _portraits() -> str:
    portraits = registry.portrait_set("synthetic")
    for portrait in portraits:
        images.check(portrait.image.path)
    return f"{len(portraits)} readable"


def _face_models() -> str:
    portrait = registry.portrait_set("synthetic")[0]
    count = len(faces.find(images.read_rgb(portrait.image.path)))
    if count != 1:
        raise StillmeError(f"{count} faces detected in portrait {portrait.id!r}, which has one; reinstall stillme")
    return "detect a face in a portrait"


def _gpus() -> str:
    """What the driver shows, and whether torch can use it."""
    cards = "; ".join(f"{card.name}, {card.free_gb:.0f} of {card.total_gb:.0f} GB free" for card in gpus())
    if not cards:
        raise _Absent("nvidia-smi shows no NVIDIA GPU; editors with open weights need one")
    if find_spec("torch") is not None and (fault := _torch_fault()):
        raise _Absent(f"{cards}; but torch {version('torch')} cannot use it ({fault}): install a torch for your GPU")
    return cards


def _torch_fault() -> str:
    """Why torch has no GPU; empty if it has one. In a process of its own, like every import that is tried."""
    command = [sys.executable, "-c", "import torch; torch.cuda.init()"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return "it does not start"
    return (tried.stderr.strip().splitlines() or ["it ends without a word"])[-1] if tried.returncode else ""


def _online() -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    try:
        socket.create_connection(_HUB, _HUB_SECONDS).close()
    except OSError:
        return False
    return True


def _hub(*, online: bool) -> str:
    """Whether the hub knows who is asking: weights with a licence to accept need it."""
    if find_spec("huggingface_hub") is None:
        raise _Absent('not installed: run `pip install "stillme[diffusers]"`')
    hub: Any = import_module("huggingface_hub")
    if not hub.get_token():
        raise _Absent("not logged in; gated weights need `hf auth login`")
    if not online:
        raise _Absent("offline: whether token and licences are valid is unknown")
    try:
        return f"logged in as {hub.whoami()['name']}"
    except Exception as error:
        raise _Absent(f"the token is rejected ({type(error).__name__}); run `hf auth login`") from None


def _plugins(kind: registry.Buildable, faults: Mapping[str, str], *, online: bool) -> Iterator[DoctorCheck]:
    for name in registry.plugins(kind):
        try:
            plugin = _built(kind, name)
            lacking = list(_lacking(registry.plugin_class(kind, name).needs, plugin, faults, online=online))
        except Exception as error:  # one broken package must not hide the others
            detail = str(error) if isinstance(error, StillmeError) else f"{type(error).__name__}: {error}"
            yield DoctorCheck(name=f"{kind} {name}", state="broken", detail=detail)
            continue
        ready = "ready" if plugin else "installed; it needs parameters, which an audit checks"
        state = "lacking" if lacking else "ok"
        yield DoctorCheck(name=f"{kind} {name}", state=state, detail="; ".join(lacking) or ready)


def _built(kind: registry.Buildable, name: str) -> Editor | Judge | None:
    """The plugin as it is; None if it cannot be judged without the user's parameters."""
    try:
        return registry.build(kind, name, {}, ready=False)
    except InvalidParameters:
        return None


def _lacking(needs: Needs, plugin: Editor | Judge | None, faults: Mapping[str, str], *, online: bool) -> Iterator[str]:
    unmet = registry.unmet(needs)
    yield from unmet
    if not unmet:
        broken = [target for target in _targets(needs) if faults.get(target)]
        # The first says why; the others follow from it.
        yield from (f"{target} cannot be imported ({faults[target]}); run `pip check`" for target in broken[:1])
    if plugin and not unmet:
        yield from plugin.problems([], [])
    if plugin:
        yield from plugin.lacking(online=online)


def _targets(needs: Needs) -> tuple[str, ...]:
    return (*needs.modules, *needs.imports)


def _import_faults() -> dict[str, str]:
    """Why what plugins import cannot be imported; only of packages that are installed."""
    targets: dict[str, None] = {}
    for kind in ("editor", "judge"):
        for name in registry.plugins(kind):
            try:
                needs = registry.plugin_class(kind, name).needs
            except Exception:  # named with its own check
                continue
            if not registry.unmet(Needs(modules=needs.modules)):
                targets.update(dict.fromkeys(_targets(needs)))
    return tried_imports(list(targets))


def tried_imports(targets: Sequence[str]) -> dict[str, str]:
    """For each `module` or `module:name` why it cannot be imported; empty where it can."""
    faults: dict[str, str] = {}
    while rest := [target for target in targets if target not in faults]:
        ended = "the import does not end"
        try:
            tried = subprocess.run(
                [sys.executable, "-c", _TRY_IMPORTS, *rest], capture_output=True, text=True, timeout=_IMPORT_SECONDS
            )
            shown, ended = tried.stdout, f"the import ends the process with {tried.returncode}"
        except subprocess.TimeoutExpired as error:
            shown = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        for target, fault in map(json.loads, shown.splitlines()):
            faults[target] = fault.partition("\n")[0][:200]
        if all(target in faults for target in rest):
            break
        # The process ended at this one; the others are tried without it.
        faults[next(target for target in rest if target not in faults)] = ended
    return faults
