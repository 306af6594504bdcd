"""The paper's tables for other people's audits: the numbers are the estimates', and every cell answers for itself."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.api.pipeline import run_stages
from stillme.core.types import Interval
from stillme.estimates import EditState, Genders, RatingState, Scores, Settings, estimate, paired_effects
from stillme.findings.tables.paper import NUMBERS, Chosen, PaperTable, as_csv, as_latex, as_markdown, make_tables
from stillme.findings.tables.paper.diagnosis import (
    AXES,
    table_4,
    table_5,
    table_7,
    table_19,
    table_20,
    table_21,
    table_26,
)
from stillme.findings.tables.paper.people import table_6, table_18
from stillme.findings.tables.paper.source import Source
from stillme.findings.tables.paper.table import Absent, Cell, Count, Number, TableRow, Words
from stillme.runs import RecordedRun
from tests.command_lines import invoke, ran
from tests.estimates import worlds
from tests.estimates.test_roles import roles
from tests.runs import rated_elsewhere

Write = Callable[..., Path]
SETTINGS = Settings(factors=("race",))
EDITORS = ("flux", "qwen")


@pytest.fixture(scope="module")
def source() -> Source:
    """Race A drifts, and a feature prompt helps it; an ensemble, two models and people who see half a point less."""
    stream = np.random.default_rng(3)
    crowd = worlds.people("ABC", 8)
    shape = (len(crowd), 6, 2, 1, len(EDITORS))
    drift = np.where(np.array([each.attributes["race"] for each in crowd]) == "A", 2.0, 0.0)[:, None, None, None, None]
    treated = np.array([1.0, 0.2])[None, None, :, None, None]
    latent = drift * treated + stream.normal(0, 0.6, shape)
    edits, first = worlds.rows(crowd, worlds.ordinal(latent), arms=("baseline", "feature"), editors=EDITORS)
    scores: list[Scores] = []
    for axis in AXES:
        for judge, shift in (("one", 0.0), ("two", 0.0), ("ensemble (mean)", 0.0), ("people", -0.5)):
            value = np.clip(first.value + stream.integers(0, 2, len(edits)) + shift, 1, 5)
            kind = "person" if judge == "people" else "ensemble" if "(" in judge else "model"
            scores.append(Scores(judge=judge, axis=axis, value=value, state=first.state, kind=kind))
    return Source(
        edits=edits,
        scores=tuple(scores),
        settings=SETTINGS,
        factor="race",
        factors=("race", "gender"),
        people=frozenset({"people"}),
        standing={"ensemble (mean)": dict.fromkeys(AXES, "passed")},
    )


@pytest.fixture(scope="module")
def tables(source: Source) -> list[PaperTable]:
    made = (table_4, table_5, table_6, table_18, table_19, table_20, table_21, table_26)
    return [make(source) for make in made]


def cells(table: PaperTable) -> Iterator[tuple[TableRow, str, Cell]]:
    for row in table.rows:
        yield from ((row, column, cell) for column, cell in zip(table.head[1:], row.cells, strict=True))


def row_of(table: PaperTable, label: str, section: str = "") -> dict[str, Cell]:
    (row,) = [row for row in table.rows if (row.label, row.section) == (label, section)]
    return dict(zip(table.head[1:], row.cells, strict=True))


def value(cell: Cell) -> float:
    return cell.outcome.value


def by_number(tables: list[PaperTable], number: int) -> PaperTable:
    return next(table for table in tables if table.number == number)


def test_every_number_has_its_interval_and_its_n(tables: list[PaperTable]):
    numbers = [cell for table in tables for _, _, cell in cells(table) if isinstance(cell, Number)]
    assert len(numbers) > 100
    for cell in numbers:
        assert cell.outcome.low - 1e-12 <= cell.outcome.value <= cell.outcome.high + 1e-12
        assert 0 < cell.portraits <= 24
        assert cell.portraits <= cell.edits
    assert not [cell for table in tables for _, _, cell in cells(table) if isinstance(cell, Absent)]


def test_tables_match_portraits_as_the_estimates_do(source: Source):
    """A table compares one factor; the others are still what portraits were chosen by."""
    chosen_by = [{"gender": "fm"[place % 2], "age": str(place // 2)} for place in range(8)]
    crowd = tuple(
        replace(portrait, attributes={"race": race, **labels}, block="/".join(labels.values()))
        for race in "ABC"
        for portrait, labels in zip(worlds.people(race, 8), chosen_by, strict=True)
    )
    declared = replace(SETTINGS, factors=("race", "gender", "age"))
    baseline = replace(source, edits=replace(source.edits, portraits=crowd), settings=declared).in_arm("baseline")
    scores = [score for axis in AXES if (score := baseline.score(axis))]
    shown = [*baseline.estimates(AXES, by_group=True), *baseline.estimates(AXES, by_group=False)]
    assert len(shown) > 100
    known = estimate(baseline.edits, scores, declared)
    assert [one for one in shown if one not in known] == []
    assert any(isinstance(one.outcome, Interval) and "identities" in one.outcome.method for one in shown)


def test_without_an_ensemble_the_first_judge_speaks_and_people_never_do(source: Source):
    alone = replace(source, scores=tuple(score for score in source.scores if score.judge != "ensemble (mean)"))
    chosen = alone.score("race_change")
    assert chosen.judge == "one"
    asked = replace(source, judge="people").score("race_change")
    assert asked.judge == "people"
    only_people = replace(source, scores=tuple(score for score in source.scores if score.judge == "people"))
    for _, _, cell in cells(table_4(only_people)):
        assert isinstance(cell, Absent)
        assert re.match(r"only human raters score .*; `--judge people` shows their scores", cell.reason)
    nobody = replace(source, scores=())
    assert {cell.reason for _, _, cell in cells(table_4(nobody)) if isinstance(cell, Absent)} == {
        f"no judge of this audit rates {title}" for title in table_4(nobody).head[1:]
    }


def test_people_alone_have_their_rows_in_table_6(source: Source):
    people = replace(source, scores=tuple(score for score in source.scores if score.judge == "people"))
    alone, both = table_6(people), table_6(source)
    assert "Where no model rates an axis" in "".join(alone.notes)
    assert "Where no model rates an axis" not in "".join(both.notes), "false where models rate"
    for row, column, cell in cells(alone):
        if row.section == "people":
            assert value(cell) == pytest.approx(value(row_of(both, row.label, "people")[column]))
        else:
            assert isinstance(cell, Absent)
            assert cell.reason == f"no model rates {column}"


def test_numbers_of_a_judge_that_did_not_pass_calibration_are_marked(source: Source, tables: list[PaperTable]):
    assert not [cell for table in tables for _, _, cell in cells(table) if isinstance(cell, Number) and cell.note]
    doubtful = replace(source, standing={"ensemble (mean)": {"edit_success": "passed", "race_change": "failed"}})
    table = table_4(doubtful)
    row = row_of(table, "flux")
    notes = {name: cell.note for name, cell in row.items() if isinstance(cell, Number)}
    assert (notes["Edit Success"], notes["Race Change"]) == ("", "calibration failed")
    assert notes["Age Change"] == "not tested on known changes"
    assert "† ensemble (mean): calibration failed (Race Change)." in as_markdown(table)
    assert "$\\dagger$" in as_latex(table)
    marks = {(row["row"], row["column"]): row["judge_note"] for row in csv.DictReader(io.StringIO(as_csv(table)))}
    assert marks["flux", "Race Change"] == "calibration failed"
    for make in (table_5, table_19, table_20, table_21, table_26):
        assert "†" in as_markdown(make(doubtful)), make.__name__
    people = [cell for row, _, cell in cells(table_6(doubtful)) if row.section == "people"]
    assert not [cell for cell in people if isinstance(cell, Number) and cell.note]


def test_a_judge_that_was_never_calibrated_is_marked(source: Source):
    assert "† ensemble (mean): not calibrated" in as_markdown(table_20(replace(source, standing={})))


def test_before_and_after_and_their_difference_belong_together_also_where_edits_are_missing(source: Source):
    stream = np.random.default_rng(5)
    state = source.edits.state.copy()
    state[stream.random(len(state)) < 0.2] = EditState.REFUSED
    thinned = replace(source, edits=replace(source.edits, state=state))
    for row in table_26(thinned).rows:
        before, after, change = row.cells
        assert value(change) == pytest.approx(value(after) - value(before))
        assert before.edits == change.edits


def test_a_mitigation_that_helps_one_group_is_seen_as_such(source: Source, tables: list[PaperTable]):
    table = by_number(tables, 5)
    helped = row_of(table, "A", "flux")
    assert value(helped["Δ Race Change (↓)"]) < -0.5
    assert helped["Interpretation"] == Words(text="less change")
    assert row_of(table, "B", "flux")["Interpretation"] == Words(text="inconclusive")
    spread = row_of(table, "Largest − smallest", "flux")["Interpretation"]
    assert float(spread.text.split()[-1]) < 0.05
    found = paired_effects(source.edits, [source.scores[10]], SETTINGS, quantities=["race_change"])
    assert source.scores[10].judge == "ensemble (mean)"
    assert source.scores[10].axis == "race_change"
    (levelled,) = [
        each.at_equal_baseline
        for each in found
        if (each.editor, each.scope, each.group) == ("flux", "group", "A") and hasattr(each, "at_equal_baseline")
    ]
    assert value(helped["Δ at equal baseline"]) == levelled.value


def test_models_and_people_are_compared_on_what_both_rated(source: Source):
    """People rated only what drifted, so that a model's mean over all would be another."""
    scores = list(source.scores)
    for place, score in enumerate(scores):
        if score.judge == "people":
            unseen = score.value < 2
            scores[place] = replace(
                score,
                value=np.where(unseen, np.nan, score.value),
                state=np.where(unseen, RatingState.MISSING, score.state).astype(np.int32),
            )
    table = table_6(replace(source, scores=tuple(scores)))
    for editor in EDITORS:
        sections = ("models", "people", "models − people")
        models, people, apart = (row_of(table, editor, section)["Race Change"] for section in sections)
        assert models.edits == people.edits < 144
        assert value(models) > value(row_of(table_4(source), editor)["Race Change"]) + 0.3
        assert value(apart) == pytest.approx(value(models) - value(people), abs=1e-6)


