"""More identities are recommended where a factor's groups have few, with their price."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillme.core import registry
from stillme.findings.plan.new_audit import fewest_identities, larger_set
from tests.command_lines import invoke


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
