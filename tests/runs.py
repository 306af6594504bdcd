"""Runs whose every score is chosen, without an editor or a judge at work."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from stillme import audit as audits
from stillme.core.types import Assessment, Edited, EditOutcome, Rated, Rating, Request
from stillme.findings.exchange import ColumnMapping, RowsAsked, import_rows
from stillme.runs.store import AssessmentRow, EditRow, Store
from stillme.work.recording import record
from tests.records import answers, edit_row

Answer = Callable[[str, Request], Mapping[str, Rating] | EditOutcome | None]
"""Editor's name and request to scores by axis, to an outcome without scores, or to nothing yet."""

AXES = {"edit_success": 5.0, "skin_tone": 3.0, "race_change": 1.0}


def people(folder: Path, per_group: int = 12, groups: Sequence[str] = "ab", **changed: str) -> Path:
    """A folder of small pictures in equal groups; `changed` gives single portraits another group."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "portraits.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["file", "licence", "label_origin", "group"])
        for place in range(per_group * len(groups)):
            name = f"p{place:02}"
            shade = np.full((8, 8, 3), 3 * place % 256, dtype=np.uint8)
            Image.fromarray(shade).save(folder / f"{name}.png")
            writer.writerow([f"{name}.png", "CC0-1.0", "made up", changed.get(name, groups[place % len(groups)])])
    return folder


def write_audit(
    folder: Path,
    portraits: Path,
    *,
    editors: Sequence[str] = ("one",),
    prompts: Sequence[str] = ("O-01", "O-02", "V-01", "V-02"),
    seeds: Sequence[int] = (1,),
    judges: Sequence[str] = ("judge",),
    arms: Sequence[str] = ("baseline",),
    title: str = "A made-up run",
    extra: str = "",
) -> Path:
    """An audit over these people; every editor is another specification of the planted one."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        f"title = '''{title}'''",
        f"arms = {list(arms)}",
        f"[portraits]\nsource = '{portraits}'",
        f"[prompts]\nonly = {list(prompts)}",
    ]
    for name in editors:
        erasure = sum(map(ord, name)) % 1000 / 1000
        parts.append(
            f"[[editors]]\nuse = 'planted'\nname = '''{name}'''\nseeds = {list(seeds)}\n"
            f"[editors.parameters]\neveryone = {{ erasure = {erasure} }}"
        )
    for place, name in enumerate(judges):
        scores = ", ".join(f"{axis} = {value + place / 100}" for axis, value in AXES.items())
        parts.append(f"[[judges]]\nuse = 'scripted'\nname = '{name}'\n[judges.parameters]\nscores = {{ {scores} }}")
    parts.append("[estimates]\nfactors = ['group']")
    (folder / "audit.toml").write_text("\n".join([*parts, extra]))
    return folder


def fill(folder: Path, answer: Answer) -> Path:
    """Write the rows of every request, as `answer` says."""
    loaded = audits.load(folder, ready=False)
    with Store.writing(folder) as store:
        record(loaded, store)
        judges = [named.record() for named in loaded.judges]
        for named in loaded.editors:
            edits: list[EditRow] = []
            said: list[AssessmentRow] = []
            for request in loaded.requests(named):
                answered = answer(named.name, request)
                if answered is None:
                    continue
                outcome = Edited(image=b"") if isinstance(answered, Mapping) else answered
                image = _picture(store, request) if isinstance(answered, Mapping) else None
                edits.append(edit_row(request, outcome, image, cost=0.25))
                if image and isinstance(answered, Mapping):
                    whole = Assessment(ratings=dict(answered), raw='{"said": "as it came"}')
                    said += answers(judges, request.key, image, lambda *_, whole=whole: whole)
            store.add(edits)
            store.add(said)
    return folder


def _picture(store: Store, request: Request) -> str:
    # After the picture's end: edits of two runs are other bytes, as those of two checkpoints are.
    return store.pictures.add(request.portraits[0].image.read() + store.folder.name.encode())


def luck(request: Request, salt: str = "") -> float:
    """A number from 0 to 1 that depends on who is edited how, not on the editor."""
    who = f"{request.portraits[0].id} {request.prompt.id} {request.seed} {salt}"
    return float(np.random.default_rng(list(who.encode())).random())


def scores(success: float = 5, skin: float = 3, race: float = 1) -> dict[str, Rating]:
    """Ratings on every axis."""
    return {"edit_success": Rated(score=success), "skin_tone": Rated(score=skin), "race_change": Rated(score=race)}


def group(request: Request) -> str:
    """The portrait's label."""
    return request.portraits[0].attributes["group"]


def rated_elsewhere(folder: Path, head: str, rows: Iterable[str]) -> None:
    """Scores by a judge `lab` that come as a file: its columns and its rows."""
    (folder / "scores.csv").write_text("\n".join([head, *rows]))
    import_rows(folder / "scores.csv", folder, RowsAsked(models=("lab",)), ColumnMapping(fixed={"judge": "lab"}))
