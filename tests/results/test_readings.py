"""Into what? From pictures to readings, transitions and shifts, through a whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stillme
from stillme import audit as audits
from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import InvalidAudit, UnknownName
from stillme.core.prompts import diagnostic, roles, stereotyped_gender
from stillme.core.rubric import TOWARD_REFERENCE, TOWARD_STEREOTYPE
from stillme.core.types import Interval, NotEstimable
from stillme.estimates.directions import Shift
from stillme.findings.compare import choose, compare, comparison_text, match
from stillme.findings.compare.matched_edits import reading_changes
from stillme.findings.evidence.checks import row_differences
from stillme.findings.gate.decisions import Asked, gate
from stillme.findings.gate.verdicts import Verdict
from stillme.findings.plan.plan import plan_audit
from stillme.findings.tables.analyses import analyse
from stillme.runs import RecordedRun
from stillme.runs.readings import Readings
from stillme.runs.status import count
from stillme.runs.store import Store
from stillme.runs.store.merging import merge
from stillme.work.shards import Shard
from tests import readings


def read(folder: Path) -> Readings:
    with RecordedRun.open(folder) as opened:
        found = opened.readings
    assert found is not None
    return found


def toward_reference(found: Readings) -> Shift:
    (shift,) = [shift for shift in found.shifts(0.95) if found.question(shift) == TOWARD_REFERENCE]
    return shift


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = readings.write(tmp_path_factory.mktemp("readings") / "biased", share=0.4, wrong=0.15)
    assert readings.run(folder).finished
    return folder


def test_a_planted_direction_is_found_and_the_other_way_is_not(biased: Path):
    found = read(biased)
    shift = toward_reference(found)
    assert shift.outcome.low > 0.1
    assert shift.outcome.value < 0.45, "attenuated by the reader's errors, never inflated"
    assert shift.word == "larger than matters"
    (back,) = [one for one in found.shifts(0.95) if one.target == "not White"]
    assert back.outcome.low <= 0 <= back.outcome.high


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_an_editor_that_changes_nobody_is_not_accused(tmp_path: Path, wrong: float):
    found = read(_ran(readings.write(tmp_path / "a", share=0.0, wrong=wrong)))
    assert all(shift.word in ("unclear", "smaller than matters") for shift in found.shifts(0.95))
    assert all(cell.within_floor in (True, None) for cell in found.transitions)


def _ran(folder: Path) -> Path:
    assert readings.run(folder).finished
    return folder


def test_transitions_have_the_controls_own_row_beside_them(biased: Path):
    found = read(biased)
    cells = {
        (cell.before, cell.after): cell for cell in found.transitions if cell.axis == "read_race" and not cell.category
    }
    became = cells["Black", "White"]
    assert became.share > 0.25
    assert became.control < 0.15
    assert became.within_floor is False
    assert cells["White", "White"].within_floor is None
    assert {cell.category for cell in found.transitions} == {"", "occupational", "vulnerability"}
    for before in {cell.before for cell in cells.values()}:
        assert sum(cell.share for cell in cells.values() if cell.before == before) == pytest.approx(1)


def test_each_picture_is_read_once_and_controls_twice(biased: Path):
    with Store.reading(biased) as store:
        design = store.designs.latest()
        (reader,) = design.document["readers"]
        assert reader["spec"]["parameters"]["reads"] == ["Black", "Indian", "White"]
        repeats = store.query(
            "SELECT edit, COUNT(*) FROM assessment WHERE edit IN (SELECT image FROM edit) GROUP BY edit"
        )
        counted = dict(repeats.fetchall())
        controls = {image for _, _, image in store.controls()}
        assert len(controls) == 24
        assert {count for image, count in counted.items() if image in controls} == {2}
        assert {count for image, count in counted.items() if image not in controls} == {1}
        assert store.totals().edits == {"edited": 24 * 6}, "a control is no edit that anybody asked for"


def test_a_rerun_reads_nothing_again_and_the_rows_verify(biased: Path):
    again = readings.run(biased)
    assert [tally.already for tally in again.tallies if tally.name == "read reader"] == [
        tally.total for tally in again.tallies if tally.name == "read reader"
    ]
    with RecordedRun.open(biased) as opened:
        assert list(row_differences(opened)) == []
        counts, _ = count(opened)
        assert counts.complete
        assert counts.readers["reader"]["done"] == counts.readers["reader"]["total"] > 24 * 2


def test_merged_runs_have_the_same_readings_and_a_forged_one_is_noticed(biased: Path, tmp_path: Path):
    merge([biased], tmp_path / "copy")
    assert toward_reference(read(tmp_path / "copy")) == toward_reference(read(biased))
    with Store.writing(tmp_path / "copy") as store:
        store.execute("DROP TRIGGER assessment_refuses_update")
        store.execute("UPDATE assessment SET edit = 'f' WHERE epoch = 1")
    with RecordedRun.open(tmp_path / "copy") as opened:
        assert {difference.what for difference in row_differences(opened)} >= {"not a picture of this run"}


def test_shards_are_read_once_they_are_merged(tmp_path: Path):
    folder = readings.write(tmp_path / "a", share=0.4, prompts=("O-01", "V-01"), per_group=4)
    parts = [tmp_path / "one", tmp_path / "two"]
    for number, part in enumerate(parts, start=1):
        run_stages(folder, ("edit", "judge"), RunOptions(shard=Shard(number=number, count=2), out=part))
        assert read(part).unread > 0
    merge(parts, tmp_path / "a")
    assert readings.run(folder).finished
    assert read(folder).unread == 0


def test_the_no_op_arm_is_the_control_where_there_is_one(tmp_path: Path):
    folder = _ran(
        readings.write(tmp_path / "a", share=0.5, arms=("baseline", "noop"), prompts=("O-01", "O-02", "V-01"))
    )
    with Store.reading(folder) as store:
        assert list(store.controls()) == []
    found = read(folder)
    assert {tally.arm for tally in found.tallies} == {"baseline"}
    assert found.unread == 0
    # The editor moves people in the no-op arm as often: that is its own floor.
    outcome = toward_reference(found).outcome
    assert outcome.low <= 0 <= outcome.high


def test_without_a_declared_reference_there_are_groups_and_nothing_pooled(tmp_path: Path):
    found = read(_ran(readings.write(tmp_path / "a", share=0.4, reference=False, prompts=("O-01", "V-01"))))
    assert [shift for shift in found.shifts(0.95) if found.question(shift) == TOWARD_REFERENCE] == []
    assert {shift.group for shift in found.shifts(0.95)} >= {"Black", "Indian", "White"}


def test_a_reader_that_cannot_tell_is_counted_by_group_and_gives_no_number(tmp_path: Path):
    folder = readings.write(tmp_path / "a", unsure="person % 3 == 0", prompts=("O-01", "V-01"))
    found = read(_ran(folder))
    unsure = {
        count.group: count.share for count in found.counts if count.read == "cannot tell" and count.axis == "read_race"
    }
    assert unsure == {"Black": 1.0}
    assert isinstance(toward_reference(found).outcome, NotEstimable)


def test_stereotyped_genders_have_a_source_and_only_where_one_speaks():
    named = {prompt.id: stereotyped_gender(prompt) for prompt in diagnostic()}
    assert {name for name, gender in named.items() if gender == "male"} == {"O-01", "O-02", "O-04", "O-05"}
    assert {name for name, gender in named.items() if gender == "female"} == {"O-06", "O-07", "O-10"}
    assert all(stereotyped_gender(prompt) == prompt.stereotype for prompt in roles())


def test_a_reader_that_sees_men_everywhere_is_no_shift_towards_a_stereotype(biased: Path):
    (shift,) = [one for one in read(biased).shifts(0.95) if one.axis == TOWARD_STEREOTYPE]
    assert shift.outcome.value == 0
    assert shift.before == pytest.approx(2 / 3), "two of three prompts with a stereotype expect a man"


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("toward_reference <= 5%", Verdict.FAILED),
        ("toward_reference.group <= 5%", Verdict.FAILED),
        ("toward_reference.group#Black <= 90%", Verdict.PASSED),
        ("toward_reference <= 30%", Verdict.INCONCLUSIVE),
        ("toward_stereotyped_gender <= 20%", Verdict.PASSED),
    ],
)
def test_a_gate_holds_a_direction_to_its_limit(biased: Path, rule: str, verdict: Verdict):
    with RecordedRun.open(biased) as opened:
        assert gate(opened, Asked(rules=[rule])).outcome is verdict


def test_half_a_run_is_read_for_what_it_has_and_a_gate_does_not_decide_on_it(tmp_path: Path):
    folder = readings.write(tmp_path / "a", share=0.4)
    run_stages(folder, ("edit", "judge"), RunOptions(limit=30))
    found = read(folder)
    assert found.unread == 0
    assert isinstance(toward_reference(found).outcome, Interval)
    with RecordedRun.open(folder) as opened:
        decided = gate(opened, Asked(rules=["toward_reference <= 30%"]))
    assert decided.outcome is Verdict.NO_DATA


def test_tables_and_python_show_them(biased: Path):
    with stillme.open(biased) as opened:
        transitions, shifts = list(opened.transitions()), list(opened.shifts())
        assert {"before", "after", "share", "control", "within_floor"} <= set(transitions[0])
        assert any(row["group"] == "not White" and row["word"] == "larger than matters" for row in shifts)
        written = analyse(opened, only=["shifts", "transitions", "readings"])
        assert all(table.rows for table in written.values())


def changed(first: Path, second: Path) -> tuple[Any, str, Any]:
    """What reads otherwise in the second, which is run first; why it cannot be said; and the whole comparison."""
    with RecordedRun.open(first) as before, RecordedRun.open(_ran(second)) as after:
        one, other = choose(before, after, None)
        matched = match(one, other)
        return *reading_changes(one, other, matched), compare(matched)


def test_a_comparison_shows_whether_the_direction_changed(biased: Path, tmp_path: Path):
    changes, missing, compared = changed(biased, readings.write(tmp_path / "fixed", share=0.0, wrong=0.15))
    assert missing == ""
    (pooled,) = [change for change in changes if change.group == "not White" and change.target == "White"]
    assert pooled.outcome.high < 0
    assert pooled.word == "larger than matters"
    shown = replace(compared, appears=changes)
    assert "Into what: share of edits that appear so to a reader" in comparison_text.as_text(shown)
    assert "Into what" in comparison_text.as_markdown(shown)
    assert len(comparison_text.as_json(shown)["appears"]) == len(changes)


def test_two_checkpoints_that_do_the_same_have_no_change_of_direction(biased: Path, tmp_path: Path):
    changes, _, _ = changed(biased, readings.write(tmp_path / "same", share=0.4, wrong=0.15))
    assert changes
    assert all(change.word in ("unclear", "smaller than matters") for change in changes)


def test_readers_with_other_settings_are_not_compared(biased: Path, tmp_path: Path):
    changes, missing, _ = changed(biased, readings.write(tmp_path / "other", wrong=0.01))
    assert changes == ()
    assert "no reader with the same settings" in missing


def test_the_plan_counts_and_prices_every_reading(biased: Path, tmp_path: Path):
    planned = plan_audit(biased)
    (bill,) = planned.bills.readers
    assert bill.calls == 24 * 6 + 24 * 2
    assert f"{bill.name} (readings of single pictures, at most)  192" in planned.as_text()
    folder = readings.write(tmp_path / "a", arms=("baseline", "noop"))
    readings.without_readers(folder, "[readings]\njudges = ['gemini-3-flash']\nattribute = 'group'\n")
    (priced,) = plan_audit(folder).bills.readers
    assert priced.calls == 24 * 6 + 24 * 2
    assert priced.dollars > 0


def test_an_audit_without_readers_has_none_and_no_such_quantity(tmp_path: Path):
    folder = readings.write(tmp_path / "a", prompts=("O-01",), per_group=2)
    readings.without_readers(folder)
    readings.run(folder)
    with stillme.open(folder) as opened:
        assert opened.readings is None
        assert list(opened.transitions()) == []
        with pytest.raises(UnknownName, match="toward_reference"):
            gate(opened, Asked(rules=["toward_reference <= 5%"]))


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("judges = ['scripted']\nattribute = 'group'", "'scripted' cannot read single pictures"),
        ("judges = ['python:./reader.py:read']", "no two portraits differ in 'race'"),
        ("judges = []", "is empty; give at least one"),
        ("judges = ['python:./reader.py:gone']\nattribute = 'group'", "has no function 'gone'"),
        (
            "judges = ['python:./reader.py:read', {use = 'python:./reader.py:read', name = 'b'}]\nattribute = 'group'",
            "'b' would read exactly as 'python:./reader.py:read' does",
        ),
        ("judges = ['nobody']\nattribute = 'group'", "Unknown judge 'nobody'"),
        ("judges = ['python:./editor.py:edit']\nattribute = 'group'", "needs 'instruction', which is not supplied"),
    ],
)
def test_a_wrong_section_says_what_to_write(tmp_path: Path, section: str, problem: str):
    folder = readings.write(tmp_path / "a", per_group=2)
    readings.without_readers(folder, instead=f"[readings]\n{section}\n")
    with pytest.raises(InvalidAudit, match=problem.replace("(", r"\(")):
        audits.load(folder)


def test_a_run_without_readings_yet_says_so_and_shows_no_number(tmp_path: Path):
    folder = readings.write(tmp_path / "a", prompts=("O-01",), per_group=3)
    summary = run_stages(folder, ("edit",))
    assert [tally.name for tally in summary.tallies] == ["edit ours"]
    found = read(folder)
    assert found.unread == 9
    assert all(isinstance(shift.outcome, NotEstimable) for shift in found.shifts(0.95))
    run_stages(folder, ("estimate", "report"))
    assert "9 edits have no reading yet" in (folder / "report.html").read_text()
    with RecordedRun.open(folder) as opened:
        counts, _ = count(opened)
        assert counts.readers["reader"] == {"total": 9 + 9 * 2, "done": 0}


def test_a_reader_that_breaks_fails_and_is_asked_again(tmp_path: Path):
    folder = readings.write(tmp_path / "a", prompts=("O-01",), per_group=3)
    good = (folder / "reader.py").read_text()
    text = (folder / "audit.toml").read_text()
    fixed = text.replace('name = "reader" }', 'name = "reader", parameters = { version = "1" } }')
    (folder / "audit.toml").write_text(fixed + "attempts = 1\n")
    (folder / "reader.py").write_text("def read(image):\n    return {'race': 'Martian', 'gender': None, 'age': None}\n")
    broken = run_stages(folder, ("edit", "judge"), RunOptions(allow_failures=True))
    assert not broken.finished
    assert "'Martian'; give one of Black, Indian, White, or None" in broken.as_text()
    assert read(folder).unread == 9
    (folder / "reader.py").write_text(good)
    assert readings.run(folder).finished
    assert read(folder).unread == 0
