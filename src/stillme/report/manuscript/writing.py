"""Draw every figure that the data allow, give the reason for the others, and write the same bytes for the same rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from stillme.errors import StillmeError
from stillme.files import whole
from stillme.report import figures
from stillme.report.data import ReportData
from stillme.report.findings import find

Format = Literal["pdf", "png", "svg"]
FORMATS: tuple[Format, ...] = ("pdf", "png", "svg")

_METADATA: dict[Format, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "ModDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}
"""No time of day: the same rows give the same bytes."""

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "stillme",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was drawn, and what could not be."""

    files: tuple[Path, ...]
    skipped: tuple[tuple[str, str], ...]
    """Name and reason."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    draw: Callable[[], Any | str]
    """A figure, or the reason why there is none."""


def write_figures(folder: Path, data: ReportData, formats: Sequence[Format]) -> Written:
    """Write every figure that the rows allow into `folder`, in each of the formats."""
    if find_spec("matplotlib") is None:
        raise StillmeError("Figures need matplotlib, which is not installed; `pip install 'stillme[figures]'`.")
    matplotlib: Any = import_module("matplotlib")
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    skipped: list[tuple[str, str]] = []
    with matplotlib.rc_context(_STYLE):
        for candidate in _candidates(data):
            figure = candidate.draw()
            if isinstance(figure, str):
                skipped.append((candidate.name, figure))
            else:
                files += [_save(figure, folder / f"{candidate.name}.{kind}", kind) for kind in formats]
    return Written(files=tuple(files), skipped=tuple(skipped))


def _candidates(data: ReportData) -> Iterator[_Candidate]:
    from stillme.report.manuscript import arms, examples, forests, overview, portraits, rates, roles

    yield _Candidate("figure-01-worst-edits", lambda: examples.worst(data))
    yield _Candidate("figure-02-failure-modes", lambda: examples.failures(data))
    yield _Candidate("figure-03-overview", lambda: overview.draw(data))
    yield _Candidate("figure-04-rates-by-group", lambda: rates.draw(data))
    yield _Candidate("figure-05-before-and-after", lambda: portraits.before_and_after(data))
    yield _Candidate("figure-06-what-the-arm-changes", lambda: arms.draw(data))
    yield _Candidate("figure-07-roles", lambda: roles.draw(data))
    yield _Candidate("figure-12-mosaic", lambda: portraits.mosaic(data))
    yield _Candidate("figure-13-one-instruction-every-group", lambda: portraits.grid(data))
    for (quantity, judge, factor), panels in figures.panels(data, find(data)).items():
        name = "-".join(part for part in ("forest", quantity, "by", factor, judge) if part)
        yield _Candidate(re.sub(r"[^\w-]+", "_", name), lambda panels=panels: forests.draw(data, panels))


def _save(figure: Any, path: Path, kind: Format) -> Path:
    with whole(path) as draft:
        figure.savefig(draft, format=kind, metadata=_METADATA[kind], bbox_inches="tight")
    return path
