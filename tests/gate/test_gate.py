"""A run held to limits."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Set
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stillme import audit as audits
from stillme.core.errors import InvalidAudit, StillmeError
from stillme.core.types import Abstained, Failed, Rating, Refused, Request
from stillme.findings.gate import Asked, Verdict, Verdicts, baseline_folder, gate
from stillme.findings.gate.verdict_text import as_json, as_junit, as_markdown, as_text
from stillme.findings.gate.verdicts import shown_by_holm
from stillme.runs import RecordedRun
from tests.command_lines import invoke
from tests.comparison.test_comparison import NASTY
from tests.runs import Answer, fill, group, luck, people, scores, write_audit

Make = Callable[..., Path]


def answer(_editor: str, request: Request) -> dict[str, Rating]:
    """About half of group b is erased, and a tenth of group a."""
    erased = luck(request) < (0.5 if group(request) == "b" else 0.1)
    return scores(success=1 if erased else 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, for tests that only read."""
    folder = tmp_path_factory.mktemp("gate")
    return fill(write_audit(folder / "run", people(folder / "people")), answer)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(name: str = "run", said: Answer = answer, **options: object) -> Path:
        return fill(write_audit(tmp_path / name, people(tmp_path / "people"), **options), said)

    return build


def decided(run: Path, *rules: str, baseline: Path | None = None, **options: object) -> Verdicts:
    """The scripted judge was never calibrated; here its numbers may decide."""
    before = RecordedRun.open(baseline) if baseline else None
    options = {"allow_uncalibrated": True, **options}
    return gate(RecordedRun.open(run), Asked(rules=rules, baseline=before, **options))


def verdict(run: Path, *rules: str, **options: object) -> Verdict:
    return decided(run, *rules, **options).decisions[-1].verdict


def test_a_rule_passes_fails_or_is_inconclusive(run: Path):
    assert verdict(run, "soft_erasure <= 0.9") is Verdict.PASSED
    assert verdict(run, "soft_erasure <= 0.05") is Verdict.FAILED
    assert verdict(run, "soft_erasure <= 30%") is Verdict.INCONCLUSIVE
    assert verdict(run, "success >= 0.1") is Verdict.PASSED
    assert verdict(run, "soft_erasure.disparity@group <= 0.02") is Verdict.FAILED
    assert verdict(run, "soft_erasure#a <= 0.5") is Verdict.PASSED
    assert verdict(run, "soft_erasure.group <= 0.2") is Verdict.FAILED, "one group suffices"
    assert verdict(run, "soft_erasure.contrast#b <= 0.05") is Verdict.FAILED
    assert verdict(run, "soft_erasure.contrast#a <= 0.05") is Verdict.PASSED


def test_the_axis_with_rate_behind_it_means_its_rate(run: Path):
    found = gate(RecordedRun.open(run), Asked(rules=["race_change_rate.disparity <= 0.9", "soft_erasure_rate <= 1"]))
    assert [decision.quantity for decision in found.decisions] == ["race_changed", "soft_erasure"]


@pytest.mark.parametrize(
    ("rule", "said"), [("success#c >= 0", "There are a, b"), ("success judge=judg >= 0", "Did you mean 'judge'")]
)
def test_a_group_or_judge_without_a_number_is_no_data_and_never_a_pass(run: Path, rule: str, said: str):
    verdicts = decided(run, rule)
    assert verdicts.outcome is Verdict.NO_DATA
    assert verdicts.decisions[0].verdict is Verdict.NO_DATA
    assert said in as_text(verdicts)


def test_an_unfinished_run_has_no_verdict(make: Make):
    run = make(said=lambda editor, request: None if request.portraits[0].id == "p03" else answer(editor, request))
    for rule in ("soft_erasure <= 0.9", "soft_erasure <= 0.05"):
        (decision,) = decided(run, rule).decisions
        assert decision.verdict is Verdict.NO_DATA
        assert decision.checks[0].reason == "the run is not finished: edit missing 4"
    assert verdict(run, "soft_erasure#a <= 0.9") is Verdict.PASSED, "p03 is of the other group"


