"""One self-contained page: no network, no outside script, the same bytes for the same rows."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stillme import rubric
from stillme.estimates import Scores, mark
from stillme.estimates.disparity import DEALS
from stillme.report import (
    agreement,
    album,
    calibrated,
    embedding,
    figures,
    gallery,
    heat,
    likert,
    links,
    mitigation,
    numbers,
    roles,
)
from stillme.report.album import Album
from stillme.report.caveats import caveats
from stillme.report.data import ReportData
from stillme.report.findings import Gap, alikeness, find

FIGURES = 6
"""Figures shown at once; the others are one click away."""

MAPS = 8
"""Maps of shades that a page carries."""

TABLE = 200
"""Estimates that stand in the page without its script."""

WORST = 3000
"""Edits that are looked for among the worst; the budget decides how many get a thumbnail."""


def write(folder: Path, data: ReportData) -> Path:
    """Write `report.html` into `folder`, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    partial = folder / f".report.{os.getpid()}"
    with partial.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(render(data))
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    return path


def render(data: ReportData, *, live: str = "") -> str:
    """The page as text. `live` is more script, for a page that is served while a run goes on."""
    style, script = _style(), _script() + live
    findings = find(data)
    panels = figures.panels(data, findings)
    certain = figures.beyond_chance(findings)
    drawn = [figures.figure(key, each, beyond_chance=key in certain) for key, each in panels.items()]
    worst = gallery.worst(data, WORST)
    crossing = gallery.crossing(data)
    sampled = gallery.sample(data) if data.redact != "omit" else []
    thumbnails = _album(data, worst, crossing)
    choices = embedding.Choices(worst=[row for row, _ in worst], mosaic=sampled, crossing=crossing)
    sheet = album.mosaic([path for path in _paths(data, sampled) if path], data.redact)
    ordered = sorted(data.estimates, key=embedding.table_place)
    context: dict[str, Any] = {
        "data": data,
        "findings": findings,
        "hero": gallery.hero(data, worst),
        "examples": [(gap, _example(data, gap), numbers.factor(gap.found.factor)) for gap in findings.worst],
        "shown": drawn[:FIGURES],
        "folded": drawn[FIGURES:],
        "heats": heat.heat_maps(data, list(panels)[:MAPS]),
        "bars": likert.bars(data),
        "dumbbells": mitigation.dumbbells(data),
        "roles": roles.roles(data),
        "planted": figures.planted_rows(data.planted),
        "alikeness": alikeness(data),
        "agreement": agreement.trust(data),
        "calibrations": calibrated.drawn(data.calibrated),
        "crossing": crossing if data.redact != "omit" else None,
        "mosaic": sheet,
        "tiles": len(sampled) // 24 * 24,
        "origins": gallery.label_origins(data),
        "table": ordered[:TABLE],
        "caveats": list(caveats(data, findings)),
        "licences": Counter(portrait.licence for portrait in data.edits.portraits),
        "linked": data.folder is not None and data.redact == "none",
        "packed": Markup(embedding.embed(data, thumbnails, choices)),
        "thumbnails": Markup(json.dumps(thumbnails.contents)),
        "style": Markup(style),
        "script": Markup(script),
        "policy": _policy(data, style, script, live=bool(live)),
    }
    context["sections"] = list(_sections(context))
    return _environment(data).get_template("report.html").render(context)


def _environment(data: ReportData) -> Environment:
    environment = Environment(
        loader=PackageLoader("stillme.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known: dict[str, Any] = {
        "marks": {name: place % 6 for place, name in enumerate(data.edits.editors)},
        "deals": DEALS,
        "note": partial(mark, data.standing),
        "rubric_version": rubric.load().version,
        "number": numbers.number,
        "limits": numbers.limits,
        "title": numbers.title,
        "is_rate": numbers.is_rate,
        "who": embedding.who,
        "chance": embedding.chance,
        "method": embedding.method,
        "rows_of": links.rows_of,
        "factor_name": numbers.factor,
    }
    environment.globals.update(known)
    return environment


def _sections(context: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The page's parts, without those that have nothing to show."""
    named = {
        "answers": ("Answers", True),
        "planted": ("Planted", context["planted"]),
        "gaps": ("Gaps", True),
        "instructions": ("Where", context["heats"]),
        "scores": ("Scores", context["bars"]),
        "mitigation": ("Mitigation", context["dumbbells"]),
        "roles": ("Roles", context["roles"]),
        "edits": ("Edits", True),
        "side-by-side": ("Side by side", context["crossing"]),
        "judges": ("Judges", context["calibrations"] or context["agreement"]),
        "numbers": ("Numbers", True),
        "limits": ("Limits", True),
        "provenance": ("Provenance", True),
    }
    yield from ((anchor, title) for anchor, (title, there) in named.items() if there)


def _album(data: ReportData, worst: Sequence[tuple[int, Scores]], crossing: gallery.Crossing | None) -> Album:
    """The most wanted first: the grid, the people in it, then the worst edits with their people and other arms."""
    made = Album(data.redact, data.picture_bytes)
    rows = [row for each in crossing.rows.values() for line in each for row in line if row >= 0] if crossing else []
    made.add(_wanted(data, rows))
    made.add(_wanted(data, gallery.with_arms(data, [row for row, _ in worst])))
    return made


def _wanted(data: ReportData, rows: Sequence[int]) -> Iterator[album.Wanted]:
    edits = data.edits
    for row, path in zip(rows, _paths(data, rows), strict=True):
        people = [int(edits.portrait[row])]
        if edits.second is not None and edits.second[row] >= 0:
            people.append(int(edits.second[row]))
        for place in people:
            yield edits.portraits[place].image.sha256, edits.portraits[place].image.path
        yield edits.image[row], path


def _paths(data: ReportData, rows: Sequence[int]) -> Iterator[Path | None]:
    for row in rows:
        yield data.image_path(data.edits.image[row]) if data.edits.image[row] else None


def _example(data: ReportData, gap: Gap) -> gallery.Picture | None:
    return gallery.example(
        data,
        editor=gap.found.editor,
        arm=gap.found.arm,
        axis=gallery.axis_of(gap.found.quantity),
        factor=gap.found.factor,
        group=gap.worst.group,
    )


@cache
def _style() -> str:
    return files("stillme.report").joinpath("page", "style.css").read_text("utf-8")


@cache
def _script() -> str:
    folder = files("stillme.report").joinpath("page", "script")
    return "\n".join(part.read_text("utf-8") for part in sorted(folder.iterdir(), key=lambda each: each.name))


def _policy(data: ReportData, style: str, script: str, *, live: bool) -> str:
    """Nothing may be fetched but pictures beside the page; only this very style and this very script may apply."""
    pictures = "data: 'self' file:" if data.folder is not None and data.redact == "none" else "data:"
    asking = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; img-src {pictures}; {asking}style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