def test_people_are_not_compared_with_themselves(source: Source):
    assert "no one has rated any yet" in table_18(replace(source, people=frozenset())).caption
    assert table_6(replace(source, judge="people")) == table_6(source)
    assert table_6(replace(source, judge="two")) != table_6(source)


def role_world(*pronouns: str) -> Source:
    """Ten sentences; judges name the person whom the stereotype expects, but for the first and opposite pronouns."""
    edits, score = roles(10, dict.fromkeys(pronouns, 1.0), counterbalance=False)
    told = np.array([2.0 if prompt.pronoun == "anti" else 1.0 for prompt in edits.prompts])
    told[0] = 2.0
    scores = (replace(score, value=told),)
    return Source(edits=edits, scores=scores, settings=SETTINGS, factor="", factors=(), people=frozenset())


def test_counterbalancing_shows_what_the_pronoun_did_and_resisted_is_the_rest_of_followed():
    rows = table_7(role_world("pro", "anti"), Genders()).rows
    followed, resisted = (cell.outcome for cell in rows[0].cells)
    assert (resisted.low, resisted.value) == pytest.approx((1 - followed.high, 1 - followed.value))
    shares = {row.section: value(row.cells[0]) for row in rows}
    expected = {"expected pronoun": 0.9, "opposite pronoun": 0.0, "expected − opposite pronoun": 0.9}
    assert {name: shares[f"two people, {name}"] for name in expected} == pytest.approx(expected)