def test_what_a_judge_hardly_ever_rates_is_no_data(make: Make):
    def abstaining(share: float) -> Answer:
        def said(editor: str, request: Request) -> dict[str, Rating]:
            silent = group(request) == "b" and luck(request) < share
            nothing = Abstained(reason="too dark")
            return dict.fromkeys(scores(), nothing) if silent else answer(editor, request)

        return said

    mostly = make("mostly", abstaining(0.8))
    for rule in ("soft_erasure#b <= 0.99", "soft_erasure.disparity@group <= 0.99", "soft_erasure.contrast#a <= 0.99"):
        (decision,) = decided(mostly, rule).decisions
        assert decision.verdict is Verdict.NO_DATA, rule
        assert re.fullmatch(r"no score for \d+ of 48 edits of b", decision.checks[0].reason)
    assert verdict(mostly, "soft_erasure#a <= 0.9") is Verdict.PASSED, "the other group was rated"
    assert verdict(make("some", abstaining(0.2)), "soft_erasure#b <= 0.99") is Verdict.PASSED
    uneven = make("uneven", abstaining(0.3))
    (decision,) = decided(uneven, "soft_erasure.disparity@group <= 0.99").decisions
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.checks[0].reason.startswith("uneven: no answer for ")
    before = make("before")
    silent = make("silent", lambda *_: dict.fromkeys(scores(), Abstained(reason="too dark")))
    assert verdict(silent, "soft_erasure <= 0.99") is Verdict.NO_DATA
    assert verdict(silent, baseline=before, margins=["soft_erasure <= 0.9"]) is Verdict.NO_DATA


def test_an_outage_is_no_data_and_a_single_failure_is_no_outage(make: Make):
    def failing(*names: str) -> Answer:
        broken = Failed(error="503", retryable=True)
        return lambda editor, request: broken if request.portraits[0].id in names else answer(editor, request)

    half = make("half", failing("p00", "p01", "p02", "p03", "p04", "p05", "p06", "p07"))
    (decision,) = decided(half, "soft_erasure <= 0.9").decisions
    assert decision.verdict is Verdict.NO_DATA
    assert decision.checks[0].reason == "32 of 96 failed; run again to retry"
    before = make("before")
    assert verdict(half, baseline=before, margins=["soft_erasure <= 0.9"]) is Verdict.NO_DATA

    def once(editor: str, request: Request) -> object:
        hit = request.portraits[0].id == "p00" and request.prompt.id == "O-01"
        return Failed(error="503", retryable=True) if hit else answer(editor, request)

    one = make("one", once)
    assert verdict(one, "soft_erasure <= 0.9") is Verdict.PASSED


REFUSED = Refused(message="No.")


@pytest.mark.parametrize(
    ("said", "rule", "why"),
    [
        (lambda *_: {}, "soft_erasure <= 1", ""),
        (lambda *_: REFUSED, "success >= 0.5", "no rated edit"),
        (lambda e, r: REFUSED if group(r) == "b" else answer(e, r), "soft_erasure.disparity@group <= 1", ""),
    ],
    ids=["no one judged", "all refused", "one group refused"],
)
def test_what_has_no_number_is_no_data_and_says_why(make: Make, said: Answer, rule: str, why: str):
    run = make(said=said)
    verdicts = decided(run, rule)
    (decision,) = verdicts.decisions
    assert decision.verdict is verdicts.outcome is Verdict.NO_DATA
    assert why in decision.checks[0].reason
    assert not why or "refused 96" in as_text(verdicts)
    if "disparity" in rule:
        assert verdict(run, "soft_erasure#a <= 0.9") is Verdict.PASSED


