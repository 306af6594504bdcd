"""ComfyUI: a workflow from a file, a queue without keys, a history that a restart forgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stillme.core.errors import StillmeError
from stillme.core.types import Edited, Failed
from tests.editors.hosted.further_providers import COMFYUI, WORKFLOW, comfy_entry, comfy_rejects, workflow
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.test_every_provider import At


def sent(desk: Any) -> Any:
    return next(asked.json for asked in reversed(desk.server.calls()) if asked.path == "/prompt")


def failed(outcome: object) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def test_the_placeholders_are_filled_and_the_rest_stays(at: At):
    desk = at(COMFYUI, extra={"front": True})
    assert isinstance(desk.ask(seed=7), Edited)
    upload, nodes = desk.server.calls()[0], sent(desk)["prompt"]
    assert upload.form["image"] == [desk.people[0].image.read()]
    assert desk.people[0].id.encode() not in upload.content
    assert nodes["1"]["inputs"]["image"].startswith("stillme-")
    assert nodes["2"]["inputs"]["text"] == "Do O-01."
    assert nodes["3"]["inputs"] == {"seed": 7, "steps": 20, "cfg": 2.5, "positive": ["2", 0]}
    assert sent(desk)["front"] is True


def test_the_same_request_twice_is_not_taken_for_one(at: At):
    desk = at(COMFYUI)
    prefixes = set()
    for _ in range(2):
        desk.ask()
        prefixes.add(sent(desk)["prompt"]["4"]["inputs"]["filename_prefix"])
    assert len(prefixes) == 2


def test_it_needs_no_key_and_costs_nothing(at: At):
    desk = at(COMFYUI, key_variable="")
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.cost == 0.0
    assert "cost" not in outcome.effective
    assert all("authorization" not in asked.headers for asked in desk.server.asked)
    assert desk.editor.expected_dollars() == 0.0
    assert not desk.editor.capabilities.can_refuse


def test_a_rejected_workflow_names_the_node(at: At):
    desk = at(COMFYUI)
    desk.server.breaks(comfy_rejects("CheckpointLoaderSimple", "Value not in list", "ckpt_name: 'x'"), at="/prompt")
    outcome = failed(desk.ask())
    assert not outcome.retryable
    assert "CheckpointLoaderSimple: Value not in list (ckpt_name: 'x')" in outcome.error


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            ["execution_error", {"node_type": "KSampler", "exception_message": "CUDA out of memory"}],
            "the node KSampler failed: CUDA out of memory",
        ),
        (["execution_interrupted", {"node_id": "3"}], "the job was interrupted at the server"),
    ],
)
def test_a_node_that_breaks_is_a_failure_with_its_words(
    at: At, monkeypatch: pytest.MonkeyPatch, event: list[Any], words: str
):
    desk = at(COMFYUI)
    messages = [["execution_start", {}], event]
    monkeypatch.setattr(
        "tests.editors.hosted.further_providers.comfy_entry",
        lambda job: comfy_entry(job, status_str="error", completed=False, messages=messages),
    )
    outcome = failed(desk.ask())
    assert outcome.retryable
    assert words in outcome.error
    monkeypatch.undo()
    assert isinstance(at(COMFYUI, key_variable="").ask(), Edited)


def test_a_slow_queue_is_waited_for_again_without_a_second_job(at: At):
    desk = at(COMFYUI, timeout=0.3)
    desk.server.breaks(Says(body={}), at="/history/", times=60)
    assert "not done after 0.3 s" in failed(desk.ask()).error
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert len([asked for asked in desk.server.calls() if asked.path == "/prompt"]) == 1


def test_a_job_that_a_restart_forgot_is_handed_in_anew(at: At):
    desk = at(COMFYUI)
    desk.server.breaks(Says(body={"queue_running": [], "queue_pending": []}), at="/queue")
    desk.server.breaks(Says(body={}), at="/history/", times=2)
    assert "no longer knows the work" in failed(desk.ask()).error
    assert isinstance(desk.ask(), Edited)
    assert len([asked for asked in desk.server.calls() if asked.path == "/prompt"]) == 2


def test_a_picture_that_is_gone_is_made_anew(at: At, monkeypatch: pytest.MonkeyPatch):
    desk = at(COMFYUI)
    desk.server.breaks(Says(status=404, body=b""), at="/view", times=6)
    assert failed(desk.ask()).retryable
    assert isinstance(desk.ask(), Edited)


def test_the_file_counts_by_its_content_not_its_place(tmp_path: Path):
    def key(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return COMFYUI.build("http://127.0.0.1:9", workflow=str(tmp_path / name)).spec.key

    indented = json.dumps(json.loads(WORKFLOW.read_text()), indent=8)
    assert key("a.json", WORKFLOW.read_text()) == key("b.json", indented)
    sampler = {"class_type": "KSampler", "inputs": {"seed": "{seed}", "steps": 8}}
    assert key("a.json", workflow()) != key("c.json", workflow(**{"3": sampler}))


def test_a_workflow_for_two_portraits_takes_two(at: At, tmp_path: Path):
    second = {"class_type": "LoadImage", "inputs": {"image": "{source_2}"}}
    (tmp_path / "two.json").write_text(workflow(**{"6": second}))
    desk = at(COMFYUI, workflow=str(tmp_path / "two.json"))
    assert desk.editor.capabilities.inputs == 2
    assert isinstance(desk.ask(portraits=2), Edited)
    names = {sent(desk)["prompt"][node]["inputs"]["image"] for node in ("1", "6")}
    assert len(names) == 2
    alone = failed(desk.ask())
    assert not alone.retryable
    assert "loads 2 portraits, the request has 1" in alone.error


def test_a_workflow_without_a_seed_says_so(tmp_path: Path):
    (tmp_path / "fixed.json").write_text(workflow(**{"3": {"class_type": "KSampler", "inputs": {"seed": 1}}}))
    editor = COMFYUI.build("http://127.0.0.1:9", workflow=str(tmp_path / "fixed.json"))
    assert editor.capabilities.seed == "none"
    assert list(editor.problems([], [])) == []


def test_placeholders_that_are_missing_or_unknown_stop_the_audit(tmp_path: Path):
    text = {"class_type": "CLIPTextEncode", "inputs": {"text": "{instructions}"}}
    (tmp_path / "x.json").write_text(workflow(**{"2": text}))
    editor = COMFYUI.build("http://127.0.0.1:9", workflow=str(tmp_path / "x.json"))
    missing, unknown = editor.problems([], [])
    assert "has no `{instruction}`" in missing
    assert "unknown placeholder {instructions}" in unknown


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("{", "cannot be read"), ('{"nodes": [], "links": []}', r"Export \(API\)")],
)
def test_a_file_that_is_no_workflow_is_named(tmp_path: Path, content: str | None, words: str):
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StillmeError, match=words):
        COMFYUI.build("http://127.0.0.1:9", workflow=str(file))
