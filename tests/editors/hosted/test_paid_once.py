"""A picture that is paid for is fetched again before it is bought again; the ledger has what was bought."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core import registry
from stillme.core.http.replies import Reply
from stillme.core.types import Edited, Failed
from stillme.editors.hosted.queues import Bfl, DashScope, Fal, Replicate
from stillme.portraits.synthetic import portraits
from stillme.runs.run import Run
from stillme.runs.status import status_of
from stillme.runs.store.jobs import FILE
from tests.editors.hosted import providers
from tests.editors.hosted.further_providers import BFL, DASHSCOPE, DASHSCOPE_TASK
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.editors.hosted.providers import FAL, REPLICATE, Provider, from_data_uri, negative
from tests.editors.hosted.test_every_provider import At

KINDS = {"fal": Fal, "replicate": Replicate, "bfl": Bfl, "dashscope": DashScope}
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
no_picture = pytest.mark.parametrize(
    "says",
    [Says(status=403, body=b"expired"), Says(status=404, body=b"gone"), Says(body=b"<html>log in</html>")],
    ids=["403", "404", "a page"],
)


@queues
@no_picture
def test_one_bad_download_buys_no_second_picture(at: At, provider: Provider, says: Says):
    desk = at(provider, price={"image": 0.04})
    desk.server.breaks(says, at="picture.png")
    outcome = desk.ask()
    assert isinstance(outcome, Edited), outcome
    assert outcome.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


@queues
@no_picture
def test_a_job_whose_picture_stays_away_is_kept_and_not_bought_again(at: At, provider: Provider, says: Says):
    desk = at(provider, price={"image": 0.04})
    desk.server.breaks(says, at="picture.png", times=6)
    waiting, edited = desk.ask(), desk.ask()
    assert isinstance(waiting, Failed)
    assert (waiting.retryable, waiting.fatal, waiting.cost) == (True, False, 0.0)
    assert isinstance(edited, Edited)
    assert edited.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


@queues
def test_a_picture_that_arrives_in_half_is_fetched_again_before_it_is_bought_again(at: At, provider: Provider):
    desk = at(provider, price={"image": 0.04})
    desk.server.breaks(Says(body=negative(PORTRAIT.read_bytes())[:-40]), at="picture.png")
    outcome = desk.ask()
    assert isinstance(outcome, Edited), outcome
    assert outcome.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


@queues
@pytest.mark.parametrize(
    "says",
    [Says(body=b"<html>log in</html>"), Says(body=b"[" * 100_000), Says(status=400, body={"detail": "odd"})],
    ids=["a page", "100,000 brackets", "400"],
)
def test_a_look_that_fails_is_free_and_ends_no_job(at: At, provider: Provider, says: Says):
    desk = at(provider, price={"image": 0.04})
    at_job = {"fal": "/status", "replicate": "/predictions/", "bfl": "get_result", "dashscope": "/tasks/"}
    desk.server.breaks(says, at=at_job[provider.kind.name], times=7)
    waiting, edited = desk.ask(), desk.ask()
    assert isinstance(waiting, Failed), waiting
    assert (waiting.retryable, waiting.fatal, waiting.cost, dict(waiting.effective)) == (True, False, 0.0, {})
    assert isinstance(edited, Edited), edited
    assert edited.cost == 0.04
    assert len(desk.server.calls("POST")) == 1


def test_a_job_that_rejects_its_picture_is_not_bought_again_in_the_same_run(at: At):
    def rejects(server: Loopback, asked: Asked) -> Says:
        if asked.method == "GET" and not asked.path.partition("?")[0].endswith("/status"):
            return Says(status=422, body={"detail": [{"type": "image_too_small", "msg": "too small"}]})
        return providers.fal(server, asked)

    desk = at(Provider(**{**vars(FAL), "behave": rejects}), price={"image": 0.04})
    rejected = desk.ask()
    assert isinstance(rejected, Failed), rejected
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
    gone = desk.ask()
    assert isinstance(gone, Failed)
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
    outcome = desk.ask()
    assert isinstance(outcome, Failed), outcome
    assert outcome.effective == {"cost": "unknown"}


@queues
def test_a_rejected_request_is_free(at: At, provider: Provider):
    desk = at(provider, price={"image": 0.04})
    desk.server.breaks(Says(status=429, body={}, headers={"Retry-After": "0"}), at=provider.submit)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.cost, outcome.effective) == (0.0, {})


@queues
def test_the_ledger_equals_the_servers_count(
    write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, provider: Provider
):
    monkeypatch.setattr(registry, "editor_class", KINDS.__getitem__)
    made: list[str] = []

    def counting(server: Loopback, asked: Asked) -> Says:
        if asked.method == "POST":
            made.append(asked.path)
        return provider.behave(server, asked)

    with serving(counting) as server:
        task = "as_task = true" if provider is DASHSCOPE_TASK else ""
        folder = write_audit(
            f'use = "{provider.kind.name}"\n[editors.parameters]\nbase_url = "{server.url}{provider.base}"\n'
            f"poll_seconds = 0.005\nprice = {{ image = 0.04 }}\nconcurrency = 1\n{task}"
        )
        server.breaks(Says(status=429, body={}, headers={"Retry-After": "0"}), at=provider.submit, times=2)
        server.breaks(Says(status=503, body=b"busy", headers={"Retry-After": "0"}), at=provider.submit)
        for says in (Says(status=403, body=b"expired"), Says(status=404, body=b""), Says(body=b"<html>")):
            server.breaks(says, at="picture.png")
        tally = run_stages(folder, ("edit",)).tallies[0]
    assert tally.counts == {"edited": REQUESTS}
    assert len(made) == REQUESTS
    assert tally.cost == pytest.approx(len(made) * 0.04)
    totals = status_of(Run.open(folder)).totals
    assert (totals.cost, totals.unpriced) == (pytest.approx(len(made) * 0.04), 0)


@queues
def test_no_link_stays_on_disk_when_its_job_has_ended(
    write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, provider: Provider
):
    monkeypatch.setattr(registry, "editor_class", KINDS.__getitem__)
    with serving(provider.behave) as server:
        folder = write_audit(
            f'use = "{provider.kind.name}"\n[editors.parameters]\nbase_url = "{server.url}{provider.base}"\n'
            "poll_seconds = 0.005"
        )
        assert run_stages(folder, ("edit",)).tallies[0].counts == {"edited": REQUESTS}
    assert not (folder / FILE).exists() or "http" not in (folder / FILE).read_text()


def test_a_try_of_unknown_cost_marks_the_edit_that_follows(
    write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "editor_class", KINDS.__getitem__)
    with serving(BFL.behave) as server:
        folder = write_audit(
            f'use = "bfl"\n[editors.parameters]\nbase_url = "{server.url}"\npoll_seconds = 0.005\n'
            "price = { image = 0.04 }\nconcurrency = 1"
        )
        server.breaks(Says(body={"polling_url": "https://elsewhere.example/x"}))
        assert run_stages(folder, ("edit",)).tallies[0].counts == {"edited": REQUESTS}
        assert len(server.calls()) == REQUESTS + 1
    totals = status_of(Run.open(folder)).totals
    assert (totals.cost, totals.unpriced) == (pytest.approx(REQUESTS * 0.04), 1)


def test_a_reply_that_nests_without_end_is_no_json():
    deep = Reply(200, {}, b"[" * 100_000)
    assert deep.body is None
    assert Reply(200, {}, b"4" * 5_001).body is None
    assert Reply(200, {}, json.dumps({"a": 1}).encode()).body == {"a": 1}
