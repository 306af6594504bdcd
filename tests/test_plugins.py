"""A package outside of ours, really installed, adds editors, judges and prompts; a broken one breaks nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme import audit
from stillme.api.pipeline import run_stages
from stillme.core import registry
from stillme.core.errors import BrokenPlugin, InvalidAudit, InvalidParameters, NotReady, StillmeError, UnknownName
from stillme.core.protocols import Editor
from stillme.runs.store import Store
from tests.command_lines import invoke
from tests.processes import installed, stillme


def test_an_installed_package_adds_its_plugins():
    assert registry.plugin("editor", "negative").package == "stillme-test-plugin"
    assert registry.prompt_set("greetings")[0].text == "Make the person smile."
    assert "negative" in invoke("list", "editors", "negative", "--json").output


def test_a_plugin_editor_and_judge_run_a_whole_audit(write_audit: Callable[..., Path]):
    folder = write_audit('use = "negative"', 'use = "brightness"', prompts="[]\nsets = ['greetings']")
    summary = run_stages(folder, ("edit", "judge", "estimate"))
    assert summary.tallies[0].counts == {"edited": 12}
    with Store.reading(folder) as store:
        scores = {score for (score,) in store.query("SELECT score FROM judgement WHERE axis = 'brightness'")}
    assert scores == {255.0 - 40 * index for index in range(6)}


def test_a_plugin_that_cannot_be_imported_is_named_with_its_package():
    with pytest.raises(BrokenPlugin, match="'broken' of package 'stillme-test-plugin' cannot be imported"):
        registry.plugin_class("editor", "broken")


def test_a_class_that_is_no_editor_is_refused(monkeypatch: pytest.MonkeyPatch):
    negative = registry.plugin("editor", "negative")
    for loaded, words in {dict: "is not a class derived from", Editor: "has no `edit_one`"}.items():
        monkeypatch.setattr(registry.Registered, "load", lambda _, loaded=loaded: loaded)
        with pytest.raises(BrokenPlugin, match=f"'negative' of package '{negative.package}' {words}"):
            registry.plugin_class("editor", "negative")
    monkeypatch.undo()
    with pytest.raises(BrokenPlugin, match="'formless' of package 'stillme-test-plugin' has `Parameters` that are not"):
        registry.plugin_class("editor", "formless")


def test_a_module_that_exits_is_a_broken_plugin():
    with pytest.raises(BrokenPlugin, match="SystemExit: not on this machine"):
        registry.plugin_class("editor", "exiting")


def test_a_plugin_is_built_from_its_name_shorthand_and_parameters():
    assert registry.build("editor", "flaky:3", {"cost": 0.5}).spec.parameters == {"failures": 3, "cost": 0.5}
    assert registry.build("judge", "brightness", {}).capabilities.axes == ("brightness",)


@pytest.mark.parametrize(
    ("use", "parameters", "kind", "words"),
    [
        ("negtive", {}, UnknownName, "Did you mean 'negative'?"),
        ("negtive", {}, UnknownName, "stillme list editors"),
        ("noop:x", {}, StillmeError, "'noop' takes nothing after a colon; set 'x' as one of its parameters."),
        ("unready", {}, NotReady, "The editor 'unready' cannot work here: no_such_module is not installed: run"),
        ("flaky", {"failure": 1}, InvalidParameters, "unknown key 'failure'. Did you mean 'failures'?"),
        ("flaky:often", {}, InvalidParameters, "The editor 'flaky:often' cannot be built: failures: should be a valid"),
        ("flaky", {"failure": 1}, InvalidParameters, "`stillme list editors flaky` shows its parameters."),
        ("crashing", {}, BrokenPlugin, "'crashing' of package 'stillme-test-plugin' cannot be built (RuntimeError: no"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(use: str, parameters: dict[str, int], kind: type[Exception], words: str):
    with pytest.raises(kind) as caught:
        registry.build("editor", use, parameters)
    assert words in str(caught.value)


def test_a_plugin_that_raises_when_built_is_a_problem_of_the_audit(write_audit: Callable[..., Path]):
    with pytest.raises(InvalidAudit, match=r"line 8, editors\[0\].use: The editor 'crashing' of package"):
        audit.load(write_audit('use = "crashing"'))


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("editors", ["broken", "crashing", "exiting", "formless"]), ("judges", ["crashing-judge"])],
)
def test_a_broken_plugin_does_not_hide_the_others(kind: str, broken: list[str]):
    shown = invoke("list", kind, "--json")
    entries = {entry["name"]: entry for entry in json.loads(shown.output)}
    assert {"python"} < entries.keys()
    for name in broken:
        assert not entries[name]["ready"]
        assert "stillme-test-plugin" in entries[name]["lacking"][0]


def test_the_plugins_of_the_tests_are_not_in_the_environment_of_a_user():
    shown = stillme("list", "editors", "--json", environment=installed())
    packages = {entry["package"] for entry in json.loads(shown.stdout)}
    assert packages == {"stillme"}, "run `make test` once: it removes what older versions installed"


def test_listing_shows_what_a_plugin_still_needs():
    output = invoke("list", "editors", "unready", "--json").output
    (entry,) = json.loads(output)
    assert not entry["ready"]
    assert 'pip install "stillme[imaginary]"' in entry["lacking"][0]
    assert "export STILLME_TEST_NO_SUCH_KEY" in entry["lacking"][1]