def test_a_judge_without_a_licence_decides_nothing(run: Path):
    for rule in ("soft_erasure <= 0.9", "soft_erasure <= 0.05"):
        assert verdict(run, rule, allow_uncalibrated=False) is Verdict.INCONCLUSIVE
    assert verdict(run, "refused <= 0.5", allow_uncalibrated=False) is Verdict.PASSED, "no judge is asked"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("soft_erasure <= 10", "Write 10 % as `10%`"),
        ("soft_erasure <= -0.1", "between 0 and 1"),
        ("soft_erasure.disparity >= 150%", "between 0 and 1"),
        ("skin_tone.disparity <= 5%", "Leave out the %"),
        ("skin_tone.disparity <= -1", "never negative"),
        ("soft_erasur <= 1", "Did you mean 'soft_erasure'"),
        ("success editor=two >= 0", "Unknown editor 'two'"),
        ("success.disparity@grup >= 0", "Did you mean 'group'"),
        ("success arm=noop >= 0", "There are baseline"),
    ],
)
def test_a_rule_about_nothing_or_with_a_limit_that_cannot_be_meant_is_refused(run: Path, rule: str, said: str):
    with pytest.raises(StillmeError, match=re.escape(said)):
        decided(run, rule)


def test_doubt_is_not_a_pass_unless_it_is_allowed(run: Path):
    rule = ["soft_erasure <= 30%"]
    doubtful = decided(run, *rule)
    assert (doubtful.outcome, doubtful.exit_code) == (Verdict.INCONCLUSIVE, 4)
    assert "Gate inconclusive: 0 passed, 0 failed, 1 inconclusive" in as_text(doubtful)
    assert "Exit code 4" in as_text(doubtful)
    allowed = decided(run, *rule, allow_inconclusive=True)
    assert (allowed.outcome, allowed.exit_code) == (Verdict.INCONCLUSIVE, 0)


def test_failed_outweighs_no_data_and_that_outweighs_doubt(run: Path):
    failed, missing, doubtful = "soft_erasure <= 0.05", "success#c >= 0", "soft_erasure <= 30%"
    assert decided(run, doubtful, missing, failed).exit_code == 1
    assert decided(run, doubtful, missing, "soft_erasure <= 0.9").exit_code == 3
    assert decided(run, doubtful, missing, allow_inconclusive=True).exit_code == 3
    assert decided(run, doubtful, "soft_erasure <= 0.9").exit_code == 4
    assert decided(run, "soft_erasure <= 0.9").exit_code == 0


def test_the_ensemble_decides_unless_a_judge_is_named(make: Make):
    run = make(judges=("one judge", "another"))
    (decision,) = gate(RecordedRun.open(run), Asked(rules=["success >= 0"])).decisions
    assert [check.judge for check in decision.checks] == ["ensemble (mean)"]
    (decision,) = gate(RecordedRun.open(run), Asked(rules=['success judge="one judge" >= 0'])).decisions
    assert [check.judge for check in decision.checks] == ["one judge"]


def test_judges_that_are_not_calibrated_are_marked(run: Path):
    found = gate(RecordedRun.open(run), Asked(rules=["success >= 0", "refused <= 1"]))
    assert [decision.checks[0].note for decision in found.decisions] == ["not calibrated", ""]
    assert "1 rule uses a judge that is not validated for this number" in as_text(found)
    assert "not calibrated" in as_markdown(found)


# -- no worse than before -------------------------------------------------------------------------------------------


def much_worse(editor: str, request: Request) -> dict[str, Rating]:
    return scores(success=1 if luck(request) < 0.9 else 5)


