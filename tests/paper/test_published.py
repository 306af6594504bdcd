"""The paper's numbers as data: each names its place, agrees with the others, and says what of ours answers it."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from stillme.core import rubric
from stillme.core.paper import Published, published, setting

ANSWERED = ("mean", "rate", "change", "max - min", "bias", "stereotype followed", "stereotype resisted")
TESTS = ("Kruskal–Wallis H", "Kruskal–Wallis p", "Mann–Whitney p", "Wilcoxon signed-rank p")
FLUX, STEP1X, QWEN = "FLUX.2-dev", "Step1X-Edit-v1p2", "Qwen-Image-Edit-2511"


def numbers(place: str, **wanted: str) -> list[Published]:
    return [
        number
        for number in published()
        if number.place == place and all(getattr(number, name) == value for name, value in wanted.items())
    ]


def only(place: str, **wanted: str) -> float:
    (number,) = numbers(place, **wanted)
    return number.value


def test_every_number_names_its_place_and_what_it_is():
    assert len(published()) == 247
    for number in published():
        assert number.place.split()[0] in ("Table", "Figure", "Appendix", "Ethical") or number.place.startswith("§"), (
            number
        )
        assert number.statistic, number
        assert number.unit, number
        assert number.high is None or number.high > number.value, number
    keys = Counter((n.place, n.judge, n.sample, n.editor, n.arm, n.group, n.quantity, n.statistic) for n in published())
    assert keys.most_common(1)[0][1] == 1


def test_every_number_is_answered_by_a_quantity_of_ours_or_says_why_not():
    known = rubric.load()
    for number in published():
        if number.unanswered:
            continue
        assert number.statistic in (*ANSWERED, *TESTS), number
        assert number.quantity in known.axes or number.quantity in known.rates or number.quantity == "adherence"
        assert number.editor in ("all", "each", *(editor.name for editor in setting().editors)), number
        assert not number.group or number.group in setting().groups, number
        assert number.judge in ("models", "people", "models - people") or number.quantity == "adherence", number


def test_the_tables_are_complete():
    counts = Counter(number.place for number in published())
    tables = {4: 15, 5: 7, 6: 30, 7: 4, 9: 7, 16: 8, 17: 34, 18: 18, 19: 9, 20: 24, 21: 21, 24: 1, 25: 2, 26: 21}
    assert {number: counts[f"Table {number}"] for number in tables} == tables


def test_values_are_possible():
    for number in published():
        match number.unit:
            case "1-5":
                assert 1 <= number.value <= 5, number
            case "1-5 points":
                assert -4 <= number.value <= 4, number
            case "share" | "p":
                assert 0 <= number.value <= 1, number
            case "kappa" | "alpha":
                assert -1 <= number.value <= 1, number
            case _:
                assert number.value > 0, number


def test_counts_of_table_18_add_up():
    everyone = numbers("Table 18")
    races = [number for number in everyone if number.group in setting().groups]
    ages = [number for number in everyone if number.group[:1].isdigit()]
    editors = [number for number in everyone if number.editor]
    for part in (races, ages, editors, [number for number in everyone if number.group in ("Female", "Male")]):
        assert sum(number.value for number in part) == 1000
    ratings = only("Appendix H.4", statistic="ratings")
    assert ratings == only("Table 16", statistic="rated outputs") * only("Table 16", statistic="ratings per output")


def test_every_count_of_raters_covers_all_thirty():
    counts: Counter[str] = Counter()
    for number in numbers("Table 17", unit="people"):
        counts[number.statistic] += round(number.value)
    assert counts == {f"raters by {what}": 30 for what in ("sex", "ethnicity", "student", "language", "country")}
    assert only("Table 16", statistic="raters") == 30
    per_task, tasks = only("Table 16", statistic="outputs per task"), only("Table 16", statistic="tasks")
    assert per_task * tasks == only("Table 16", statistic="rated outputs")
    pay, minutes = only("Table 16", statistic="pay per task"), only("Table 16", statistic="minutes per task")
    (hour,) = numbers("Ethical Statement")
    assert pay * 60 / minutes < hour.value, "as its note says"
    assert hour.note


def test_shares_that_belong_together_are_at_most_one():
    for editor in (FLUX, QWEN):
        assert sum(number.value for number in numbers("Table 7", editor=editor)) == 1
    for editor in (FLUX, STEP1X, QWEN):
        parts = [only("Table 19", editor=editor, quantity=rate) for rate in ("success", "soft_erasure")]
        assert sum(parts) <= 1


def test_the_disparity_is_the_largest_group_minus_the_smallest():
    for editor in (FLUX, STEP1X, QWEN):
        groups = [number.value for number in numbers("Table 20", editor=editor, statistic="rate")]
        disparity = only("Table 20", editor=editor, statistic="max - min")
        assert len(groups) == 7
        assert disparity == pytest.approx(max(groups) - min(groups))


def test_with_minus_without_is_the_change_in_every_table_that_gives_it():
    for group in setting().groups:
        change = only("Table 26", group=group, statistic="change")
        with_feature, without = (only("Table 26", group=group, arm=arm) for arm in ("feature", "baseline"))
        assert change == pytest.approx(with_feature - without)
        assert change == only("Table 5", group=group) == only("Table 21", group=group, quantity="race_change")


def test_where_the_paper_contradicts_itself_the_number_says_so():
    # The mean over groups of equal size is the rate over all.
    for editor, agrees in ((FLUX, True), (STEP1X, False), (QWEN, False)):
        groups = [number.value for number in numbers("Table 20", editor=editor, statistic="rate")]
        (overall,) = numbers("Table 19", editor=editor, quantity="race_changed")
        mean = math.fsum(groups) / len(groups)
        assert (abs(mean - overall.value) < 0.001) == agrees == (not overall.note)
        assert agrees or f"{100 * mean:.1f} %" in overall.note
    # As many edits by each editor: the mean over editors is the rate of all together.
    for place, group, agrees in (
        ("Figure 4", "Indian", True),
        ("Figure 4", "White", False),
        ("§5.1", "East Asian", False),
    ):
        (pooled,) = numbers(place, group=group, quantity="race_changed")
        mean = math.fsum(number.value for number in numbers("Table 20", group=group)) / 3
        assert (abs(mean - pooled.value) <= 0.005 + 1e-9) == agrees == (not pooled.note)
        assert agrees or f"{100 * mean:.1f} %" in pooled.note
    # Models minus people.
    biases = {
        axis: [
            only("Table 6", editor=editor, judge="models", quantity=axis)
            - only("Table 6", editor=editor, judge="people", quantity=axis)
            for editor in (FLUX, STEP1X, QWEN)
        ]
        for axis in ("edit_success", "race_change", "gender_change", "age_change")
    }
    assert only("§5.3", statistic="bias") == pytest.approx(math.fsum(biases["edit_success"]) / 3, abs=0.01)
    for number in published():
        if number.statistic == "absolute bias":
            sizes = [abs(bias) for bias in biases[number.quantity]]
            assert number.high is not None
            agrees = abs(min(sizes) - number.value) < 0.005 and abs(max(sizes) - number.high) < 0.005
            assert agrees == (not number.note), number
            assert agrees or number.note == f"Table 6 gives {min(sizes):.2f} to {max(sizes):.2f}"


@pytest.mark.parametrize(
    ("name", "expected", "near"),
    [
        ("flux2-dev", FLUX, FLUX),
        ("flux2-dev-24gb", FLUX, FLUX),
        ("qwen_image-edit-2511", "", QWEN),
        ("Qwen-Image-Edit-2511", QWEN, QWEN),
        ("step1x-edit-v1p2", STEP1X, STEP1X),
        ("flux", "", FLUX),
        ("FLUX_kontext", "", FLUX),
        ("flu", "", ""),
        ("editor", "", ""),
    ],
)
def test_an_editor_is_the_papers_by_its_plugin_or_by_its_full_name(name: str, expected: str, near: str):
    for editor, wanted in ((setting().named(name), expected), (setting().near(name), near)):
        assert (editor.name if editor else "") == wanted


@pytest.mark.parametrize(
    ("level", "group"),
    [("Latino_Hispanic", "Latino"), ("black", "Black"), ("East_Asian", "East Asian"), ("Asian", ""), ("A", "")],
)
def test_groups_are_the_papers_under_fairfaces_spelling_too(level: str, group: str):
    assert setting().group(level) == group
