"""Placeholders are filled once, from known names only."""

from __future__ import annotations

from stillme.core.placeholders import fill, fill_json, names_in, unknown_names


def test_values_are_not_searched_for_placeholders():
    assert fill("{instruction} {seed}", {"instruction": "{seed} {{x}}", "seed": 7}) == "{seed} {{x}} 7"


def test_double_braces_stand_for_braces_and_single_ones_for_themselves():
    assert fill("{{seed}} {seed} { } {a b}", {"seed": 7}) == "{seed} 7 { } {a b}"


def test_a_text_that_is_one_placeholder_keeps_its_type():
    template = {"seed": "{seed}", "words": ["seed {seed}", 3, None], "image": "{image}"}
    filled = fill_json(template, {"seed": 7, "image": None})
    assert filled == {"seed": 7, "words": ["seed 7", 3, None], "image": None}
    assert template["seed"] == "{seed}", "the template can be filled again"


def test_names_are_found_at_any_depth():
    assert names_in({"a": ["{x}", {"b": "{env:KEY} {{y}}"}], "c": 1}) == {"x", "env:KEY"}


def test_an_unknown_name_is_named_with_the_nearest():
    (sentence,) = unknown_names("run", ("{sede}", "{seed}"), frozenset({"seed"}))
    assert "`run` has the unknown placeholder {sede}. Did you mean 'seed'? Known: {seed}." in sentence
