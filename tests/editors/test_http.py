"""A web address is an editor: what it answers becomes an outcome, and keys go nowhere else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core import images
from stillme.core.protocols import Editor
from stillme.core.types import Edited, EditOutcome, Failed, Refused
from stillme.editors.http import HttpEditor, HttpEditorParameters
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from stillme.runs.run import RecordedRun
from stillme.runs.status import status_of
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.records import asked as asked_for
from tests.records import must_be

KEY = "sk-loopback-0123456789"
TEMPLATE = {"prompt": "{instruction}", "seed": "{seed}", "input": {"images": ["{source}"]}, "note": "seed {seed}"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)


def negative(asked: Asked) -> str:
    """The first picture of a request with its colours inverted, in base64."""
    rgb = images.read_rgb(base64.b64decode(asked.json["input"]["images"][0]))
    return base64.b64encode(images.encode_png(255 - rgb)).decode()


def behave(server: Loopback, asked: Asked) -> Says:
    if asked.method == "GET":
        return Says(body=images.encode_png(np.full((4, 4, 3), 9, dtype=np.uint8)))
    return Says(body={"data": [{"b64_json": negative(asked)}]})


@pytest.fixture
def server(loopback: Callable[..., Loopback]) -> Loopback:
    return loopback(behave)


def editor(server: Loopback, **settings: Any) -> HttpEditor:
    given = {"url": f"{server.url}/edit", "template": TEMPLATE, "picture": "data.0.b64_json", "poll_seconds": 0.005}
    given |= settings
    return HttpEditor(HttpEditorParameters.model_validate(given))


def outcome(editor: HttpEditor, people: int = 1) -> EditOutcome:
    try:
        return next(editor.edit([asked_for(editor, *portraits()[:people], instruction='Say "no" to {seed}.', seed=7)]))
    finally:
        editor.close()


def failure(editor: HttpEditor) -> Failed:
    return must_be(Failed, outcome(editor))


def test_a_server_conforms(server: Loopback):
    parameters = {"url": server.url, "template": TEMPLATE, "picture": "data.0.b64_json", "seed": "exact"}
    check_plugin(HttpEditor, portraits()[:2], parameters)
    assert isinstance(editor(server), Editor)


def test_the_template_is_filled_and_numbers_stay_numbers(server: Loopback):
    edited = must_be(Edited, outcome(editor(server, headers={"Authorization": "Bearer {env:MY_KEY}"})))
    assert np.array_equal(images.read_rgb(edited.image), 255 - images.read_rgb(portraits()[0].image.path))
    (asked,) = server.asked
    assert asked.json["seed"] == 7
    assert asked.json["note"] == "seed 7"
    assert asked.json["prompt"] == 'Say "no" to {seed}.'
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_two_portraits_need_a_second_place(server: Loopback):
    failed = must_be(Failed, outcome(editor(server), people=2))
    assert "add {source2}" in failed.error
    both = editor(server, template={**TEMPLATE, "input": {"images": ["{source2}", "{source}"]}})
    assert both.capabilities.inputs == 2
    edited = must_be(Edited, outcome(both, people=2))
    assert np.array_equal(images.read_rgb(edited.image), 255 - images.read_rgb(portraits()[1].image.path))


# -- where the picture is ---------------------------------------------------------------------------------------------

PICTURE = images.encode_png(np.random.default_rng(0).integers(0, 255, (6, 4, 3), dtype=np.uint8))
BASE64 = base64.b64encode(PICTURE).decode()


WRITTEN = (BASE64, f"data:image/png;base64,{BASE64}", f"{BASE64[:40]}\n{BASE64[40:]}")


@pytest.mark.parametrize(("body", "path"), [(PICTURE, ""), *(({"output": [text]}, "output.0") for text in WRITTEN)])
def test_the_picture_is_the_body_itself_or_base64_in_it(server: Loopback, body: object, path: str):
    server.breaks(Says(body=body))
    edited = must_be(Edited, outcome(editor(server, picture=path)))
    assert (edited.image, edited.effective) == (PICTURE, {"size": [4, 6]})


def test_a_link_is_followed_without_the_key(server: Loopback):
    server.breaks(Says(body={"url": f"{server.url}/made.png"}), at="/edit")
    server.breaks(Says(body=b"", status=503), at="/made.png")
    linked = editor(server, picture="url", headers={"X-API-Key": "{env:MY_KEY}"})
    assert isinstance(outcome(linked), Edited), "one fault does not lose a picture that is paid for"
    fetches = server.calls("GET")
    assert len(fetches) == 2
    assert all(KEY not in str(fetch.headers) for fetch in fetches)
    assert len(server.calls("POST")) == 1


def test_a_picture_that_cannot_be_fetched_for_now_is_paid_for_once(server: Loopback):
    server.breaks(Says(body={"url": f"{server.url}/made.png"}), at="/edit")
    server.breaks(Says(body=b"", status=503), at="/made.png", times=9)
    linked = editor(server, picture="url", price=0.25)
    waiting, edited = outcome(linked), outcome(linked)
    assert (waiting.retryable, waiting.cost) == (True, 0.0)
    assert "cannot be fetched for now (503" in waiting.error
    assert isinstance(edited, Edited)
    assert edited.cost == 0.25
    assert len(server.calls("POST")) == 1


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (Says(body={"data": []}), "no picture at 'data.0.b64_json'; the answer: {\"data\": []}"),
        (Says(body=b"<html>"), "no picture at 'data.0.b64_json'; the answer: <html>"),
        (Says(body={"data": [{"b64_json": "?"}]}), "invalid base64"),
        (Says(body={"data": [{"b64_json": BASE64[: len(BASE64) // 8 * 4]}]}), "damaged"),
        (Says(body={"data": [{"b64_json": "aGVsbG8="}]}), "is not a picture"),
        (Says(body={"data": []}, truncated=True), "no complete answer"),
    ],
    ids=["empty", "no JSON", "no base64", "truncated", "text", "hung up"],
)
def test_anything_but_a_picture_is_a_failure(server: Loopback, says: Says, words: str):
    server.breaks(says)
    failed = failure(editor(server, price=0.25))
    assert words in failed.error
    assert failed.retryable
    assert failed.cost == (0.0 if says.truncated else 0.25), "an answer is charged, also if it is of no use"


# -- statuses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fatal", "throttled", "retryable"),
    [
        *((status, True, False, True) for status in (401, 402, 403, 404, 405)),
        (429, False, True, True),
        *((status, False, False, True) for status in (408, 500, 503, 529)),
        *((status, False, False, False) for status in (400, 413, 422)),
    ],
)
def test_a_status_says_who_must_act(server: Loopback, status: int, fatal: bool, throttled: bool, retryable: bool):
    server.breaks(Says(body={"error": f"no, {KEY}"}, status=status, headers={"Retry-After": "12"}))
    failed = failure(editor(server, headers={"X-API-Key": "{env:MY_KEY}"}))
    assert (failed.fatal, failed.throttled, failed.retryable) == (fatal, throttled, retryable)
    assert failed.retry_after == 12.0
    assert failed.status == str(status)
    assert failed.error == f"http: {status}: no, …"


# -- refusals ---------------------------------------------------------------------------------------------------------

BLOCKED = {"error": {"code": "policy", "message": f"Not with {KEY}."}}


def test_a_marked_refusal_is_one_whatever_its_status(server: Loopback):
    marked = {
        "refusal": "error.code",
        "refusal_values": ["policy"],
        "refusal_message": "error.message",
        "headers": {"X-API-Key": "{env:MY_KEY}"},
        "price": 0.5,
    }
    for status, cost in ((400, 0.0), (200, 0.5)):
        server.breaks(Says(body=BLOCKED, status=status))
        refused = outcome(editor(server, **marked))
        assert refused == Refused(message="Not with ….", effective={"signal": "error.code = policy"}, cost=cost)
    server.breaks(Says(body={"error": {"code": "busy"}}, status=400))
    assert isinstance(outcome(editor(server, **marked)), Failed), "another code is no refusal"


def test_without_values_any_mark_is_a_refusal(server: Loopback):
    for body, kind in (({"flagged": True}, Refused), ({"flagged": False, "image": BASE64}, Edited)):
        server.breaks(Says(body=body))
        assert isinstance(outcome(editor(server, refusal="flagged", picture="image")), kind)
    server.breaks(Says(body=BLOCKED, status=400))
    assert isinstance(outcome(editor(server)), Failed), "without a path nothing is a refusal"
    assert not editor(server).capabilities.can_refuse


# -- cost, keys and the audit -----------------------------------------------------------------------------------------


def test_a_price_elsewhere_is_unknown_unless_the_audit_gives_it(server: Loopback):
    assert editor(server).expected_dollars() == 0.0
    assert editor(server, price=0.04).expected_dollars() == 0.04
    assert editor(server, url="https://images.example/edit").expected_dollars() is None
    edited = must_be(Edited, outcome(editor(server, price=0.04)))
    assert edited.cost == 0.04


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"headers": {"X-API-Key": "{env:NO_SUCH_KEY}"}}, "NO_SUCH_KEY is not set: run `export NO_SUCH_KEY=…`"),
        ({"headers": {"X-Seed": "{seed}"}}, "unknown placeholder {seed}; only {env:NAME}"),
        ({"headers": {"Authorization": "Bearer abc"}}, "`headers.Authorization` would be stored as it is"),
        ({"template": {"prompt": "{instruction}", "image": "{sorce}"}}, "{sorce}. Did you mean 'source'?"),
        ({"template": {"image": "{source}"}}, "`template` has no {instruction}"),
        ({"template": {"prompt": "{instruction}"}}, "`template` has no {source}"),
        ({"template": {"image": "{source_data_uri}", "prompt": "{instruction} {{x}}"}}, ""),
    ],
)
def test_a_mistake_is_named_before_anything_is_sent(server: Loopback, settings: dict[str, Any], words: str):
    named = " ".join(editor(server, **settings).problems([], []))
    assert words in named if words else not named


def test_the_key_holds_no_secret_and_nothing_about_how_calls_are_made(server: Loopback):
    headers = {"X-API-Key": "{env:MY_KEY}"}
    plain = editor(server, headers=headers)
    assert KEY not in str(plain.spec)
    again = editor(server, headers=headers, timeout=5, concurrency=9, price=1, requests_per_minute=5)
    assert again.spec.key == plain.spec.key
    for change in ({"template": {**TEMPLATE, "steps": 4}}, {"revision": "2026-11-18"}):
        assert editor(server, headers=headers, **change).spec.key != plain.spec.key


# -- what real endpoints need -----------------------------------------------------------------------------------------


def audit_of(server: Loopback, write_audit: Callable[..., Path], more: str, **options: Any) -> Path:
    return write_audit(
        f'use = "http"\n[editors.parameters]\nurl = "{server.url}"\nprice = 0.5\npoll_seconds = 0.005\n'
        f'template = {{ prompt = "{{instruction}}", input = {{ images = ["{{source}}"] }} }}\n{more}',
        prompts='["O-01"]',
        **options,
    )


@pytest.mark.parametrize("path", ["image", ""])
def test_a_wrong_path_stops_after_the_first_answer_and_names_the_fields(
    server: Loopback, write_audit: Callable[..., Path], path: str
):
    folder = audit_of(server, write_audit, f'picture = "{path}"\nconcurrency = 4')
    tally = run_stages(folder, ("edit",)).tallies[0]
    assert "; the answer has data.0.b64_json; correct `picture` in the audit" in tally.reason, "without the picture"
    assert len(server.calls()) == 1, "one paid call shows it"
    assert tally.cost == 0.5


def test_one_answer_without_a_picture_among_good_ones_stops_nothing(server: Loopback, write_audit: Callable[..., Path]):
    folder = audit_of(server, write_audit, 'picture = "data.0.b64_json"\nconcurrency = 1')
    server.breaks(Says(body=b"<html>"), times=1)
    tally = run_stages(folder, ("edit",)).tallies[0]
    assert tally.counts == {"edited": 6}
    assert tally.cost == pytest.approx(7 * 0.5), "the page was answered with 200, and counts"
    assert len(server.calls()) == 7


def test_a_picture_may_be_uploaded_in_a_form(server: Loopback):
    server.breaks(Says(body=PICTURE))
    form = editor(server, picture="", files={"image": "{source}"}, template={"prompt": "{instruction}", "n": "{seed}"})
    assert list(form.problems([], [])) == []
    assert isinstance(outcome(form), Edited)
    (asked,) = server.asked
    assert asked.form == {
        "prompt": [b'Say "no" to {seed}.'],
        "n": [b"7"],
        "image": [portraits()[0].image.read()],
    }
    assert b'filename="image.' in asked.content, "the name tells nothing"


QUEUE = {"job": "id", "status_url": "URL/jobs/{job}", "done": ["ok"], "failed": ["error"], "picture": "out"}


def queued(server: Loopback, **settings: Any) -> HttpEditor:
    given = {**QUEUE, "status_url": f"{server.url}/jobs/{{job}}", "price": 0.5, **settings}
    return editor(server, **given)


def queue(states: list[str]) -> Callable[[Loopback, Asked], Says]:
    """A server that queues work: its job goes through these states."""
    left = list(states)

    def answer(server: Loopback, asked: Asked) -> Says:
        if asked.method == "POST":
            return Says(body={"id": 17}, status=202)
        state = left.pop(0) if len(left) > 1 else left[0]
        return Says(body={"status": state, "error": "out of memory", "out": BASE64 if state == "ok" else None})

    return answer


def test_queued_work_is_looked_for_until_it_is_done():
    with serving(queue(["new", "busy", "ok"])) as server:
        assert list(queued(server).problems([], [])) == []
        edited = must_be(Edited, outcome(queued(server)))
        assert (edited.image, edited.cost) == (PICTURE, 0.5)
        asked = [f"{asked.method} {asked.path}" for asked in server.asked]
        assert asked == ["POST /edit", *["GET /jobs/17"] * 3]


@pytest.mark.parametrize(
    ("states", "settings", "fatal", "words"),
    [
        (["busy", "error"], {}, False, "the job ended with 'error': out of memory"),
        (["ok"], {"job": "job.name"}, True, "no job at 'job.name'; the answer has id"),
        (["ok"], {"status": "phase"}, True, "there is no status at 'phase'; the answer has status = 'ok'"),
    ],
)
def test_queued_work_without_a_picture_says_why(states: list[str], settings: dict[str, str], fatal: bool, words: str):
    with serving(queue(states)) as server:
        failed = failure(queued(server, **settings))
        assert failed.fatal is fatal
        assert words in failed.error
        assert len(server.calls("POST")) == 1


def test_a_result_may_have_its_own_address():
    def answer(server: Loopback, asked: Asked) -> Says:
        return Says(body=PICTURE) if asked.path.endswith("/result") else queue(["ok"])(server, asked)

    with serving(answer) as server:
        edited = must_be(Edited, outcome(queued(server, picture="", result_url=f"{server.url}/jobs/{{job}}/result")))
        assert edited.image == PICTURE


def test_a_finished_job_whose_picture_is_not_where_the_audit_says_is_charged():
    with serving(queue(["ok"])) as server:
        wrong, right = queued(server, picture="wrong.path", price=0.25), queued(server, price=0.25)
        failed, _, edited = outcome(wrong), outcome(wrong), outcome(right)
        assert failed.fatal
        assert failed.cost + edited.cost == len(server.calls("POST")) * 0.25 == 0.5


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_first_answer_whose_picture_is_empty_stops_nothing(server: Loopback, nothing: str | None):
    server.breaks(Says(body={"data": [{"b64_json": nothing}]}))
    empty, edited = outcome(one := editor(server, price=0.25)), outcome(one)
    assert (empty.fatal, empty.cost) == (False, 0.25)
    assert isinstance(edited, Edited)
    assert len(server.calls()) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"status_url": ""}, "queued work needs `job`, `status_url` and `done`"),
        ({"status_url": "https://elsewhere.example/{job}"}, "must be at http://127.0.0.1"),
        ({"result_url": "URL/result"}, "and have {job} in it"),
    ],
)
def test_a_half_described_queue_is_named_beforehand(server: Loopback, settings: dict[str, str], words: str):
    given = {name: text.replace("URL", server.url) for name, text in settings.items()}
    assert words in " ".join(queued(server, **given).problems([], []))


def test_a_run_says_once_that_a_new_checkpoint_is_not_noticed_and_status_when_edits_were_made(
    server: Loopback, write_audit: Callable[..., Path]
):
    said: list[str] = []
    folder = audit_of(server, write_audit, 'picture = "data.0.b64_json"')
    run_stages(folder, ("edit",), RunOptions(say=said.append))
    assert sum("a new checkpoint behind" in text for text in said) == 1
    status = status_of(RecordedRun.open(folder))
    assert "made     http" in status.as_text()
    assert status.as_json()["made"]["http"]["first"].startswith("20")
    said.clear()
    named = audit_of(server, write_audit, 'picture = "data.0.b64_json"\nrevision = "7"')
    run_stages(named, ("edit",), RunOptions(say=said.append, allow_changes=True))
    assert not any("new checkpoint" in text for text in said)
    assert len(server.calls()) == 12, "another revision edits again"
