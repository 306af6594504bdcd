"""A package outside of ours, really installed, brings editors, judges and prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stillme import registry
from stillme.cli import cli
from stillme.errors import BrokenPlugin, UnknownName
from stillme.pipeline import Options, run_stages
from stillme.store import Store


def test_an_installed_package_brings_its_plugins():
    assert registry.plugin("editor", "negative").package == "stillme-test-plugin"
    assert registry.prompt_set("greetings")[0].text == "Make the person smile."
    assert "negative" in CliRunner().invoke(cli, ["list", "editors", "negative", "--json"]).output


def test_a_plugin_editor_and_judge_run_a_whole_audit(write_audit: Callable[..., Path]):
    folder = write_audit('use = "negative"', 'use = "brightness"', prompts="[]\nsets = ['greetings']")
    summary = run_stages(folder, ("edit", "judge", "estimate"), Options())
    assert summary.tallies[0].counts == {"edited": 12}
    with Store.reading(folder) as store:
        scores = {score for (score,) in store.query("SELECT score FROM judgement WHERE axis = 'brightness'")}
    assert scores == {255.0 - 40 * index for index in range(6)}


def test_an_unknown_editor_names_the_nearest_one():
    with pytest.raises(UnknownName, match="Did you mean 'negative'") as caught:
        registry.plugin("editor", "negtive")
    assert "stillme list editors" in str(caught.value)


def test_a_plugin_that_cannot_be_imported_is_named_with_its_package():
    with pytest.raises(BrokenPlugin, match="'broken' of package 'stillme-test-plugin' cannot be imported"):
        registry.editor_class("broken")


def test_a_class_without_the_protocol_is_refused():
    with pytest.raises(BrokenPlugin, match="lacks edit"):
        registry._checked("judge", "brightness", ("edit",))


def test_listing_shows_what_a_plugin_still_needs():
    output = CliRunner().invoke(cli, ["list", "editors", "unready", "--json"]).output
    (entry,) = json.loads(output)
    assert not entry["ready"]
    assert 'pip install "stillme[imaginary]"' in entry["lacking"][0]
    assert "export STILLME_TEST_NO_SUCH_KEY" in entry["lacking"][1]