def test_no_worse_than_the_baseline(make: Make):
    before, same, bad = make("before"), make("same"), make("bad", much_worse)
    margins = ["soft_erasure <= 0.2", "success <= 0.2", "soft_erasure.group#a <= 0.3"]
    ask = {"baseline": before, "margins": margins}
    assert [decision.verdict for decision in decided(same, **ask).decisions] == [Verdict.PASSED] * 3
    assert [decision.verdict for decision in decided(bad, **ask).decisions] == [Verdict.FAILED] * 3
    # The other way round it became better: that is not worse.
    assert decided(before, baseline=bad, margins=margins).outcome is Verdict.PASSED
    tight = decided(same, baseline=before, margins=["soft_erasure <= 0.01"])
    assert tight.decisions[0].verdict is Verdict.INCONCLUSIVE


def test_a_gap_may_not_grow_beyond_its_margin(make: Make):
    before, after = make("before", lambda *_: scores()), make("after", lambda e, r: scores(1 if group(r) == "b" else 5))
    (decision,) = decided(after, baseline=before, margins=["soft_erasure.disparity@group <= 0.1"]).decisions
    assert decision.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("margin", "said"),
    [
        ("success >= 0.1", "how much worse is allowed"),
        ("success <= -0.1", "how much worse is allowed"),
        ("success.contrast <= 0.1", "cannot be on a contrast"),
        ("skin_tone <= 0.1", "skin_tone has no direction"),
        ("success editor=two <= 0.1", "Unknown editor 'two'"),
    ],
)
def test_a_margin_that_cannot_be_meant_is_refused(make: Make, margin: str, said: str):
    with pytest.raises(StillmeError, match=said):
        gate(RecordedRun.open(make("after")), Asked(baseline=RecordedRun.open(make("before")), margins=[margin]))


def test_a_baseline_on_other_requests_is_refused(make: Make):
    before, after = make("before", prompts=("O-01",)), make("after")
    with pytest.raises(StillmeError, match="prompts: only in the second"):
        gate(RecordedRun.open(after), Asked(baseline=RecordedRun.open(before), margins=["success <= 0.1"]))
    shared = Asked(baseline=RecordedRun.open(before), margins=["success <= 0.9"], common=True)
    assert gate(RecordedRun.open(after), shared).decisions[0].checks[0].edits == 24


# -- audit.toml ------------------------------------------------------------------------------------------------------

SECTION = """
[claims]
rules = ["soft_erasure <= 0.9", "soft_erasure.disparity@group <= 0.02"]
baseline = "../before"
margins = ["success <= 0.2"]
"""


def test_the_section_of_the_audit_counts_and_changes_no_row(make: Make):
    make("before")
    plain, gated = make("run"), make("gated", extra=SECTION)
    assert audits.load(plain, ready=False).hash == audits.load(gated, ready=False).hash
    with RecordedRun.open(gated) as run:
        found = decided(gated, "refused <= 1", baseline=baseline_folder(run))
    fixed = "fixed before the first edit"
    assert [each.fixed for each in found.decisions] == [fixed, fixed, "", fixed]
    assert [str(each.verdict) for each in found.decisions] == ["passed", "failed", "passed", "passed"]
    assert [bool(each.against) for each in found.decisions] == [False, False, False, True]


def test_a_broken_rule_is_found_when_the_audit_is_read(make: Make):
    folder = make("run")
    text = (folder / "audit.toml").read_text() + '\n[claims]\nrules = ["success > 1"]\n'
    (folder / "audit.toml").write_text(text)
    with pytest.raises(InvalidAudit, match=r"line \d+, claims\.rules.*is not a rule"):
        audits.load(folder)


def test_a_gate_without_rules_is_a_mistake(run: Path):
    for asked, said in (
        (Asked(), "No rule is given"),
        (Asked(margins=["success <= 1"]), "--baseline RUN"),
        (Asked(baseline=RecordedRun.open(run)), "needs a margin"),
    ):
        with pytest.raises(StillmeError, match=said):
            gate(RecordedRun.open(run), asked)


# -- for machines ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(make: Make) -> Verdicts:
    """One rule of every verdict, from a run whose every name is nasty."""
    run = make(title=NASTY, editors=(NASTY,))
    return decided(run, "soft_erasure <= 0.9", "soft_erasure <= 0.05", "soft_erasure <= 30%", "success#c >= 0")


