"""A picture that is paid for is fetched again before it is bought again; the ledger has what was bought."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core.types import Edited, Failed
from stillme.portraits import portraits
from stillme.runs.run import RecordedRun
from stillme.runs.status import status_of
from stillme.runs.store.jobs import FILE, Jobs
from tests.editors.hosted import providers
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.editors.hosted.providers import (
    BFL,
    COMFYUI,
    DASHSCOPE,
    DASHSCOPE_TASK,
    FAL,
    REPLICATE,
    Provider,
    bfl_result,
    from_data_uri,
    negative,
    prediction,
)
from tests.editors.hosted.test_every_provider import At
from tests.processes import Started
from tests.records import must_be

REQUESTS = 12


def fal_with_links(server: Loopback, asked: Asked) -> Says:
    """fal as it is: the result links to the picture."""
    if "picture.png" in asked.path:
        fields = next(request.json for request in reversed(server.asked) if request.method == "POST")
        return Says(body=negative(from_data_uri(fields["image_urls"][0])))
    says = providers.fal(server, asked)
    if "images" in says.body:
        return Says(body={**says.body, "images": [{"url": f"{server.url}/picture.png?Signature=s3cret"}]})
    return says


LINKED = Provider(**{**vars(FAL), "behave": fal_with_links})
PORTRAIT = portraits()[0].image.path
QUEUES = (LINKED, REPLICATE, BFL, DASHSCOPE_TASK)
queues = pytest.mark.parametrize("provider", QUEUES, ids=lambda provider: provider.name)
LOOKS = {
    "fal": ("/status", Says(body={"status": "IN_QUEUE", "queue_position": 9})),
    "replicate": ("/gm3qorzd", Says(body=prediction("processing"))),
    "bfl": ("get_result", Says(body=bfl_result("Pending"))),
    "dashscope": ("/tasks/", Says(body={"output": {"task_id": "0385dc79", "task_status": "PENDING"}})),
    "comfyui": ("/history/", Says(body={})),
}
"""Where a job is looked at, and the answer that it is not done."""


def handed_in(server: Loopback) -> int:
    return sum(not asked.path.startswith("/upload") for asked in server.calls("POST"))


def audit(write_audit: Callable[..., Path], provider: Provider, server: Loopback) -> Path:
    task = "as_task = true" if provider is DASHSCOPE_TASK else ""
    return write_audit(
        f'use = "{provider.kind.name}"\n[editors.parameters]\nbase_url = "{server.url}{provider.base}"\n'
        f"poll_seconds = 0.005\nprice = {{ image = 0.04 }}\nconcurrency = 1\n{task}"
    )


NO_PICTURE = [Says(status=403, body=b"expired"), Says(status=404, body=b"gone"), Says(body=b"<html>log in</html>")]
NAMES = ["403", "404", "a page"]


@queues
@pytest.mark.parametrize("says", [*NO_PICTURE, Says(body=negative(PORTRAIT.read_bytes())[:-40])], ids=[*NAMES, "half"])
def test_one_bad_download_buys_no_second_picture(at: At, provider: Provider, says: Says):
    desk = at(provider, price={"image": 0.04})
    desk.server.breaks(says, at="picture.png")
    outcome = must_be(Edited, desk.ask())
    assert outcome.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


FAILED_LOOKS = {
    "a page": Says(body=b"<html>log in</html>"),
    "100,000 brackets": Says(body=b"[" * 100_000),
    "5,001 digits": Says(body=b"4" * 5_001),
    "400": Says(status=400, body={"detail": "odd"}),
    "429": Says(status=429, body=b"busy", headers={"Retry-After": "0"}),
}


@queues
@pytest.mark.parametrize(
    ("place", "says"),
    [*(("picture.png", says) for says in NO_PICTURE), *(("", says) for says in FAILED_LOOKS.values())],
    ids=[*(f"picture, {name}" for name in NAMES), *FAILED_LOOKS],
)
def test_a_job_whose_state_or_picture_stays_away_is_kept_and_not_bought_again(
    at: At, provider: Provider, place: str, says: Says
):
    desk = at(provider, price={"image": 0.04})
    # One more than a call bears.
    desk.server.breaks(says, at=place or LOOKS[provider.kind.name][0], times=7 if not place else 6)
    waiting, edited = must_be(Failed, desk.ask()), must_be(Edited, desk.ask())
    assert (waiting.retryable, waiting.fatal, waiting.cost, dict(waiting.effective)) == (True, False, 0.0, {})
    assert edited.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


def test_a_job_that_rejects_its_picture_is_not_bought_again_in_the_same_run(at: At):
    def rejects(server: Loopback, asked: Asked) -> Says:
        if asked.method == "GET" and not asked.path.partition("?")[0].endswith("/status"):
            return Says(status=422, body={"detail": [{"type": "image_too_small", "msg": "too small"}]})
        return providers.fal(server, asked)

    desk = at(Provider(**{**vars(FAL), "behave": rejects}), price={"image": 0.04})
    rejected = must_be(Failed, desk.ask())
    assert (rejected.retryable, dict(rejected.effective)) == (False, {"cost": "unknown"})
    assert "too small" in rejected.error
    assert len(desk.server.calls("POST")) == 1


def test_the_job_is_asked_for_a_new_link(at: At):
    desk = at(BFL)
    desk.server.breaks(Says(status=403, body=b"expired"), at="picture.png")
    assert isinstance(desk.ask(), Edited)
    paths = [asked.path.partition("?")[0] for asked in desk.server.calls("GET")]
    assert paths[-3:] == ["/picture.png", "/v1/get_result", "/picture.png"]


def test_a_link_without_a_job_is_tried_several_times_and_then_counts_as_charged(at: At):
    desk = at(DASHSCOPE, price={"image": 0.03})
    desk.server.breaks(Says(status=403, body=b"expired"), at="picture.png", times=6)
    gone = must_be(Failed, desk.ask())
    assert (gone.retryable, gone.cost) == (True, 0.03)
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 2


@pytest.mark.parametrize(
    "says", [Says(body=b"<html>hello</html>"), Says(body={}), Says(hangs=True), Says(body={"id": 1}, truncated=True)]
)
@queues
def test_what_was_handed_in_and_cannot_be_followed_is_not_free(at: At, provider: Provider, says: Says):
    if says.body == {"id": 1} and provider is REPLICATE:
        says = Says(body={"id": "x" * 99}, truncated=True)
    desk = at(provider, timeout=0.4, price={"image": 0.04})
    desk.server.breaks(says, at=provider.submit)
    outcome = must_be(Failed, desk.ask())
    assert outcome.effective == {"cost": "unknown"}


@pytest.mark.parametrize("provider", [*QUEUES, COMFYUI], ids=lambda provider: provider.name)
def test_a_slow_queue_is_asked_again_later_and_paid_for_once(at: At, provider: Provider):
    desk = at(provider, timeout=0.5)
    place, says = LOOKS[provider.kind.name]
    desk.server.breaks(says, at=place, times=500)
    waiting = must_be(Failed, desk.ask())
    assert (waiting.retryable, waiting.cost) == (True, 0.0)
    assert "not done after 0.5 s" in waiting.error
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert handed_in(desk.server) == 1
    assert desk.server.calls("PUT") == [], "a job that is nearly done is not cancelled"


def ended(status: str, **more: object) -> tuple[str, Says]:
    return "/tasks/", Says(body={"output": {"task_id": "0385dc79", "task_status": status, **more}})


FAILED_TASK = {"code": "InternalError.Timeout", "message": "too slow"}


ENDED: list[tuple[Provider, list[tuple[str, Says]], str, float | None]] = [
    # provider, what its server answers, words of the failure, its cost where that is the point
    *((BFL, [("get_result", Says(body=bfl_result(status)))], status, None)
      for status in ("Error", "Task not found", "a status of tomorrow")),
    *((DASHSCOPE_TASK, [ended(status, **FAILED_TASK)], "too slow", None) for status in ("FAILED", "CANCELED")),
    (DASHSCOPE_TASK, [ended("UNKNOWN")], "UNKNOWN", None),
    (FAL, [("/status", Says(body={"status": "COMPLETED"})),
           ("/requests/764cabcf", Says(status=500, body={"detail": "CUDA out of memory"}))], "CUDA out of memory", 0.0),
    (REPLICATE, [("/gm3qorzd", Says(body=prediction("succeeded", output=None)))], "", 0.04),
    (COMFYUI, [("/queue", Says(body={"queue_running": [], "queue_pending": []})), *[("/history/", Says(body={}))] * 2],
     "no longer knows the work", None),
    (COMFYUI, [("/view", Says(status=404, body=b""))] * 6, "", None),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "answers", "words", "cost"), ENDED)
def test_work_that_ended_without_a_picture_is_handed_in_again(
    at: At, provider: Provider, answers: list[tuple[str, Says]], words: str, cost: float | None
):
    desk = at(provider, price={"image": 0.04})
    for place, says in answers:
        desk.server.breaks(says, at=place)
    outcome = must_be(Failed, desk.ask())
    assert outcome.retryable
    assert words in outcome.error
    assert cost is None or outcome.cost == cost
    assert isinstance(desk.ask(), Edited)
    assert handed_in(desk.server) == 2 or provider is COMFYUI


@pytest.mark.parametrize(
    "link", ["https://bfl.ai.example.com/x", "https://notbfl.ai/x", "http://api.eu1.bfl.ai/x", "/v1/x", "", None, 3]
)
def test_work_at_a_host_that_must_not_see_the_key_is_followed_by_its_name(at: At, link: object):
    desk = at(BFL)
    desk.server.breaks(Says(body={"id": "8c2b", "polling_url": link}))
    outcome = must_be(Edited, desk.ask())
    assert outcome.cost == pytest.approx(0.045)
    assert any(asked.path == "/v1/get_result?id=8c2b" for asked in desk.server.calls("GET"))
    assert handed_in(desk.server) == 1


# -- whole audits -----------------------------------------------------------------------------------------------------


@queues
def test_the_ledger_equals_the_servers_count(write_audit: Callable[..., Path], provider: Provider):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        server.breaks(Says(status=429, body={}, headers={"Retry-After": "0"}), at=provider.submit, times=2)
        server.breaks(Says(status=503, body=b"busy", headers={"Retry-After": "0"}), at=provider.submit)
        for says in (Says(status=403, body=b"expired"), Says(status=404, body=b""), Says(body=b"<html>")):
            server.breaks(says, at="picture.png")
        # More failed looks at a job than one call bears, fewer than a run does.
        server.breaks(Says(status=503, body=b"busy"), at=LOOKS[provider.kind.name][0], times=9)
        tally = run_stages(folder, ("edit",)).tallies[0]
        made = handed_in(server) - 3
    assert tally.counts == {"edited": REQUESTS}
    assert made == REQUESTS
    assert tally.cost == pytest.approx(made * 0.04)
    totals = status_of(RecordedRun.open(folder)).totals
    assert (totals.cost, totals.unpriced) == (pytest.approx(made * 0.04), 0)
    left = (folder / FILE).read_text() if (folder / FILE).exists() else ""
    assert "http" not in left, "no link stays on disk when its job has ended"


def test_a_try_of_unknown_cost_marks_the_edit_that_follows(write_audit: Callable[..., Path]):
    with serving(BFL.behave) as server:
        folder = audit(write_audit, BFL, server)
        server.breaks(Says(body={"polling_url": "https://elsewhere.example/x"}))
        assert run_stages(folder, ("edit",)).tallies[0].counts == {"edited": REQUESTS}
        assert handed_in(server) == REQUESTS + 1
    totals = status_of(RecordedRun.open(folder)).totals
    assert (totals.cost, totals.unpriced) == (pytest.approx(REQUESTS * 0.04), 1)


@pytest.mark.parametrize("provider", [FAL, REPLICATE], ids=lambda provider: provider.name)
def test_a_killed_run_asks_for_the_same_job_and_makes_no_new_one(write_audit: Callable[..., Path], provider: Provider):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        place, says = LOOKS[provider.kind.name]
        server.breaks(says, at=place, times=100_000)
        running = Started("run", folder, "--only", "edit")
        running.wait_until(lambda: any(place in asked.path for asked in server.asked))
        running.kill()
        running.wait()
        assert handed_in(server) == 1
        server.faults.clear()
        tally = run_stages(folder, ("edit",)).tallies[0]
        assert tally.counts == {"edited": REQUESTS}
        assert tally.cost == pytest.approx(REQUESTS * 0.04)
        assert handed_in(server) == REQUESTS


@pytest.mark.parametrize("provider", [FAL, REPLICATE], ids=lambda provider: provider.name)
def test_a_job_that_the_provider_has_forgotten_is_made_again_and_counted(
    write_audit: Callable[..., Path], provider: Provider
):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        server.breaks(Says(status=404, body=b"no such job"), at=LOOKS[provider.kind.name][0], times=6)
        tally = run_stages(folder, ("edit",)).tallies[0]
        assert tally.counts == {"edited": REQUESTS}
        assert handed_in(server) == REQUESTS + 1
        assert tally.cost == pytest.approx((REQUESTS + 1) * 0.04), "the lost job counts as charged"


def test_an_audit_without_queues_writes_no_file(write_audit: Callable[..., Path]):
    folder = write_audit()
    run_stages(folder, ("edit",))
    assert not (folder / FILE).exists()


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path):
    Jobs(tmp_path / FILE).add("a", "/jobs/1")
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"key": "b", "jo')
    jobs = Jobs(tmp_path / FILE)
    jobs.add("c", "/jobs/3")
    again = Jobs(tmp_path / FILE)
    assert (again.open("a"), again.open("b"), again.open("c")) == ("/jobs/1", None, "/jobs/3")


def test_a_job_that_has_ended_leaves_no_trace(tmp_path: Path):
    jobs = Jobs(tmp_path / FILE)
    jobs.add("a", "https://files.example/a.png?signature=1")
    jobs.add("b", "https://files.example/b.png?signature=2")
    Jobs(tmp_path / FILE).add("c", "https://files.example/c.png?signature=3")
    jobs.end("a")
    jobs.end("c")
    assert "signature=1" not in (tmp_path / FILE).read_text()
    assert "signature=3" not in (tmp_path / FILE).read_text(), "also one that another process has added"
    again = Jobs(tmp_path / FILE)
    assert (again.open("a"), again.open("c")) == (None, None)
    assert again.open("b") == "https://files.example/b.png?signature=2"
