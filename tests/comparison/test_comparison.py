"""Two editors on the same requests."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stillme.core.errors import StillmeError, UnknownName
from stillme.core.types import Abstained, Interval, Rating, Refused, Request
from stillme.findings.compare import ChosenEditor, Comparison, Worse, choose, compare, match, worse_when
from stillme.findings.compare.comparison_text import as_json, as_markdown, as_text
from stillme.findings.layout import page, plain
from stillme.runs import RecordedRun
from tests.command_lines import ran
from tests.runs import Answer, fill, group, luck, people, scores, write_audit

Make = Callable[..., Path]


def sides(first: Path, second: Path | None, names: tuple[str, str] | None) -> tuple[ChosenEditor, ChosenEditor]:
    return choose(RecordedRun.open(first), RecordedRun.open(second) if second else None, names)


def compared(first: Path, second: Path | None, names: tuple[str, str] | None = None) -> Comparison:
    return compare(match(*sides(first, second, names)))


def fair(_editor: str, request: Request) -> dict[str, Rating]:
    return scores(success=1 if luck(request) < 0.1 else 5)


def worse_for_b(_editor: str, request: Request) -> dict[str, Rating]:
    erased = luck(request) < (0.8 if group(request) == "b" else 0.1)
    return scores(success=1 if erased else 5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and one that erases more edits of group b."""
    folder = tmp_path_factory.mktemp("pair")
    portraits = people(folder / "people")
    answered = {"before": fair, "after": worse_for_b}
    before, after = (fill(write_audit(folder / name, portraits), answer) for name, answer in answered.items())
    return before, after


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(name: str, answer: Answer, **options: object) -> Path:
        portraits = options.pop("portraits", None) or people(tmp_path / "people")
        return fill(write_audit(tmp_path / name, portraits, **options), answer)

    return build


def test_what_became_worse_for_whom_comes_first(pair: tuple[Path, Path]):
    before, after = pair
    found = compared(before, after)
    worse = found.with_verdict("worse")
    assert {(each.quantity, each.group) for each in worse} >= {("soft_erasure", "b"), ("success", "b")}
    assert not [each for each in worse if each.group == "a"]
    (change,) = [each for each in worse if (each.quantity, each.group) == ("soft_erasure", "b")]
    assert change.outcome.low < 0.7 < change.outcome.high
    assert as_text(found).index("Worse: ") < as_text(found).index("Gaps that grew")
    row = next(line for line in as_text(found).splitlines() if "Soft erasure" in line and " b " in line)
    assert row.endswith("judge; not calibrated"), "who judged is in the judge's column"
    assert len({each.adjusted for each in worse}) < len(worse)
    assert "Equal q are no mistake" in as_text(found)
    grown = {gap.quantity for gap in found.gaps if gap.verdict == "worse"}
    assert "soft_erasure" in grown


def test_a_gap_in_what_a_judge_says_less_about_some_is_not_called_worse(make: Make):
    def silent_about_some_b(_editor: str, request: Request) -> dict[str, Rating]:
        if group(request) == "b" and luck(request) > 0.7:
            return {"edit_success": Abstained(reason="light unknown")}
        return worse_for_b(_editor, request)

    before, after = make("before", fair), make("after", silent_about_some_b)
    found = compared(before, after)
    gaps = [gap for gap in found.gaps if gap.quantity == "success" and gap.factor == "group"]
    assert {gap.verdict for gap in gaps} == {"unclear"}
    assert all(gap.note.startswith("uneven: no answer for ") for gap in gaps)


def lightens_b(_editor: str, request: Request) -> dict[str, Rating]:
    return scores(skin=5 if group(request) == "b" and luck(request) < 0.9 else 3)


def erases_b(_editor: str, request: Request) -> dict[str, Rating]:
    return scores(success=1 if group(request) == "b" else 5)


def test_a_group_whose_edits_stopped_is_never_better(make: Make):
    before, after = make("before", lightens_b), make("after", erases_b)
    comparison = compared(before, after)
    of_b = {change.quantity: change for change in comparison.changes if change.group == "b"}
    assert of_b["soft_erasure"].verdict == "worse"
    # Nobody is lightened any more, because nothing is edited any more.
    assert of_b["skin_lightened"].outcome.value < -0.5
    assert of_b["skin_lightened"].verdict == "changed"
    assert "fewer edits were made" in as_text(comparison)
    assert {gap.verdict for gap in comparison.gaps if gap.quantity == "skin_lightened"} == {"changed"}
    assert not [change for change in comparison.with_verdict("better") if change.group == "b"]
    kept = compared(before, make("kept", fair_to_all))
    assert ("skin_lightened", "b") in {(change.quantity, change.group) for change in kept.with_verdict("better")}