# -- formats ----------------------------------------------------------------------------------------------------------

HALF = Interval(value=0.5, low=0.25, high=0.75, confidence=0.9, method="m")
NASTY = PaperTable(
    number=20,
    caption="50% & more_than $1 {once}",
    head=("race|group", "a_b", "c#d"),
    rows=(
        TableRow(
            label="=A | B\n& C",
            section="s_1",
            cells=(
                Number(outcome=HALF, form="rate", portraits=3, edits=1234),
                Absent(reason="only 1 portrait in this group"),
            ),
        ),
        TableRow(
            label="D",
            section="s_1",
            cells=(Absent(reason="only 1 portrait in this group"), Absent(reason="no ~judge^ answered \\ 5")),
            summary=True,
        ),
    ),
    notes=("100% sure",),
)


def test_csv_keeps_every_number_and_every_reason():
    found = list(csv.DictReader(io.StringIO(as_csv(NASTY))))
    first = tuple(found[0][name] for name in ("value", "low", "high", "portraits", "edits"))
    assert first == ("0.5", "0.25", "0.75", "3", "1234")
    reasons = ["only 1 portrait in this group"] * 2 + ["no ~judge^ answered \\ 5"]
    assert [each["not_estimable"] for each in found[1:]] == reasons
    assert found[0]["row"] == "'=A | B\n& C", "a spreadsheet must not run it"


def test_markdown_is_aligned_and_says_why_once(tables: list[PaperTable]):
    for table in (NASTY, *tables):
        text = as_markdown(table)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len({len(line) for line in lines}) == 1, table.number
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.head) + 1}
    text = as_markdown(NASTY)
    assert "50.0 % [25.0 %, 75.0 %] (3; 1,234)" in text
    assert text.count("only 1 portrait in this group") == 1
    assert "(b) not estimable: no ~judge^ answered" in text
    assert "In brackets: 90% interval" in text


def test_latex_is_escaped_and_balanced(tables: list[PaperTable]):
    for table in (NASTY, *tables):
        text = as_latex(table)
        body = text.partition("\\toprule\n")[2].partition("\\bottomrule")[0]
        for line in body.splitlines():
            if line.endswith(r"\\") and "multicolumn" not in line:
                assert len(re.findall(r"(?<!\\)&", line)) == len(table.head) - 1, line
        assert text.isascii()
        bare = re.sub(r"\\[{}]", "", text)
        assert bare.count("{") == bare.count("}")
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        assert re.findall(r"(?<!\\)%", text) == ["%"], "only the comment on the first line"
        assert not re.search(r"(?<!\\)[_#]", body)
    assert r"\caption{50\% \& more\_than \$1 \{once\}" in as_latex(NASTY)
    assert r"\textbackslash{} 5" in as_latex(NASTY)


