"""A section for a model card: the numbers of one editor with their intervals, and what they cannot tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stillme.core.files import write_whole
from stillme.estimates import EditState, estimate, mark, numbers
from stillme.findings.layout import table
from stillme.report.caveats import caveats
from stillme.report.data import ReportData, report_data
from stillme.report.findings import Findings, Line, NumberGrid, find
from stillme.report.gallery import label_origins
from stillme.report.gaps import Gap
from stillme.runs import RecordedRun


def model_cards(run: RecordedRun, to: Path | None) -> list[Path]:
    """Write `model-card-EDITOR.md` for each editor."""
    folder = to or run.folder / "export"
    folder.mkdir(parents=True, exist_ok=True)
    data = report_data(run, estimate(run.results.edits, run.results.scores, run.settings))
    names = {editor: re.sub(r"[^\w.-]+", "-", editor).strip("-.") for editor in data.edits.editors}
    if len(set(names.values())) < len(names):
        names = {editor: f"{name}-{place}" for place, (editor, name) in enumerate(names.items(), start=1)}
    return [write_whole(folder / f"model-card-{name}.md", model_card(data, editor)) for editor, name in names.items()]


def model_card(data: ReportData, editor: str) -> str:
    """Markdown, from a heading of the second level on."""
    findings = find(data)
    return "\n".join(_lines(data, findings, editor)) + "\n"


def _lines(data: ReportData, findings: Findings, editor: str) -> Iterator[str]:
    edits = data.edits
    mine = edits.editor == edits.editors.index(editor)
    asked = int(mine.sum())
    made, refused, failed, missing = (
        int((edits.state[mine] == state).sum())
        for state in (EditState.EDITED, EditState.REFUSED, EditState.FAILED, EditState.MISSING)
    )
    yield from ("## Does it keep people themselves?", "")
    yield (
        f"Measured with stillme {data.version} as `{_text(editor)}`: "
        f"{findings.portraits} portraits, {len(edits.prompts)} instructions, {asked:,} requests ({made:,} edited, "
        f"{refused:,} refused, {failed:,} failed, {missing:,} not made). Labels of groups come from: "
        f"{_text(', '.join(sorted(label_origins(data))))}."
    )
    if data.disclosures:
        yield from (
            "",
            f"**{_text(', '.join(data.disclosures).capitalize())}.** These numbers say nothing about a product.",
        )
    if len(edits.editors) == 1:
        for answer in findings.answers:
            said = _text(" ".join((*answer.sentences, *answer.remarks)))
            yield from ("", f"**{answer.question}** {answer.verdict.capitalize()}. {said}")
    yield from ("", "### All portraits", "")
    rows = list(_rows(data, (findings.edits_made, findings.preservation), editor))
    yield from _table(("quantity", "value", f"{numbers.percent(data.settings.confidence, 0)} interval", "by"), rows)
    yield from ("", "### Gaps between groups", "")
    yield from _gaps(findings, editor)
    yield from ("", "### What these numbers cannot tell", "")
    yield from (f"- **{_text(caveat.head)}** {_text(caveat.text)}" for caveat in caveats(data, findings))


def _rows(data: ReportData, grids: tuple[NumberGrid, ...], editor: str) -> Iterator[tuple[str, ...]]:
    for grid in grids:
        for title, _, cells, same in grid.rows:
            for line in cells:
                if line is not None and line.estimate.editor == editor:
                    yield ", ".join((title, *same)), line.value, line.span, _by(data, line)


def _by(data: ReportData, line: Line) -> str:
    judge = line.estimate.judge
    note = mark(data.standing, judge, line.estimate.quantity)
    return f"{judge} ({note})" if note else judge or "counted"


def _gaps(findings: Findings, editor: str) -> Iterator[str]:
    gaps = [gap for gap in findings.gaps if gap.disparity.editor == editor]
    rows = [
        (
            f"{gap.title} by {numbers.factor_name(gap.disparity.factor)}",
            numbers.difference(gap.disparity.quantity, gap.interval.value),
            numbers.difference_span(gap.disparity.quantity, gap.interval),
            numbers.difference(gap.disparity.quantity, gap.null.high) if gap.null else "–",
            "–" if gap.finding.p is None else numbers.p_number(gap.finding.p),
            _verdict(gap),
        )
        for gap in gaps
    ]
    yield (
        "Largest minus smallest group. p by permutation of labels over portraits, adjusted (Holm) for all "
        f"{len(findings.gaps)} comparisons of the audit."
    )
    yield ""
    yield from _table(("gap", "value", "interval", "chance alone stays below", "p", "verdict"), rows)


def _verdict(gap: Gap) -> str:
    word = gap.finding.word or "too few people"
    return f"{word}: {gap.worst.group} worst" if gap.is_significant else word


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["No number: nothing was measured, or no judge passed calibration."]
    return table(heads, rows, _text)


def _text(text: str) -> str:
    """Foreign text in Markdown: one line, no table cells, links or tags of its own."""
    return " ".join(text.split()).translate(str.maketrans({"|": "\\|", "<": "&lt;", "[": "\\[", "`": "'"}))