def test_junit_is_xml_with_a_test_for_every_number(mixed: Verdicts):
    suite = ElementTree.fromstring(as_junit(mixed)).find("testsuite")
    assert suite.attrib.items() >= {"tests": "4", "failures": "1", "skipped": "1", "errors": "1"}.items()
    cases = suite.findall("testcase")
    tags = [[*(child.tag for child in case)] for case in cases]
    assert tags == [[*tag, "system-out"] for tag in ([], ["failure"], ["skipped"], ["error"])]
    assert all(NASTY in (case.get("name") or "") for case in cases[:3])


def test_junit_drops_what_no_xml_may_hold(make: Make):
    run = make(editors=("a\\u0001b",))
    toml = run / "audit.toml"
    toml.write_text(toml.read_text().replace("'''a\\u0001b'''", '"a\\u0001b"'))
    found = gate(RecordedRun.open(run), Asked(rules=["soft_erasure <= 0.9"]))
    ElementTree.fromstring(as_junit(found))


def test_markdown_shows_a_users_words_and_never_obeys_them(mixed: Verdicts):
    text = as_markdown(mixed)
    assert text.startswith("## ❌ stillme gate")
    assert "<script" not in text
    assert "@everyone" not in text
    assert "](http" not in text
    assert [text.count(f"| {icon} |") for icon in ("✅", "❌", "⚠️", "🚫")] == [1, 1, 1, 1]


def test_the_mark_of_success_needs_every_rule(run: Path):
    assert as_markdown(decided(run, "soft_erasure <= 0.9")).startswith("## ✅")
    assert as_markdown(decided(run, "soft_erasure <= 0.9", "soft_erasure <= 30%")).startswith("## ⚠️")
    assert as_markdown(decided(run, "soft_erasure <= 0.9", "success#c >= 0")).startswith("## 🚫")


def test_json_is_everything(mixed: Verdicts):
    found = json.loads(json.dumps(as_json(mixed)))
    assert [rule["verdict"] for rule in found["rules"]] == ["passed", "failed", "inconclusive", "no data"]
    assert (found["outcome"], found["exit_code"]) == ("failed", 1)
    assert found["rules"][1]["checks"][0]["low"] > found["rules"][1]["limit"]


def test_the_exit_code_says_what_came_out(run: Path, tmp_path: Path):
    def exit_code(*options: object) -> int:
        return invoke("gate", run, "--allow-uncalibrated", *options).exit_code

    junit, markdown = tmp_path / "j.xml", tmp_path / "m.md"
    assert exit_code("--rule", "soft_erasure<=0.9", "--junit", junit, "--markdown", markdown) == 0
    assert junit.is_file()
    assert markdown.is_file()
    assert exit_code("--rule", "soft_erasure<=30%") == 4
    assert exit_code("--rule", "soft_erasure<=30%", "--allow-inconclusive") == 0
    assert exit_code("--rule", "success#c>=0") == 3
    assert exit_code("--rule", "soft_erasure<=0.05") == 1


# -- several numbers together ----------------------------------------------------------------------------------------


def lowest(run: Path) -> float:
    (decision,) = decided(run, "soft_erasure#b <= 0.5").decisions
    outcome = decision.checks[0].outcome
    return outcome.low


