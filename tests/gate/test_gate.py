"""A run held to limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from stillme import audit as audits
from stillme.cli import cli
from stillme.errors import InvalidAudit, StillmeError, UnknownName
from stillme.gate import Asked, Verdict, Verdicts, gate
from stillme.gate.junit import as_junit
from stillme.gate.sarif import as_sarif
from stillme.gate.showing import as_json, as_markdown, as_text
from stillme.types import Rating, Refused, Request
from tests.comparison.test_comparison import NASTY
from tests.runs import Answer, fill, group, luck, people, scores, write_audit

Run = Callable[..., Path]


def answer(_editor: str, request: Request) -> dict[str, Rating]:
    """About half of group b is erased, and a tenth of group a."""
    erased = luck(request) < (0.5 if group(request) == "b" else 0.1)
    return scores(success=1 if erased else 5)


@pytest.fixture
def make(tmp_path: Path) -> Run:
    def build(name: str = "run", said: Answer = answer, **options: object) -> Path:
        return fill(write_audit(tmp_path / name, people(tmp_path / "people"), **options), said)

    return build


def verdict(run: Path, *rules: str, **options: object) -> Verdict:
    found = gate(run, None, Asked(rules=rules, **options))
    return found.decisions[-1].verdict


def test_a_rule_passes_fails_or_cannot_be_told(make: Run):
    run = make()
    assert verdict(run, "soft_erasure <= 0.9") is Verdict.PASSES
    assert verdict(run, "soft_erasure <= 0.05") is Verdict.FAILS
    assert verdict(run, "soft_erasure <= 30%") is Verdict.CANNOT_TELL
    assert verdict(run, "success >= 0.1") is Verdict.PASSES
    assert verdict(run, "soft_erasure.disparity@group <= 0.02") is Verdict.FAILS
    assert verdict(run, "soft_erasure#a <= 0.5") is Verdict.PASSES
    assert verdict(run, "soft_erasure.group <= 0.2") is Verdict.FAILS, "one group suffices"
    assert verdict(run, "soft_erasure.contrast#b <= 0.05") is Verdict.FAILS
    assert verdict(run, "soft_erasure.contrast#a <= 0.05") is Verdict.PASSES


def test_the_axis_with_rate_behind_it_means_its_rate(make: Run):
    found = gate(make(), None, Asked(rules=["race_change_rate.disparity <= 0.9", "soft_erasure_rate <= 1"]))
    assert [decision.quantity for decision in found.decisions] == ["race_changed", "soft_erasure"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("soft_erasur <= 1", "Did you mean 'soft_erasure'"),
        ("success editor=two >= 0", "Unknown editor 'two'"),
        ("success.disparity@grup >= 0", "Did you mean 'group'"),
        ("success#c >= 0", "There are a, b for this rule"),
        ("success judge=judg >= 0", "Did you mean 'judge'"),
        ("success arm=noop >= 0", "There are baseline"),
    ],
)
def test_a_rule_about_nothing_is_a_mistake(make: Run, rule: str, said: str):
    with pytest.raises(UnknownName, match=said):
        gate(make(), None, Asked(rules=[rule]))


def test_an_unfinished_run_cannot_pass_but_can_fail(make: Run):
    run = make(said=lambda editor, request: None if request.portraits[0].id == "p03" else answer(editor, request))
    (decision,) = gate(run, None, Asked(rules=["soft_erasure <= 0.9"])).decisions
    assert decision.verdict is Verdict.CANNOT_TELL
    assert decision.checks[0].reason == "the run is not finished: edit missing 4"
    assert verdict(run, "soft_erasure <= 0.05") is Verdict.FAILS
    assert verdict(run, "soft_erasure#a <= 0.9") is Verdict.PASSES, "p03 is of the other group"


def test_what_has_no_number_cannot_be_told_and_says_why(make: Run):
    run = make(said=lambda *_: Refused(message="No."))
    (decision,) = gate(run, None, Asked(rules=["success >= 0.5"])).decisions
    assert decision.verdict is Verdict.CANNOT_TELL
    assert "no rated edit" in decision.checks[0].reason
    assert "refused 96" in as_text(gate(run, None, Asked(rules=["success >= 0.5"])))


def test_strict_makes_doubt_a_failure(make: Run):
    run, rule = make(), ["soft_erasure <= 30%"]
    assert gate(run, None, Asked(rules=rule)).passed
    assert not gate(run, None, Asked(rules=rule, strict=True)).passed


def test_the_ensemble_decides_unless_a_judge_is_named(make: Run):
    run = make(judges=("one judge", "another"))
    (decision,) = gate(run, None, Asked(rules=["success >= 0"])).decisions
    assert [check.judge for check in decision.checks] == ["ensemble (mean)"]
    (decision,) = gate(run, None, Asked(rules=['success judge="one judge" >= 0'])).decisions
    assert [check.judge for check in decision.checks] == ["one judge"]


def test_judges_that_are_not_calibrated_are_marked(make: Run):
    found = gate(make(), None, Asked(rules=["success >= 0", "refused <= 1"]))
    assert [decision.checks[0].note for decision in found.decisions] == ["not calibrated", ""]
    assert "1 rule rests on a judge that is not calibrated" in as_text(found)
    assert "not calibrated" in as_markdown(found)


# -- no worse than before -------------------------------------------------------------------------------------------


def much_worse(editor: str, request: Request) -> dict[str, Rating]:
    return scores(success=1 if luck(request) < 0.9 else 5)


def test_no_worse_than_the_baseline(make: Run):
    before, same, bad = make("before"), make("same"), make("bad", much_worse)
    margins = ["soft_erasure <= 0.2", "success <= 0.2", "soft_erasure.group#a <= 0.3"]
    ask = {"baseline": before, "margins": margins}
    assert [each.verdict for each in gate(same, None, Asked(**ask)).decisions] == [Verdict.PASSES] * 3
    assert [each.verdict for each in gate(bad, None, Asked(**ask)).decisions] == [Verdict.FAILS] * 3
    # The other way round it became better: that is not worse.
    assert gate(before, None, Asked(baseline=bad, margins=margins)).passed
    tight = gate(same, None, Asked(baseline=before, margins=["soft_erasure <= 0.01"]))
    assert tight.decisions[0].verdict is Verdict.CANNOT_TELL


def test_a_gap_may_not_grow_beyond_its_margin(make: Run):
    before, after = make("before", lambda *_: scores()), make("after", lambda e, r: scores(1 if group(r) == "b" else 5))
    (decision,) = gate(after, None, Asked(baseline=before, margins=["soft_erasure.disparity@group <= 0.1"])).decisions
    assert decision.verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("margin", "said"),
    [
        ("success >= 0.1", "how much worse is allowed"),
        ("success <= -0.1", "how much worse is allowed"),
        ("success.contrast <= 0.1", "not on a contrast"),
        ("skin_tone <= 0.1", "which way skin_tone is worse"),
        ("success editor=two <= 0.1", "Unknown editor 'two'"),
    ],
)
def test_a_margin_that_cannot_be_meant_is_refused(make: Run, margin: str, said: str):
    with pytest.raises(StillmeError, match=said):
        gate(make("after"), None, Asked(baseline=make("before"), margins=[margin]))


def test_a_baseline_on_other_requests_is_refused(make: Run):
    before, after = make("before", prompts=("O-01",)), make("after")
    with pytest.raises(StillmeError, match="prompts: only in the second"):
        gate(after, None, Asked(baseline=before, margins=["success <= 0.1"]))
    shared = Asked(baseline=before, margins=["success <= 0.9"], common=True)
    assert gate(after, None, shared).decisions[0].checks[0].edits == 24


# -- audit.toml ------------------------------------------------------------------------------------------------------

SECTION = """
[gate]
rules = ["soft_erasure <= 0.9", "soft_erasure.disparity@group <= 0.02"]
baseline = "../before"
margins = ["success <= 0.2"]
strict = true
"""


def test_the_section_of_the_audit_counts_and_changes_no_row(make: Run):
    make("before")
    plain, gated = make("run"), make("gated", extra=SECTION)
    assert audits.load(plain, ready=False).hash == audits.load(gated, ready=False).hash
    found = gate(gated, None, Asked(rules=["refused <= 1"]))
    assert found.strict
    assert [str(each.verdict) for each in found.decisions] == ["passes", "fails", "passes", "passes"]
    assert [bool(each.against) for each in found.decisions] == [False, False, False, True]


def test_a_broken_rule_is_found_when_the_audit_is_read(make: Run):
    folder = make("run")
    text = (folder / "audit.toml").read_text() + '\n[gate]\nrules = ["success > 1"]\n'
    (folder / "audit.toml").write_text(text)
    with pytest.raises(InvalidAudit, match=r"line \d+, gate\.rules.*is no rule"):
        audits.load(folder)


def test_a_gate_without_rules_is_a_mistake(make: Run):
    run = make()
    for asked, said in (
        (Asked(), "There is no rule"),
        (Asked(margins=["success <= 1"]), "--baseline RUN"),
        (Asked(baseline=run), "needs a margin"),
    ):
        with pytest.raises(StillmeError, match=said):
            gate(run, None, asked)


# -- for machines ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(make: Run) -> Verdicts:
    """One rule of each verdict, from a run whose every name is nasty."""
    run = make(title=NASTY, editors=(NASTY,))
    return gate(run, None, Asked(rules=["soft_erasure <= 0.9", "soft_erasure <= 0.05", "soft_erasure <= 30%"]))


def test_junit_is_xml_with_a_test_for_every_number(mixed: Verdicts):
    suite = ElementTree.fromstring(as_junit(mixed)).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    cases = suite.findall("testcase")
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"],
        ["failure", "system-out"],
        ["skipped", "system-out"],
    ]
    assert all(NASTY in (case.get("name") or "") for case in cases)


def test_junit_drops_what_no_xml_may_hold(make: Run):
    run = make(editors=("a\\u0001b",))
    toml = run / "audit.toml"
    toml.write_text(toml.read_text().replace("'''a\\u0001b'''", '"a\\u0001b"'))
    found = gate(run, None, Asked(rules=["soft_erasure <= 0.9"]))
    ElementTree.fromstring(as_junit(found))


def test_sarif_has_its_main_parts(mixed: Verdicts):
    log = json.loads(as_sarif(mixed))
    assert log["version"] == "2.1.0"
    assert "sarif-2.1.0" in log["$schema"]
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "stillme"
    assert len({rule["id"] for rule in rules}) == len(rules) == 3
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        # 3.27.9 and 3.27.10: a level other than none is only for failures.
        assert (result["kind"] == "fail") == (result["level"] != "none")
        assert result["message"]["text"]
        location = result["locations"][0]["physicalLocation"]
        assert location["region"]["startLine"] >= 1
        assert location["artifactLocation"]["uri"].endswith("audit.toml")
        assert len(result["partialFingerprints"]) == 1
    assert [result["kind"] for result in run["results"]] == ["pass", "fail", "open"]


def test_sarif_points_at_the_line_of_the_rule(make: Run):
    make("before")
    run = make("gated", extra=SECTION)
    found = gate(run, None, Asked())
    lines = (run / "audit.toml").read_text().splitlines()
    for result in json.loads(as_sarif(found))["runs"][0]["results"]:
        line = lines[result["locations"][0]["physicalLocation"]["region"]["startLine"] - 1]
        assert line.startswith(("rules = ", "margins = "))


def test_markdown_shows_a_users_words_and_never_obeys_them(mixed: Verdicts):
    text = as_markdown(mixed)
    assert text.startswith("## ❌ stillme gate")
    assert "<script" not in text
    assert "@everyone" not in text
    assert "](http" not in text
    assert text.count("| ⚠️ |") == text.count("| ❌ |") == text.count("| ✅ |") == 1


def test_json_is_everything(mixed: Verdicts):
    found = json.loads(json.dumps(as_json(mixed)))
    assert [rule["verdict"] for rule in found["rules"]] == ["passes", "fails", "cannot tell"]
    assert found["rules"][1]["checks"][0]["low"] > found["rules"][1]["limit"]


def test_the_command_exits_with_one_only_on_failure(make: Run, tmp_path: Path):
    run = str(make())

    def exit_code(*options: str) -> int:
        return CliRunner().invoke(cli, ["gate", run, *options]).exit_code

    files = [tmp_path / name for name in ("j.xml", "s.sarif", "m.md")]
    options = [
        part
        for name, file in zip(("junit", "sarif", "markdown"), files, strict=True)
        for part in (f"--{name}", str(file))
    ]
    assert exit_code("--max", "soft_erasure<=0.9", *options) == 0
    assert all(file.is_file() for file in files)
    assert exit_code("--rule", "soft_erasure<=30%") == 0
    assert exit_code("--rule", "soft_erasure<=30%", "--strict") == 1
    assert exit_code("--max", "soft_erasure<=0.05") == 1
