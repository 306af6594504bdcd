"""Numbers for other people's registries: valid there, and never a score that nobody gave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from stillme import estimates
from stillme.errors import StillmeError
from stillme.exchange import Publication, export_eval_results, export_every_eval_ever
from stillme.results import Run
from stillme.types import Abstained, Arm, Failed, Interval, Rated, Rating, Refused, Request
from tests.runs import fill, group, luck, people, scores, write_audit

SCHEMAS = Path(__file__).parent / "every_eval_ever"
"""The two schemas of every-eval-ever 0.3.0 (PyPI, MIT; see LICENSE beside them)."""


def answer(_editor: str, asked: Request) -> dict[str, Rating] | Refused:
    chance = luck(asked)
    if chance < 0.1:
        return Refused(message="no")
    if chance < 0.3:
        unsure: dict[str, Rating] = {"edit_success": Rated(score=2), "skin_tone": Abstained(reason="too dark")}
        return unsure | {"race_change": Failed(error="SECRET timeout", retryable=False)}
    return scores(skin=5 if group(asked) == "b" else 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("published")
    audit = write_audit(folder / "run", people(folder / "people", per_group=6), editors=("one", "two words"))
    return Run.open(fill(audit, answer))


def checked(files: Sequence[Path]) -> list[tuple[dict, list[dict]]]:
    """Documents and their rows, valid by the two schemas."""
    validators = {
        name: jsonschema.Draft7Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))
        for name in ("eval", "instance_level_eval")
    }
    found = []
    for file in files:
        if file.suffix == ".json":
            document = json.loads(file.read_text())
            rows = [json.loads(line) for line in (file.parent / f"{file.stem}_samples.jsonl").read_text().splitlines()]
            validators["eval"].validate(document)
            for row in rows:
                validators["instance_level_eval"].validate(row)
            found.append((document, rows))
    return found


def test_every_eval_ever_is_valid_by_its_own_schema(run: Run, tmp_path: Path):
    named = Publication(models={"one": "org/editor"}, evaluator="A lab", relationship="third_party")
    documents = checked(export_every_eval_ever(run, tmp_path, named))
    assert [document["model_info"]["id"] for document, _ in documents] == ["org/editor", "unknown/two words"]
    for document, rows in documents:
        assert rows
        assert document["source_metadata"]["source_organization_name"] == "A lab"
        path = tmp_path / document["detailed_evaluation_results"]["file_path"]
        assert path.read_bytes().count(b"\n") == document["detailed_evaluation_results"]["total_rows"] == len(rows)


def test_results_are_the_estimates_with_their_intervals(run: Run, tmp_path: Path):
    expected = {
        (one.quantity, one.scope, one.group): one
        for one in estimates.estimate(run.results.edits, run.results.scores, run.settings)
        if one.editor == "one"
    }
    document, _ = checked(export_every_eval_ever(run, tmp_path, Publication()))[0]
    ids = [result["evaluation_result_id"] for result in document["evaluation_results"]]
    assert len(set(ids)) == len(ids) > 10
    for result in document["evaluation_results"]:
        details = result["metric_config"]["additional_details"]
        level = "" if details["scope"] != "group" else details["group"]
        one = expected[result["metric_config"]["metric_id"].removeprefix("stillme."), details["scope"], level]
        assert isinstance(one.outcome, Interval)
        interval = result["score_details"]["uncertainty"]["confidence_interval"]
        assert result["score_details"]["score"] == pytest.approx(one.outcome.value, abs=1e-8)
        assert (interval["lower"], interval["upper"]) == pytest.approx((one.outcome.low, one.outcome.high), abs=1e-8)
        assert result["score_details"]["uncertainty"]["num_samples"] == one.portraits, "portraits are the unit"
        assert details["judge_note"] == ("not calibrated" if one.judge else "none")


def test_what_has_no_better_side_has_no_place_in_a_ranking(run: Run, tmp_path: Path):
    document, _ = checked(export_every_eval_ever(run, tmp_path, Publication()))[0]
    better = {}
    for result in document["evaluation_results"]:
        scope = result["metric_config"]["additional_details"]["scope"]
        assert scope != "contrast", "a signed difference has no better side"
        better[result["metric_config"]["metric_id"], scope] = result["metric_config"]["lower_is_better"]
    assert better["stillme.success", "all"] is False
    assert better["stillme.soft_erasure", "all"] is True
    assert better["stillme.edit_success", "all"] is False
    assert better["stillme.race_change", "all"] is True
    assert ("stillme.skin_tone", "all") not in better, "3 is unchanged: neither 1 nor 5 is better"
    assert better["stillme.skin_tone", "disparity"] is True
    assert "left out" in document["source_metadata"]["additional_details"]["without_direction"]


def test_an_answer_that_was_not_given_is_an_error_and_no_score(run: Run, tmp_path: Path):
    document, rows = checked(export_every_eval_ever(run, tmp_path, Publication()))[0]
    failed = [row for row in rows if row["error"]]
    assert {row["error"].split(":")[0] for row in failed} == {"abstained", "failed"}
    assert all(row["evaluation"]["score"] == -1 and not row["answer_attribution"] for row in failed)
    levels = {result["evaluation_result_id"]: result for result in document["evaluation_results"]}
    for name in {row["evaluation_result_id"] for row in rows}:
        assert levels[name]["metric_config"]["has_unknown_level"], "-1 is the schema's word for unknown"
        rated = [row["evaluation"]["score"] for row in rows if row["evaluation_result_id"] == name and not row["error"]]
        assert set(rated) <= {0, 1}
        assert sum(rated) / len(rated) == pytest.approx(levels[name]["score_details"]["score"], abs=1e-8)


def test_rows_keep_labels_with_their_origin_and_nobodys_words(run: Run, tmp_path: Path):
    files = export_every_eval_ever(run, tmp_path, Publication())
    _, rows = checked(files)[0]
    assert all(row["metadata"]["label_origin"] == "made up" for row in rows)
    assert {row["metadata"]["label_group"] for row in rows} == {"a", "b"}
    whole = "".join(file.read_text() for file in files)
    assert "SECRET" not in whole
    assert str(tmp_path.parent.parent) not in whole, "no path of this machine"


def test_the_same_rows_give_the_same_files(run: Run, tmp_path: Path):
    first, then = (export_every_eval_ever(run, tmp_path / name, Publication()) for name in ("a", "b"))
    assert [file.name for file in first] == [file.name for file in then]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in then]


def test_an_unfinished_run_says_so(tmp_path: Path):
    audit = write_audit(tmp_path / "run", people(tmp_path / "people", per_group=3))
    half = Run.open(fill(audit, lambda _, asked: scores() if luck(asked) < 0.5 else None))
    document, _ = checked(export_every_eval_ever(half, tmp_path / "out", Publication()))[0]
    assert "have not been made" in document["source_metadata"]["additional_details"]["unfinished"]
    (file,) = export_eval_results(half, tmp_path / "out", Publication(), "org/bench")
    assert all("have not been made" in entry["notes"] for entry in yaml.safe_load(file.read_text()))


def test_a_run_without_rows_is_refused(tmp_path: Path):
    empty = Run.open(fill(write_audit(tmp_path / "run", people(tmp_path / "people", per_group=2)), lambda *_: None))
    with pytest.raises(StillmeError, match="no edits yet"):
        export_every_eval_ever(empty, tmp_path / "out", Publication())
    assert not (tmp_path / "out").exists()


def test_eval_results_are_what_the_hub_reads(run: Run, tmp_path: Path):
    one, two = export_eval_results(run, tmp_path, Publication(models={"one": "org/editor"}), "org/bench")
    assert one.parts[-3:] == ("org--editor", ".eval_results", "stillme.yaml")
    entries = parse_eval_result_entries(yaml.safe_load(one.read_text()))
    found = {entry.task_id: entry for entry in entries}
    assert len(found) == len(entries), "one number a task"
    assert {"success", "soft_erasure", "skin_lightened", "skin_lightened_gap_group", "refused"} <= set(found)
    values = {
        estimate.quantity: estimate.outcome.value
        for estimate in estimates.estimate(run.results.edits, run.results.scores, run.settings)
        if estimate.editor == "one" and estimate.scope == "all" and isinstance(estimate.outcome, Interval)
    }
    for entry in entries:
        assert entry.dataset_id == "org/bench"
        assert "interval" in entry.notes
        if entry.task_id in values:
            assert entry.value == pytest.approx(values[entry.task_id], abs=1e-8)
    assert "not calibrated" in found["success"].notes
    assert "chance alone" in found["skin_lightened_gap_group"].notes
    assert two.exists()


def test_a_judge_that_failed_calibration_publishes_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failed = {"judge": {"edit_success": "failed", "skin_tone": "passed", "race_change": "untested"}}
    monkeypatch.setattr("stillme.exchange.eval_results.standing_of", lambda _: failed)
    one, _ = export_eval_results(run, tmp_path, Publication(), "org/bench")
    tasks = {entry["dataset"]["task_id"] for entry in yaml.safe_load(one.read_text())}
    assert "skin_lightened" in tasks
    assert not tasks & {"success", "soft_erasure"}


@pytest.mark.parametrize(("models", "words"), [({"oen": "a/b"}, "one"), ({"one": "not a model"}, "ORGANISATION/MODEL")])
def test_a_name_that_cannot_be_meant_is_refused(run: Run, tmp_path: Path, models: dict[str, str], words: str):
    with pytest.raises(StillmeError, match=words):
        export_every_eval_ever(run, tmp_path, Publication(models=models))


def test_only_the_baseline_stands_on_the_hub(tmp_path: Path):
    audit = write_audit(tmp_path / "run", people(tmp_path / "people", per_group=3), arms=("baseline", "noop"))
    both = Run.open(fill(audit, lambda _, asked: scores(success=1 if asked.arm == Arm.NOOP else 5)))
    (file,) = export_eval_results(both, tmp_path / "out", Publication(), "org/bench")
    success = [entry["value"] for entry in yaml.safe_load(file.read_text()) if entry["dataset"]["task_id"] == "success"]
    assert success == [1.0]