def fair_to_all(_editor: str, _request: Request) -> dict[str, Rating]:
    return scores()


def test_only_licensed_numbers_are_tested_together_if_there_are_any(pair: tuple[Path, Path]):
    matched = match(*sides(*pair, None))
    everything = compare(matched)
    standing = {"judge": {"edit_success": "passed", "skin_tone": "failed", "race_change": "untested"}}
    licensed = compare(replace(matched, standing=standing))
    tested = {change.quantity for change in licensed.changes if change.is_headline and change.judge}
    assert tested == {"success", "soft_erasure"}
    assert licensed.tested + licensed.untestable < everything.tested + everything.untestable
    failed = compare(replace(matched, standing={"judge": {"skin_tone": "failed"}}))
    assert "skin_lightened" not in {change.quantity for change in failed.changes if change.is_headline}


def test_the_page_shows_the_pairs_that_became_worst(pair: tuple[Path, Path], tmp_path: Path):
    before, after = pair
    ran("compare", before, after, "--html", tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text()
    assert text.count("data:image/webp;base64,") == 3 * text.count("<figure>") > 0
    assert "img-src data:;" in text
    assert "Edit Success: 5 → 1" in text


def test_a_change_is_the_mean_of_paired_differences(pair: tuple[Path, Path]):
    before, after = pair
    one, other = sides(before, after, None)
    found = compare(match(one, other))
    (change,) = [each for each in found.changes if each.quantity == "edit_success" and not each.factor]
    expected = {}
    for chosen in (one, other):
        answer = fair if chosen is one else worse_for_b
        design = chosen.run.design
        requests = [recorded.request(design) for recorded in chosen.run.requests(chosen.label)]
        values = [answer("", request)["edit_success"].score for request in requests]
        expected[chosen.run.folder.name] = sum(values) / len(values)
    assert change.before == pytest.approx(expected["before"])
    assert change.after == pytest.approx(expected["after"])
    assert change.outcome.value == pytest.approx(expected["after"] - expected["before"])
    assert change.pairs == 24 * 4


def test_the_other_way_round_is_the_opposite(pair: tuple[Path, Path]):
    before, after = pair
    there = compared(before, after)
    back = compared(after, before)
    for one, other in zip(there.changes, back.changes, strict=True):
        assert one.outcome.value == pytest.approx(-other.outcome.value)
        assert {one.verdict, other.verdict} in ({"worse", "better"}, {"unclear"}, {"changed"})


def test_the_same_again_is_no_change(make: Make):
    found = compared(make("before", fair), make("after", fair))
    assert {each.verdict for each in found.changes} == {"unclear"}
    assert {gap.verdict for gap in found.gaps} == {"unclear"}
    # Nothing moved in any portrait, and still the interval says what so few could hide.
    assert all(each.outcome.high > 0 for each in found.changes if each.quantity == "soft_erasure")


def test_two_editors_of_one_run(make: Make):
    run = make(
        "both",
        lambda editor, request: (worse_for_b if editor == "new" else fair)(editor, request),
        editors=("old", "new"),
    )
    found = compared(run, None, ("old", "new"))
    assert found.labels == ("old", "new")
    assert found.with_verdict("worse")
    with pytest.raises(StillmeError, match="several editors"):
        sides(run, run, None)
    with pytest.raises(UnknownName, match="Did you mean 'new'"):
        sides(run, None, ("old", "now"))
    with pytest.raises(StillmeError, match="--editors A B"):
        sides(run, None, None)
    with pytest.raises(StillmeError, match="with itself"):
        match(*sides(run, None, ("old", "old")))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"prompts": ("O-01", "O-02", "V-01")}, "prompts: only in the first: V-02"),
        ({"seeds": (2,)}, "seeds: only in the first: 1; only in the second: 2"),
        ({"judges": ("judge", "another")}, "judges: only in the second: another"),
        ({"extra": "[sample]\nsize = 90"}, "requests: 6 only in the first"),
    ],
)
def test_what_differs_besides_the_editor_is_named_and_refused(make: Make, options: dict[str, object], named: str):
    first, second = sides(make("before", fair), make("after", fair, **options), None)
    with pytest.raises(StillmeError) as refused:
        match(first, second)
    assert named in str(refused.value)
    if "seeds" in options:
        with pytest.raises(StillmeError, match="share no request"):
            match(first, second, common=True)
    else:
        shared = match(first, second, common=True)
        assert shared.cells == {"prompts": 72, "extra": 90}.get(next(iter(options)), 96)
        assert any(named in note for note in shared.notes)


