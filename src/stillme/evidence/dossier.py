"""Which documentation duty a bundle speaks to, with which number, and which it does not. No legal advice."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from stillme import __version__, estimates, numbers
from stillme.calibration import standing_of
from stillme.estimates import RatingState, mark
from stillme.evidence.opening import opened_bundle
from stillme.evidence.sealing import Sealed
from stillme.files import write_whole
from stillme.report.caveats import Caveat, caveats
from stillme.report.contents import report_data
from stillme.report.data import ReportData
from stillme.report.findings import Findings, find
from stillme.results import Run
from stillme.types import Estimate

_DISCLAIMER = (
    "This page maps numbers to questions. It is no legal advice and no statement of conformity; whether a duty applies "
    "to you, and whether it is met, is for you and your advisers to decide. Duties are given in our words; read the "
    "texts."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """One question that documentation must answer."""

    framework: str
    place: str
    """Article, subcategory, clause or control."""
    asks: str
    evidence: tuple[str, ...]
    """Names in `EVIDENCE`; empty where no bundle answers."""
    missing: str
    """What a bundle leaves open in any case."""


def duties() -> tuple[Mapping[str, Mapping[str, str]], tuple[Duty, ...]]:
    """The frameworks by key, and every duty."""
    data = tomllib.loads(files("stillme.evidence").joinpath("duties.toml").read_text("utf-8"))
    frameworks = {entry["key"]: entry for entry in data["frameworks"]}
    asked = (replace(Duty(**entry), evidence=tuple(entry["evidence"])) for entry in data["duties"])
    return frameworks, tuple(asked)


def write_dossier(sealed: Sealed) -> Path:
    """Write `NAME.dossier.md` beside a bundle, from what is in the bundle."""
    with opened_bundle(sealed.file) as run:
        text = dossier(run, sealed)
    return write_whole(sealed.file.with_suffix(".dossier.md"), text)


def dossier(run: Run, sealed: Sealed) -> str:
    """The page as Markdown."""
    frameworks, asked = duties()
    bundle = _Bundle(run, sealed)
    lines = [
        f"# Evidence dossier: {_cell(run.title)}",
        "",
        _DISCLAIMER,
        "",
        (
            f"Bundle `{sealed.file.name}`, root `{sealed.root}`, written by stillme {__version__}. Check it with "
            f"`stillme verify {sealed.file.name} --root {sealed.root}`."
        ),
    ]
    for key, framework in frameworks.items():
        lines += ["", f"## {framework['title']}", "", framework["note"], ""]
        lines += ["| place | asks for | this bundle | it does not say |", "|---|---|---|---|"]
        lines += [
            f"| {duty.place} | {_cell(duty.asks)} | {_answer(duty, bundle)} | {_cell(duty.missing)} |"
            for duty in asked
            if duty.framework == key
        ]
    lines += ["", "## The evidence", ""]
    lines += [f"- **{name}**: {_cell(sentence)}" for name, sentence in bundle.sentences.items() if sentence]
    absent = [name for name, sentence in bundle.sentences.items() if not sentence]
    if absent:
        lines += ["", f"Not in this bundle: {', '.join(absent)}."]
    lines += ["", "## What these numbers cannot tell", ""]
    lines += [f"- **{_cell(caveat.head)}** {_cell(caveat.text)}" for caveat in bundle.caveats]
    return "\n".join(lines) + "\n"


def _answer(duty: Duty, bundle: _Bundle) -> str:
    if not duty.evidence:
        return "not answered"
    there = [name for name in duty.evidence if bundle.sentences[name]]
    lacking = [name for name in duty.evidence if not bundle.sentences[name]]
    if not there:
        return f"nothing: it has no {' or '.join(lacking)}"
    rest = f"; has no {' or '.join(lacking)}" if lacking else ""
    return f"in part: {', '.join(there)}{rest}"


class _Bundle:
    """What one bundle has to show, a sentence for each kind of evidence; empty where it has none."""

    def __init__(self, run: Run, sealed: Sealed) -> None:
        self.run = run
        self.sealed = sealed

    @cached_property
    def data(self) -> ReportData:
        results = self.run.results
        return report_data(self.run, estimates.estimate(results.edits, results.scores, self.run.settings))

    @cached_property
    def findings(self) -> Findings:
        return find(self.data)

    @cached_property
    def caveats(self) -> list[Caveat]:
        return list(caveats(self.data, self.findings))

    @cached_property
    def sentences(self) -> Mapping[str, str]:
        return {name: sentence(self) for name, sentence in EVIDENCE.items()}


def _design(bundle: _Bundle) -> str:
    design = bundle.run.design
    return (
        f"{bundle.run.request_count:,} requests: {len(design.portraits)} portraits, {len(design.prompts)} "
        f"instructions, arms {', '.join(design.arms)}, editors {', '.join(editor.name for editor in design.editors)} "
        "(design.json, rows/requests.jsonl)"
    )


def _portraits(bundle: _Bundle) -> str:
    portraits = bundle.run.design.portraits
    groups = [
        f"{numbers.factor_name(factor)}: "
        + ", ".join(
            f"{level} {count}"
            for level, count in sorted(Counter(portrait.attributes.get(factor, "") for portrait in portraits).items())
            if level
        )
        for factor in bundle.run.design.factors
    ]
    licences = ", ".join(sorted({portrait.licence for portrait in portraits}))
    origins = ", ".join(sorted({portrait.label_origin for portrait in portraits}))
    counted = "; ".join(groups) or "no groups"
    return f"{len(portraits)} portraits ({counted}); labels from {origins}; licences {licences} (design.json)"


def _tools(bundle: _Bundle) -> str:
    judges = ", ".join(f"{judge.name} ({judge.spec.use} {judge.spec.version})" for judge in bundle.run.judges)
    editors = ", ".join(
        f"{editor.name} ({editor.spec.use} {editor.spec.version})" for editor in bundle.run.design.editors
    )
    return f"editors {editors}; judges {judges or 'none'}; all parameters in design.json, versions in evidence.json"


def _performance(bundle: _Bundle) -> str:
    shown = [
        line.estimate
        for grid in (bundle.findings.edits_made, bundle.findings.preservation)
        for _, _, cells in grid.rows
        for line in cells
        if line is not None and numbers.is_rate(line.estimate.quantity)
    ]
    rates = "; ".join(
        f"{one.editor}, {numbers.title(one.quantity)}: {numbers.with_interval(one)}{_note(bundle, one)}"
        for one in shown
    )
    return f"{rates} (tables/estimates.csv)" if rates else ""


def _note(bundle: _Bundle, estimate: Estimate) -> str:
    note = mark(bundle.data.standing, estimate.judge, estimate.quantity)
    return f", {note}" if note else ""


def _gaps(bundle: _Bundle) -> str:
    gaps = bundle.findings.gaps
    if not gaps:
        return ""
    beyond = [gap for gap in gaps if gap.beyond_chance]
    first = [
        f"{gap.disparity.editor}, {gap.title} by {numbers.factor_name(gap.disparity.factor)}: "
        f"{numbers.difference(gap.disparity.quantity, gap.interval.value)} "
        f"({numbers.difference_span(gap.disparity.quantity, gap.interval)}; {numbers.p_value(gap.adjusted)} after Holm)"
        for gap in gaps[:3]
    ]
    return (
        f"{len(gaps)} gaps between groups were tested, {len(beyond)} are beyond chance; the most certain: "
        f"{'; '.join(first)} (tables/disparities.csv)"
    )


def _limits(bundle: _Bundle) -> str:
    return f"{len(bundle.caveats)} limits of this audit, listed below"


def _calibration(bundle: _Bundle) -> str:
    standing = standing_of(bundle.run)
    parts: list[str] = []
    for judge in bundle.run.judges:
        axes = standing.get(judge.name)
        if axes is None:
            parts.append(f"{judge.name} was never calibrated")
            continue
        counts = Counter(axes.values())
        parts.append(f"{judge.name}: " + ", ".join(f"{verdict} on {count} axes" for verdict, count in counts.items()))
    tested = any(judge.name in standing for judge in bundle.run.judges)
    return "; ".join(parts) + " (design.json)" if tested else ""


def _people(bundle: _Bundle) -> str:
    people = bundle.run.results.people
    if not people:
        return ""
    rated = {score.axis: 0 for score in people}
    for score in people:
        rated[score.axis] += int((score.state == RatingState.RATED).sum())
    return "ratings by people, " + ", ".join(f"{axis} {count:,}" for axis, count in rated.items())


def _log(bundle: _Bundle) -> str:
    totals = bundle.run.totals()
    edits = ", ".join(f"{count:,} {outcome}" for outcome, count in totals.edits.items())
    written = bundle.run.store.written()
    dated = f", from {written[0]} to {written[1]}" if written else ""
    signed = f"signed in {bundle.sealed.signature.name}" if bundle.sealed.signature else "not signed"
    return f"every request and answer with its time ({edits}){dated}; {signed}"


def _gate(bundle: _Bundle) -> str:
    rules = bundle.run.design.resolved.get("gate", {}).get("rules", ())
    return f"{len(rules)} limits are part of the recorded configuration; `stillme gate` applies them" if rules else ""


EVIDENCE: Mapping[str, Callable[[_Bundle], str]] = {
    "design": _design,
    "portraits": _portraits,
    "tools": _tools,
    "performance": _performance,
    "gaps": _gaps,
    "limits": _limits,
    "calibration": _calibration,
    "people": _people,
    "log": _log,
    "gate": _gate,
}
"""What a bundle can show, by name."""


def _cell(text: str) -> str:
    """Text in a table: one line, without its separator."""
    return " ".join(text.split()).replace("|", "\\|")
