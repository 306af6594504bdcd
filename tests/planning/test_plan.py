"""Plans of whole audits: counts, costs, and what they can see; without keys, GPUs or extras."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.audit.experiments import EXPERIMENTS, PAPERS_JUDGE_ENDS, Experiment, experiment
from stillme.core import registry
from stillme.core.errors import StillmeError
from stillme.findings.plan import PlanOptions, plan_audit
from stillme.findings.plan.new_audit import fewest_identities, larger_set
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from tests.command_lines import invoke, ran
from tests.runs import rated_elsewhere

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("diagnosis", {"baseline": 5040}),
        ("mitigation", {"baseline": 500, "feature": 500}),
        ("roles", {"baseline": 100}),
    ],
)
def test_each_experiment_asks_for_the_papers_number_of_edits(tmp_path: Path, name: str, requests: dict[str, int]):
    """In a process without any key, and with the packages of every extra out of reach."""
    folder = tmp_path / name
    ran("new", folder, "--experiment", name)
    absent = "import sys; sys.modules.update(dict.fromkeys(['torch', 'diffusers', 'pydantic_ai', 'genai_prices']))"
    code = f"{absent}; sys.argv = ['stillme', 'plan', {str(folder)!r}, '--json']; from stillme.cli import main; main()"
    bare = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=bare)
    assert shown.returncode == 0, shown.stderr
    planned = json.loads(shown.stdout)
    assert planned["requests"] == requests
    assert planned["judge_calls"] == 2 * sum(requests.values())
    assert set(planned["dollars_unknown"]) == {"gemini-3-flash", "gpt-5-mini"}
    assert planned["gpu_hours"] is None


def test_the_paper_had_two_editors_for_roles_and_three_otherwise(tmp_path: Path):
    uses = {name: [entry["use"] for entry in tomllib.loads(experiment(name, "x"))["editors"]] for name in EXPERIMENTS}
    three = ["flux2-dev", "qwen-image-edit-2511", "step1x-edit-v1p2"]
    assert uses == {"diagnosis": three, "mitigation": three, "roles": three[:2]}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_templates_are_commented_and_never_name_a_model_that_is_gone(tmp_path: Path, name: str):
    text = experiment(name, 'the "best"', today=date(2026, 11, 16))
    assert text.count("#") > 15
    assert "{" not in text.replace("{ ", "")
    assert tomllib.loads(text)["title"] == 'the "best"'
    for today, profile in ((date(2026, 12, 10), "paper"), (PAPERS_JUDGE_ENDS, "current")):
        (tmp_path / "audit.toml").write_text(experiment(name, "x", today=today))
        judges = tomllib.loads((tmp_path / "audit.toml").read_text())["judges"]
        assert [judge["parameters"]["profile"] for judge in judges] == [profile] * 2
        assert plan_audit(tmp_path).bills.judges[0].calls > 0


def test_prices_are_known_where_the_price_list_knows_them(diagnosis: Path):
    pytest.importorskip("genai_prices")
    work = plan_audit(diagnosis).bills
    # 3,000 tokens in and 600 out a pair: about 30 dollars for the paper's 5,640 pairs and both judges.
    assert work.dollars * 5640 / 5040 == pytest.approx(30, rel=0.1)
    assert work.unpriced == ()


def test_hours_and_their_price_follow_from_seconds_per_edit(diagnosis: Path):
    options = PlanOptions(seconds={"flux2-dev": 36.0, "": 18.0}, gpu_dollars=2.0)
    plain, work = plan_audit(diagnosis).bills, plan_audit(diagnosis, options).bills
    assert work.gpu_hours == pytest.approx(1680 * (36 + 18 + 18) / 3600)
    assert work.dollars - plain.dollars == pytest.approx(2 * (work.gpu_hours or 0))
    with pytest.raises(StillmeError, match="Did you mean 'flux2-dev'"):
        plan_audit(diagnosis, PlanOptions(seconds={"flux-dev": 1.0}))


def test_seven_groups_of_twelve_see_what_simulated_audits_saw(diagnosis: Path):
    (detectable,) = [
        detectable
        for detectable in plan_audit(diagnosis).detectable
        if detectable.factor == "preset" and detectable.base == 0.10
    ]
    assert (detectable.groups, detectable.portraits, detectable.edits_each) == (7, 12, 20)
    # Matched sets are fewer than portraits, which costs degrees of freedom: a little more than the 9 to 19 points of
    # unmatched ones.
    assert detectable.gap.low == pytest.approx(0.10, abs=0.02)
    assert detectable.gap.high == pytest.approx(0.23, abs=0.03)
    assert detectable.gap.low < detectable.gap.value < detectable.gap.corrected


def test_a_gap_to_detect_comes_with_portraits_edits_and_dollars(diagnosis: Path):
    plan = plan_audit(diagnosis, PlanOptions(detect=0.1, rates=(0.1,), icc=0.05))
    requirement = next(requirement for requirement in plan.requirements if requirement.factor == "preset")
    assert requirement.per_group is not None
    assert requirement.portraits == 7 * requirement.per_group
    assert requirement.edits == requirement.portraits * 60
    assert requirement.judge_calls == 2 * requirement.edits
    assert requirement.dollars == pytest.approx(plan.bills.dollars * requirement.portraits / 84)


def test_a_plan_counts_the_sample_of_an_audit(diagnosis: Path):
    (diagnosis / "audit.toml").write_text((diagnosis / "audit.toml").read_text() + "\n[sample]\nsize = 1260\n")
    plan = plan_audit(diagnosis)
    assert plan.bills.requests == {"baseline": 1260}
    assert {detectable.edits_each for detectable in plan.detectable} == {5}


def test_an_earlier_run_tells_rate_spread_and_seconds(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    """Of two people every edit succeeds, of four none: the portrait decides everything."""
    prompts = [f"O-{number:02}" for number in range(1, 6)]
    folder = write_audit(judge='use = "scripted"', prompts=json.dumps(prompts))
    run_stages(folder, ("edit",))
    rows = [f"p{index},{prompt},{5 if index < 2 else 1}" for index in range(6) for prompt in prompts]
    rated_elsewhere(folder, "portrait,prompt,edit_success", rows)
    opened: list[Path] = []
    original = RecordedRun.open
    with monkeypatch.context() as patched:
        patched.setattr(RecordedRun, "open", lambda folder: opened.append(folder) or original(folder))
        plan = plan_audit(folder, PlanOptions(like=folder, quantity="success"))
    assert opened == [folder], "once, though several questions are asked of it"
    (assumed,) = plan.assumed.rates
    assert assumed.rate == pytest.approx(1 / 3)
    assert assumed.icc == pytest.approx(0.99)
    assert plan.assumed.origin == f"Edit succeeded in {folder}"
    assert plan.bills.editors[0].hours is not None
    known = plan_audit(folder, PlanOptions(like=folder, quantity="success", icc=0.05)).assumed.rates[0]
    assert known.rate == assumed.rate
    assert known.icc < 0.1, "what the user knows comes first"


def test_a_run_without_any_rate_has_nothing_to_tell(write_audit: Write):
    folder = write_audit()
    with pytest.raises(StillmeError, match="has no run yet"):
        plan_audit(folder, PlanOptions(like=folder))
    run_stages(folder, ("edit",))
    with pytest.raises(StillmeError, match="no rate whose spread"):
        plan_audit(folder, PlanOptions(like=folder))
    with pytest.raises(StillmeError, match=r"Unknown rate 'sucess'. Did you mean 'success'"):
        plan_audit(folder, PlanOptions(like=folder, quantity="sucess"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--detect", "10"], "--detect is 10; write a share between 0 and 1"),
        (["--power", "0.2"], "--power is 0.2"),
        (["--power", "my-audit"], "For an audit: `stillme plan my-audit --power`."),
        (["--sd", "0"], "--sd is 0"),
        (["--quantity", "success"], "goes with --like"),
        (["--seconds-per-edit", "flux2-dev=fast"], "is neither a number nor EDITOR=SECONDS"),
        (["--seconds-per-edit", "0"], "is not above 0"),
    ],
)
def test_a_mistake_is_one_sentence(diagnosis: Path, arguments: list[str], message: str):
    shown = invoke("plan", diagnosis, *arguments)
    assert isinstance(shown.exception, StillmeError)
    assert message in str(shown.exception)


def test_counterbalancing_crosses_pronouns_and_orders(tmp_path: Path):
    """39 sentences have a pronoun and come in three variants, 11 have none; all in both orders, for two editors."""
    text = experiment("roles", "x").replace("counterbalance = false", "counterbalance = true")
    (tmp_path / "audit.toml").write_text(text)
    plan = plan_audit(tmp_path)
    assert plan.bills.requests == {"baseline": 50 * 3 * 2 * 2}
    assert plan.detectable == ()
    before = _departure("roles", tmp_path)
    assert all(deviation.departure is not None and deviation.departure < before for deviation in plan.role_deviations)


def _departure(name: Experiment, folder: Path) -> float:
    (folder / "audit.toml").write_text(experiment(name, "x"))
    departure = plan_audit(folder).role_deviations[0].departure
    assert departure is not None
    return departure


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [line.split()[1:] for line in lines if line.startswith(("stillme new", "stillme plan"))]
    assert len(typed) == 5
    monkeypatch.chdir(tmp_path)
    for arguments in typed:
        ran(*arguments)


def test_people_read_what_programs_read(diagnosis: Path):
    shown = invoke("plan", diagnosis, "--detect", "0.1", "--power").output
    assert "5,040 edits (baseline 5,040), 10,080 judge calls" in shown
    assert "GPU hours: unknown" in shown
    assert "To detect 10 points between two groups" in shown
    assert "Smallest gap between two groups" in shown


def test_a_plan_is_about_ten_lines_and_the_rest_is_asked_for(tmp_path: Path):
    invoke("new", tmp_path / "mine")
    short = invoke("plan", tmp_path / "mine")
    assert len(short.stdout.splitlines()) <= 10
    assert "preset" in short.stdout.splitlines()[-1]
    assert "Smallest gap" not in short.stdout
    for words in (["--power"], ["--power", "0.9"]):
        assert "Smallest gap" in invoke("plan", tmp_path / "mine", *words).stdout


def torn(folder: Path) -> None:
    """A ledger that opens, and of which one table cannot be read."""
    with Store.writing(folder) as store:
        roots = store.query("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'edit' AND rootpage > 0").fetchall()
        (size,) = store.query("PRAGMA page_size").fetchone()
    ledger = bytearray((folder / "stillme.sqlite").read_bytes())
    for (root,) in roots:
        ledger[(root - 1) * size : root * size] = b"\xff" * size
    (folder / "stillme.sqlite").write_bytes(ledger)
    with Store.reading(folder) as store, pytest.raises(sqlite3.DatabaseError):
        list(store.averages("edit"))


def ruined(folder: Path) -> None:
    folder.mkdir()
    (folder / "stillme.sqlite").write_bytes(b"no database" * 100)


@pytest.mark.parametrize("damage", [torn, ruined])
def test_a_damaged_run_elsewhere_on_this_machine_costs_only_its_numbers(
    write_audit: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
):
    damage(tmp_path / "other")
    monkeypatch.setattr("stillme.findings.plan.assumptions.recent_runs", lambda: [tmp_path / "other"])
    planned = plan_audit(write_audit("use = 'noop'")).bills
    assert planned.edits > 0
    assert planned.editors[0].hours is None


def test_the_plan_names_the_preset_of_the_papers_machine(diagnosis: Path):
    notes = {bill.name: bill.note for bill in plan_audit(diagnosis).bills.editors}
    assert "on the paper's 80 GB (A100) use 'flux2-dev-80gb'" in notes["flux2-dev"]
    assert not any("A100" in note for name, note in notes.items() if name != "flux2-dev"), "the others fit"


def test_identities_are_counted_where_a_factor_does_not_vary_inside_them():
    portraits = registry.portrait_set("synthetic")
    assert [fewest_identities(portraits, name) for name in ("preset", "gender_presentation", "age_band")] == [0, 6, 2]
    assert fewest_identities(portraits, "absent") == 0


@pytest.mark.parametrize(
    ("source", "factors"), [("synthetic", ("preset",)), ("synthetic-36", ("age_band",)), ("./mine", ("age_band",))]
)
def test_where_nothing_is_gained_nothing_is_recommended(source: str, factors: tuple[str, ...]):
    assert larger_set(source, factors) == ""


def test_new_and_plan_name_the_set_and_its_price(tmp_path: Path):
    shown = invoke("new", tmp_path / "mine", "--experiment", "diagnosis")
    assert "gender_presentation 6 → 18, age_band 2 → 6" in shown.output
    assert "for 3 × the edits, cost and time." in shown.output
    planned = json.loads(invoke("plan", tmp_path / "mine", "--json").stdout)
    assert "3 × the edits (15,120)" in planned["larger_set"]
    file = tmp_path / "mine" / "audit.toml"
    file.write_text(file.read_text().replace('source = "synthetic"', 'source = "synthetic-36"'))
    planned = json.loads(invoke("plan", tmp_path / "mine", "--json").stdout)
    assert (planned["edits"], planned["identities"], planned["larger_set"]) == (15_120, 36, None)