def test_other_people_other_pictures_and_other_labels_are_named(make: Make, tmp_path: Path):
    before = make("before", fair)
    for folder, named in (
        (people(tmp_path / "fewer", per_group=10), "portraits: only in the first: p20, p21, p22 and 1 more"),
        (people(tmp_path / "relabelled", p03="a"), "labels: differ for p03"),
    ):
        with pytest.raises(StillmeError, match=named):
            match(*sides(before, make(f"after {folder.name}", fair, portraits=folder), None))
    swapped = people(tmp_path / "swapped")
    (swapped / "p05.png").write_bytes((swapped / "p06.png").read_bytes())
    with pytest.raises(StillmeError, match="pictures: differ for p05"):
        match(*sides(before, make("after swapped", fair, portraits=swapped), None))


def test_seeds_of_different_kinds_of_editor_are_paired_in_order(make: Make, tmp_path: Path):
    before = make("before", fair)
    folder = write_audit(tmp_path / "other", tmp_path / "people")
    text = (folder / "audit.toml").read_text()
    text = text.replace("use = 'planted'", "use = 'noop'").replace("seeds = [1]", "seeds = [7]")
    text = text.replace("[editors.parameters]\neveryone = { erasure = 0.322 }", "")
    (folder / "audit.toml").write_text(text)
    matched = match(*sides(before, fill(folder, fair), None))
    assert matched.cells == 96
    assert "paired in order" in matched.notes[0]


def test_a_refusal_is_compared_and_never_scored(make: Make):
    def refusing(_editor: str, request: Request) -> dict[str, Rating] | Refused:
        return Refused(message="No.") if group(request) == "a" else scores()

    found = compared(make("before", fair), make("after", refusing))
    (refused,) = [each for each in found.with_verdict("worse") if each.group == "a"]
    assert (refused.quantity, refused.after) == ("refused", 1.0)
    (unrated,) = [each for each in found.changes if each.quantity == "edit_success" and each.group == "a"]
    assert unrated.pairs == 0
    assert not isinstance(unrated.outcome, Interval)


def test_an_ensemble_is_what_headlines_go_by(make: Make):
    two = {"judges": ("one judge", "another")}
    found = compared(make("before", fair, **two), make("after", worse_for_b, **two))
    assert {each.judge for each in found.changes if each.is_headline and each.judge} == {"ensemble (mean)"}


@pytest.mark.parametrize(
    ("quantity", "worse"),
    [
        *((name, Worse.LOWER) for name in ("success", "edit_success", "race_change<=2")),
        *((name, Worse.HIGHER) for name in ("refused", "soft_erasure", "unchanged", "skin_lightened")),
        *((name, Worse.HIGHER) for name in ("race_changed", "race_change", "identity_distance")),
        *((name, Worse.AWAY) for name in ("skin_tone", "skin_delta_l")),
        *((name, Worse.UNKNOWN) for name in ("changed_area", "role_target", "a plugin's own")),
    ],
)
def test_which_way_is_worse(quantity: str, worse: Worse):
    assert worse_when(quantity) is worse


NASTY = "<script>alert('x')</script> | [a](http://evil.example) `code` @everyone #1 \\ **bold**"


def test_a_users_words_stay_words(make: Make):
    run = make(
        "both",
        lambda editor, request: (worse_for_b if editor == NASTY else fair)(editor, request),
        editors=("old", NASTY),
    )
    found = compared(run, None, ("old", NASTY))
    text = as_markdown(found)
    assert "<script" not in text
    assert "@everyone" not in text
    shown = page(NASTY, text)
    assert not {"script", "a", "code", "strong", "img"} & set(re.findall(r"<(\w+)", shown))
    assert "alert('x')" in html.unescape(shown)
    assert plain("a\n\n# b") == "a &#35; b"


def test_the_command_writes_json_markdown_and_a_page(pair: tuple[Path, Path], tmp_path: Path):
    before, after = pair
    files = {"--markdown": tmp_path / "c.md", "--html": tmp_path / "deep" / "c.html"}
    options = [str(part) for pair in files.items() for part in pair]
    shown = ran("compare", before, after, *options, "--json")
    found = json.loads(shown.output)
    assert (found["first"], found["second"]) == ("one in before", "one in after")
    assert {each["verdict"] for each in found["changes"]} == {"worse", "unclear"}
    assert "## Worse: " in files["--markdown"].read_text()
    assert "<table>" in files["--html"].read_text()
    assert json.loads(json.dumps(as_json(compared(before, after)))) == found


def test_half_a_run_is_compared_with_a_warning(make: Make):
    half = make("half", lambda editor, request: None if luck(request, "x") < 0.5 else fair(editor, request))
    found = compared(make("before", fair), half)
    assert any("Not finished" in note and "edits missing or failed" in note for note in found.notes)
    assert "Not finished" in as_text(found)
    assert not any("Not finished" in note for note in compared(make("a", fair), make("b", fair)).notes)
