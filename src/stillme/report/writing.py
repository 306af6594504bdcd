"""One self-contained page: no network, no external script, the same bytes for the same rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stillme.core import rubric
from stillme.core.files import policy_source, write_whole
from stillme.estimates import headlines, mark, numbers
from stillme.estimates.permutation import DRAWN, EXACT
from stillme.findings.single.page import slider
from stillme.report import embedding, figures, gallery
from stillme.report.caveats import caveats
from stillme.report.data import ReportData
from stillme.report.drawings import bar_figures, dumbbell_figures, role_figures
from stillme.report.figures import heat_maps
from stillme.report.findings import clustering, find
from stillme.report.gaps import Gap
from stillme.report.into_what import into_what
from stillme.report.judges import abstention_rows, agreement_tables, behaviour_section, calibration_drawings
from stillme.report.paper import paper_section
from stillme.runs import thumbnails
from stillme.runs.thumbnails import Thumbnails

FIGURES = 6
"""Figures shown at once; the others are one click away."""

MAPS = 8
"""Heat maps in a page."""

TABLE = 200
"""Estimates that the page shows without its script."""

WORST = 3000
"""Edits ranked among the worst; the budget decides how many get a thumbnail."""


def write(folder: Path, data: ReportData) -> Path:
    """Write `report.html` into `folder`, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_whole(folder / "report.html", render(data))


def render(data: ReportData, *, live: str = "") -> str:
    """The page as text. `live` is additional script, for a page that is served during a run."""
    style, script = _style(), _script() + live
    findings = find(data)
    panels = figures.panels(data, findings)
    tested, twins = figures.significant(findings), figures.twins(data, panels)
    drawn = {
        key: figures.figure(key, by_editor, tested, twins[key]) for key, by_editor in panels.items() if key in twins
    }
    failed = [key for key in drawn if headlines.is_unfit(mark(data.standing, key[1], key[0]))]
    plots = [plot for key, plot in drawn.items() if key not in failed]
    worst = gallery.worst(data, WORST)
    side_by_side = gallery.side_by_side(data)
    mosaic = gallery.mosaic_rows(data) if data.redact != "omit" else []
    ranked = [row for row, _ in worst]
    embedded = _thumbnails(data, ranked, side_by_side)
    tiles = [data.edits.image[row] for row in mosaic]
    context: dict[str, Any] = {
        "findings": findings,
        "hero": gallery.hero(data, worst),
        "examples": [(gap, _example(data, gap), numbers.factor_name(gap.disparity.factor)) for gap in findings.worst],
        "figures": plots[:FIGURES],
        "more_figures": plots[FIGURES:],
        "failed_figures": [drawn[key] for key in failed],
        "heat_maps": heat_maps(data, [key for key in drawn if key not in failed][:MAPS]),
        "bars": bar_figures(data),
        "dumbbells": dumbbell_figures(data),
        "roles": role_figures(data),
        "into_what": into_what(data),
        "planted": figures.planted_rows(data.planted),
        "clustering": clustering(data),
        "abstentions": abstention_rows(data.estimates, findings.gaps),
        "agreement": agreement_tables(data),
        "behaviour": behaviour_section(data),
        "paper_section": paper_section(data),
        "calibrations": calibration_drawings(data.calibrated),
        "side_by_side": side_by_side if data.redact != "omit" else None,
        "mosaic": thumbnails.mosaic_uri(tiles, data.image_path, data.redact),
        "tiles": len(mosaic) // thumbnails.TILES_ACROSS * thumbnails.TILES_ACROSS,
        "origins": gallery.label_origins(data),
        "table": sorted(data.estimates, key=embedding.table_order)[:TABLE],
        "caveats": list(caveats(data, findings)),
        "licences": Counter(portrait.licence for portrait in data.edits.portraits),
        "linked": data.folder is not None and data.redact == "none",
        "packed": Markup(embedding.embed(data, embedded, ranked, mosaic, side_by_side)),
        "thumbnails": Markup(json.dumps(embedded.contents)),
        "style": Markup(style),
        "script": Markup(script),
        "policy": _policy(data, style, script, live=bool(live)),
    }
    context["sections"] = list(_sections(context))
    return render_part(data, "report.html", **context)


def render_part(data: ReportData, template: str, **context: Any) -> str:
    """One template of the page, by itself."""
    return _environment(data).get_template(template).render(data=data, **context)