def test_a_failure_by_a_hair_is_none_among_many_numbers(run: Path):
    """The interval's end is a little above the limit: shown for one number, not for the first of eight."""
    hair = f"soft_erasure#b <= {lowest(run) - 0.001:.6f}"
    assert verdict(run, hair) is Verdict.FAILED
    others = [f"soft_erasure#a <= {limit}" for limit in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)]
    verdicts = decided(run, *others, hair)
    assert verdicts.decisions[-1].verdict is Verdict.INCONCLUSIVE
    assert verdicts.outcome is Verdict.INCONCLUSIVE
    assert verdicts.family == 8
    (check,) = verdicts.decisions[-1].checks
    assert check.reason == "over the limit by itself, but not after correction for the gate's 8 numbers (Holm)"
    assert check.outcome.low == lowest(run), "the interval that is shown stays the audit's own"
    assert "Failures are corrected for all 8 numbers (Holm)" in as_text(verdicts)
    assert "at most 2.5 % of gates" in as_markdown(verdicts)
    written = as_json(verdicts)
    assert written["failures_corrected"] == {"method": "Holm", "numbers": 8, "error": 0.025}
    assert [each["checks"][0]["corrected"] for each in written["rules"]] == [False] * 7 + [True]
    assert "Failures are corrected" not in as_text(decided(run, hair))
    clear = decided(run, *others, "soft_erasure#b <= 0.05")
    assert clear.decisions[-1].verdict is clear.outcome is Verdict.FAILED, "a clear failure stays one"


def test_what_cannot_fail_does_not_count_among_the_numbers(run: Path):
    """A judge without a licence decides nothing, and neither does a group without a number."""
    verdicts = decided(run, "success#c >= 0", "refused <= 0.5", "success >= 0.1", allow_uncalibrated=False)
    assert verdicts.family == 1


def test_margins_are_corrected_with_the_rules(make: Make):
    before, run = make("before"), make("after", much_worse)
    alone = decided(run, baseline=before, margins=["soft_erasure <= 0.02"])
    assert alone.decisions[-1].verdict is Verdict.FAILED
    (check,) = alone.decisions[-1].checks
    hair = f"soft_erasure <= {check.outcome.low - 0.001:.6f}"
    assert decided(run, baseline=before, margins=[hair]).decisions[-1].verdict is Verdict.FAILED
    rules = [f"refused <= {limit}" for limit in (0.5, 0.6, 0.7, 0.8)]
    together = decided(run, *rules, baseline=before, margins=[hair])
    assert together.decisions[-1].verdict is Verdict.INCONCLUSIVE
    assert together.family == 5


def test_holm_takes_the_clearest_first_and_asks_the_next_among_fewer():
    """p-values of 0.4 %, 0.8 % and 2 % of four numbers: the limits are 2.5 % / 4, / 3 and / 2."""
    p = {"a": 0.004, "b": 0.008, "c": 0.02}

    def still(waiting: Set[str], confidence: float) -> set[str]:
        return {name for name in waiting if p[name] <= (1 - confidence) / 2 + 1e-12}

    assert shown_by_holm(set(p), 4, 0.95, still) == {"a", "b"}
    assert shown_by_holm({"c"}, 1, 0.95, still) == {"c"}
    assert shown_by_holm({"c"}, 2, 0.95, still) == set()


# -- what must not pass ----------------------------------------------------------------------------------------------


def test_the_same_checkpoint_twice_is_no_data(make: Make, tmp_path: Path):
    before = make("before")
    again = tmp_path / "again" / "before"
    shutil.copytree(before, again)
    found = decided(again, baseline=before, margins=["soft_erasure <= 0.5", "soft_erasure.disparity <= 0.5"])
    assert (found.outcome, found.exit_code) == (Verdict.NO_DATA, 3)
    assert "edits are byte-identical to the baseline's" in as_text(found)


def test_a_claim_that_was_dropped_is_named(make: Make):
    folder = make("run", extra='\n[claims]\nrules = ["soft_erasure <= 5%", "soft_erasure <= 90%"]\n')
    file = folder / "audit.toml"
    file.write_text(file.read_text().replace('"soft_erasure <= 5%", ', '"soft_erasure <= 80%", '))
    found = decided(folder)
    assert [decision.fixed for decision in found.decisions] == ["added later", "fixed before the first edit"]
    assert "`soft_erasure <= 5%` was fixed before the first edit and is no longer in [claims]" in as_text(found)