def test_a_label_that_begins_with_a_bracket_does_not_become_the_length_of_a_line_break():
    row = TableRow(label="[2cm] & *", cells=(Count(value=1), Count(value=2)))
    shown = as_latex(replace(NASTY, rows=(row, replace(row, label="* all"))))
    assert "\n{}[2cm] \\& * & 1 & 2" in shown
    assert "\n{}* all & 1 & 2" in shown


def test_a_table_that_cannot_be_made_says_so_in_every_format():
    none = PaperTable(number=5, caption="Changes.", head=(), rows=(), absent="the audit has no feature arm")
    assert "Not estimable: the audit has no feature arm." in as_markdown(none)
    assert "Not estimable: the audit has no feature arm." in as_latex(none)
    (only,) = csv.DictReader(io.StringIO(as_csv(none)))
    assert only["not_estimable"] == "the audit has no feature arm"


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_every_table_in_every_format(write_audit: Write):
    folder = write_audit()
    assert "has no run yet" in str(invoke("tables", folder).exception)
    run_stages(folder, ("edit", "judge"))
    found = json.loads(ran("tables", folder, "--json").stdout)["tables"]
    assert NUMBERS == (4, 5, 6, 7, 13, 17, 18, 19, 20, 21, 24, 25, 26)
    made = [number for number in NUMBERS if number not in (7, 17)]
    assert [table["number"] for table in found] == made, "no table of role prompts or participants that are not there"
    files = {Path(path) for table in found for path in table["files"]}
    assert files == {folder / "tables" / "paper" / f"table-{n:02}.{end}" for n in made for end in ("csv", "md", "tex")}
    assert all(path.is_file() for path in files)
    assert {table["number"]: table["not_estimable"] for table in found if table["not_estimable"]} == {
        5: "the audit has no feature arm",
        6: "no person has rated this audit's edits; add ratings with `stillme study` or `stillme import rows`",
        21: "the audit has no feature arm",
        24: "no rated edit of the baseline arm shows it",
        25: "no rated edit of the baseline arm shows it",
        26: "the audit has no feature arm",
    }
    (seven,) = json.loads(ran("tables", folder, "7", "--json").stdout)["tables"]
    assert seven["not_estimable"] == "the audit has no role prompts"
    (participants,) = json.loads(ran("tables", folder, "17", "--json").stdout)["tables"]
    assert "stillme study close --demographics" in participants["not_estimable"]
    shown = ran("tables", folder, "20", "--format", "tex").stdout
    assert "group & noop" in shown
    assert ran("tables", folder, "20", "--format", "tex").stdout == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("3",), "There is no table 3. Choose from 4, 5"),
        (("--by", "grup"), "Did you mean 'group'"),
        (("--judge", "script"), "Did you mean 'scripted'"),
    ],
)
def test_a_wrong_name_is_one_sentence(write_audit: Write, arguments: tuple[str, ...], message: str):
    folder = write_audit()
    run_stages(folder, ("edit",))
    assert message in str(invoke("tables", folder, *arguments).exception)


def test_an_audit_without_ratings_gives_reasons_and_no_numbers(write_audit: Write):
    folder = write_audit(editor='use = "moody"')
    run_stages(folder, ("edit",))
    shown = ran("tables", folder, "4", "20").stdout
    assert "[" not in "".join(line for line in shown.splitlines() if line.startswith("|"))
    assert shown.count("not estimable") >= 2


@pytest.mark.parametrize(("setting", "cut", "share"), [("", 3, 1 / 6), ("race_cut = 2", 2, 3 / 6)])
def test_the_cut_decides_whose_race_counts_as_changed(
    write_audit: Callable[..., Path], setting: str, cut: int, share: float
):
    """Scores 3, 2, 2, 1, 1, 1."""
    folder = write_audit(prompts='["O-01"]', extra=setting)
    run_stages(folder, ("edit",))
    rows = [f"p{index},O-01,{score},5" for index, score in enumerate((3, 2, 2, 1, 1, 1))]
    rated_elsewhere(folder, "portrait,prompt,race_change,edit_success", rows)
    with RecordedRun.open(folder) as run:
        by_editor, by_group = make_tables(run, Chosen(numbers=(19, 20)))
    assert f"race change: {cut} or more" in by_editor.caption
    assert f"score of {cut} or more" in by_group.caption
    (race,) = [line.split(",") for line in as_csv(by_editor).splitlines() if "Race Change" in line]
    assert float(race[4]) == pytest.approx(share)
    assert "no judge" not in as_csv(by_group)