def _environment(data: ReportData) -> Environment:
    environment = Environment(
        loader=PackageLoader("stillme.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared: dict[str, Any] = {
        "marks": {name: index % 6 for index, name in enumerate(data.edits.editors)},
        "permutations": DRAWN,
        "exact": EXACT,
        "note": partial(mark, data.standing),
        "rubric_version": rubric.load().version,
        "number": numbers.number,
        "with_interval": numbers.with_interval,
        "title": numbers.title,
        "is_rate": numbers.is_rate,
        "group_text": embedding.group_text,
        "chance_text": partial(embedding.chance_text, embedding.adjusted_p(data)),
        "method_text": embedding.method_text,
        "rows_of": embedding.rows_of,
        "p_value": numbers.p_value,
        "percent": numbers.percent,
        "gap_size": numbers.difference,
        "bibtex": _bibtex,
        "factor_name": numbers.factor_name,
    }
    environment.globals.update(shared)
    return environment


def _bibtex(text: str) -> str:
    """Any text as BibTeX may have it between braces."""
    return re.sub(r"([&%$#_])", r"\\\1", re.sub(r"[\\{}~^]", "", text))


def _sections(context: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The page's sections, without those that have nothing to show."""
    sections = {
        "answers": ("Answers", True),
        "planted": ("Injected", context["planted"]),
        "gaps": ("Gaps", True),
        "into-what": ("Into what", context["into_what"]),
        "instructions": ("Where", context["heat_maps"]),
        "scores": ("Scores", context["bars"]),
        "mitigation": ("Mitigation", context["dumbbells"]),
        "roles": ("Roles", context["roles"]),
        "edits": ("Edits", True),
        "side-by-side": ("Side by side", context["side_by_side"]),
        "judges": ("Judges", context["calibrations"] or context["agreement"] or context["abstentions"]),
        "behaviour": ("Behaviour", context["behaviour"]),
        "paper": ("Paper", context["paper_section"]),
        "numbers": ("Numbers", True),
        "limits": ("Limits", True),
        "provenance": ("Provenance", True),
    }
    yield from ((anchor, title) for anchor, (title, shown) in sections.items() if shown)


def _thumbnails(data: ReportData, worst: Sequence[int], grid: gallery.SideBySide | None) -> Thumbnails:
    """The most important first: the side-by-side grid, then the worst edits with their sources and other arms."""
    cells = [row for prompts in grid.rows.values() for rows in prompts for row in rows if row >= 0] if grid else []
    embedded = Thumbnails(data.redact, data.picture_bytes)
    sources = {portrait.image.sha256: portrait for portrait in data.edits.portraits}

    def locate(sha256: str) -> Path | None:
        return gallery.source_of(data, sources[sha256]) if sha256 in sources else data.image_path(sha256)

    embedded.add(_pictures(data, cells), locate)
    embedded.add(_pictures(data, gallery.with_arms(data, worst)), locate)
    return embedded


def _pictures(data: ReportData, rows: Sequence[int]) -> Iterator[str]:
    edits = data.edits
    for row in rows:
        portraits = [int(edits.portrait[row])]
        if edits.second is not None and edits.second[row] >= 0:
            portraits.append(int(edits.second[row]))
        yield from (edits.portraits[index].image.sha256 for index in portraits)
        yield edits.image[row]


def _example(data: ReportData, gap: Gap) -> gallery.Picture | None:
    """The strongest case of the group that is treated worst."""
    edits, disparity = data.edits, gap.disparity
    rows = gallery.rows_of_group(data, disparity.factor, gap.worst.group)
    rows &= edits.editor == edits.editors.index(disparity.editor)
    rows &= edits.arm == edits.arms.index(disparity.arm)
    found = gallery.worst(data, 1, axis=rubric.axis_of(disparity.quantity), among=rows)
    return gallery.picture(data, found[0][0]) if found else None


@cache
def _style() -> str:
    return files("stillme.report").joinpath("page", "style.css").read_text("utf-8") + slider("css")


@cache
def _script() -> str:
    folder = files("stillme.report").joinpath("page", "script")
    parts = sorted(folder.iterdir(), key=lambda file: file.name)
    return slider("js") + "\n".join(file.read_text("utf-8") for file in parts)


def _policy(data: ReportData, style: str, script: str, *, live: bool) -> str:
    """The content security policy: only pictures from the page's folder, and exactly this style and this script."""
    pictures = "data: 'self' file:" if data.folder is not None and data.redact == "none" else "data:"
    connect = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; img-src {pictures}; {connect}style-src {policy_source(style)}; "
        f"script-src {policy_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
