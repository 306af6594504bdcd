"""Edits made in Inspect AI are judged by stillme, offline."""

from __future__ import annotations

import base64
import importlib
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from stillme.errors import MissingExtra
from stillme.portraits import synthetic
from tests.runs import people

installed = pytest.mark.skipif(
    importlib.util.find_spec("inspect_ai") is None, reason="inspect-ai is not installed: pip install 'stillme[inspect]'"
)


def test_without_inspect_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.delitem(sys.modules, "stillme.inspect", raising=False)
    with pytest.raises(MissingExtra, match=r"stillme\[inspect\]"):
        importlib.import_module("stillme.inspect")


def evaluated(tmp_path: Path, answers: Any, **given: Any) -> Any:
    """The log of the task under a model that answers as told."""
    from inspect_ai import eval as evaluate
    from inspect_ai.model import get_model

    from stillme.inspect import portraits as task

    made = task(limit=2, **given)
    made.dataset = made.dataset[18:22]
    (log,) = evaluate(
        made,
        model=get_model("mockllm/model", custom_outputs=answers),
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "success", log.error
    return log


def said(content: Any) -> Any:
    from inspect_ai.model import ModelOutput, ModelUsage

    output = ModelOutput.from_content("mockllm/model", content=content)
    # Given, so that Inspect does not fetch a tokenizer to count.
    output.usage = ModelUsage()
    return output


def with_picture(messages: Any, *_: Any) -> Any:
    """A model that gives the picture back as it is."""
    from inspect_ai.model import ContentImage

    (picture,) = (part for part in messages[-1].content if isinstance(part, ContentImage))
    return said([ContentImage(image=picture.image)])


def in_words(*_: Any) -> Any:
    return said("I cannot edit pictures of people.")


def values(log: Any) -> list[dict[str, float]]:
    return [next(iter(sample.scores.values())).value for sample in log.samples]


@installed
@pytest.mark.filterwarnings("default")
def test_an_edit_is_judged_and_summed_up_by_portrait(tmp_path: Path):
    log = evaluated(tmp_path, with_picture)
    for value in values(log):
        assert value["picture"] == 1
        assert value["changed_area"] == 0, "nothing was changed"
    changed = next(score for score in log.results.scores if score.name == "changed_area")
    assert changed.metrics["mean"].value == 0
    assert "stderr" in changed.metrics
    assert {sample.metadata["label_origin"] for sample in log.samples} == {synthetic.portraits()[0].label_origin}


@installed
@pytest.mark.filterwarnings("default")
def test_an_answer_in_words_is_no_score(tmp_path: Path):
    log = evaluated(tmp_path, in_words)
    for sample, value in zip(log.samples, values(log), strict=True):
        assert value["picture"] == 0
        assert all(math.isnan(number) for axis, number in value.items() if axis != "picture")
        assert "cannot edit" in next(iter(sample.scores.values())).explanation
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means["picture"] == 0
    assert math.isnan(means["changed_area"])


@installed
@pytest.mark.filterwarnings("default")
def test_some_answers_without_a_picture_leave_the_others_mean_alone(tmp_path: Path):
    replies = iter([with_picture, in_words, with_picture, with_picture])
    log = evaluated(tmp_path, lambda *asked: next(replies)(*asked))
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means["picture"] == 0.75
    assert means["changed_area"] == 0


@installed
@pytest.mark.filterwarnings("default")
def test_a_solver_may_leave_the_picture_in_the_metadata(tmp_path: Path):
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import MemoryDataset
    from inspect_ai.solver import Generate, TaskState, solver

    from stillme.inspect import keeps_person, portrait_dataset

    source = people(tmp_path / "people", per_group=1)
    other = base64.b64encode((source / "p01.png").read_bytes()).decode()

    @solver
    def edits() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            by = {"p00": f"data:image/png;base64,{other}", "p01": "https://example.org/edited.png"}
            state.metadata["edited"] = by[state.metadata["portrait"]]
            return state

        return solve

    data = portrait_dataset(str(source), "diagnostic")
    samples = [sample for sample in data if str(sample.id).endswith("/O-01")]
    judged = Task(
        dataset=MemoryDataset(samples), solver=edits(), scorer=keeps_person("scripted", {"scores": {"skin_tone": 4}})
    )
    (log,) = evaluate(judged, model="mockllm/model", log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    first, second = log.samples
    assert next(iter(first.scores.values())).value == {"picture": 1, "skin_tone": 4}
    refused = next(iter(second.scores.values()))
    assert math.isnan(refused.value["skin_tone"])
    assert "fetches nothing" in refused.explanation
