"""What holds for every hosted editor: an outage is no refusal, limits are kept, nothing is retried in silence."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.core import images
from stillme.core.types import Edited, Failed, Portrait
from stillme.plugins.testing import check_plugin
from tests.editors.hosted.conftest import KEY, Desk
from tests.editors.hosted.loopback import Says, serving
from tests.editors.hosted.providers import COMFYUI, FAL, GEMINI, OPENAI, PROVIDERS, Provider
from tests.pictures import on_its_side
from tests.records import must_be

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
every_way = pytest.mark.parametrize("provider", [OPENAI, GEMINI, FAL, COMFYUI], ids=lambda provider: provider.name)
"""A form, JSON, a queue, and an upload before it: what the shared client does is the same for all others."""
RETRYABLE, FOR_GOOD = (False, False, True), (False, False, False)
FATAL, SLOWER = (True, False, True), (False, True, True)
"""Fatal, throttled, retryable."""
KEYED = [provider for provider in PROVIDERS if provider.key_variable]
At = Callable[..., Desk]


def failed(desk: Desk) -> Failed:
    return must_be(Failed, desk.ask())


@every_provider
def test_the_picture_comes_back(provider: Provider, at: At):
    desk = at(provider)
    outcome = must_be(Edited, desk.ask())
    source = images.read_rgb(desk.people[0].image.path)
    assert np.array_equal(images.read_rgb(outcome.image), 255 - source)
    assert outcome.effective["size"] == [16, 16]


@every_way
def test_it_conforms(provider: Provider, people: list[Portrait]):
    with serving(provider.behave) as server:
        check_plugin(provider.kind, people[:2], provider.settings(server.url))


DOWN = b"<html>policy and safety are down for maintenance</html>"
PAGE, WRONG_TYPES = b"<html>a login page</html>", {"data": "text", "candidates": "text", "status": 3}
MISTAKE = "size must be divisible by 16"
REJECTED = {"error": {"message": MISTAKE, "code": "invalid_value", "status": "INVALID_ARGUMENT"}, "detail": MISTAKE}
WRONG_KEY = {"error": {"message": f"Incorrect key: {KEY}", "code": "invalid_api_key"}, "detail": f"Incorrect: {KEY}"}
FAULTS: list[tuple[Says, tuple[bool, bool, bool], str]] = [
    # what the server answers, who must act, words of the failure
    (Says(status=429, body={"error": {"message": "slow down"}}, headers={"Retry-After": "7"}), SLOWER, "429"),
    *((Says(status=status, body=DOWN), RETRYABLE, str(status)) for status in (500, 502, 503, 504)),
    (Says(status=400, body=REJECTED), FOR_GOOD, MISTAKE),
    (Says(status=401, body=WRONG_KEY), FATAL, "401"),
    (Says(body={"data": "x" * 4096}, truncated=True), RETRYABLE, "no complete answer"),
    (Says(body=PAGE, headers={"Content-Type": "text/html"}), RETRYABLE, "the answer:"),
    *(
        (Says(body=odd), RETRYABLE, "")
        for odd in (["a", "list"], {}, WRONG_TYPES, "text", {"data": [], "candidates": []})
    ),
]


@every_provider
@pytest.mark.parametrize(("says", "flags", "words"), FAULTS)
def test_an_outage_is_not_a_refusal(provider: Provider, at: At, says: Says, flags: tuple[bool, bool, bool], words: str):
    """Nor is any other fault: each says who must act."""
    desk = at(provider)
    desk.server.breaks(says, at=provider.submit)
    outcome = failed(desk)
    assert (outcome.fatal, outcome.throttled, outcome.retryable) == flags
    assert words in outcome.error if words else re.search("the answer:|prediction", outcome.error)
    assert KEY not in outcome.error
    assert outcome.retry_after == (7.0 if says.status == 429 else None)
    assert says.status == 200 or (outcome.cost, outcome.effective) == (0.0, {}), "a rejected request is free"
    assert sum(provider.submit in asked.path for asked in desk.server.asked) == 1, "no silent second attempt"
    assert flags == FOR_GOOD or isinstance(desk.ask(), Edited)


LONG = f"<p>long</p>{' ' * 580}{KEY}".encode() + b"<p>long</p>\n" * 1000
LATE = (Says(body=b" " * 10_000, trickles=True), Says(head_trickles=True), Says(hangs=True))


@pytest.mark.parametrize(
    ("says", "seconds", "words"),
    [
        *((says, 0.4, "no complete answer within 0.4 s") for says in LATE),
        (Says(body=b"x" * (2**20 + 1)), 60, "the answer has more than 1 MB"),
        (Says(status=500, body=LONG), 60, "500"),
    ],
)
@every_way
def test_a_server_that_hangs_trickles_or_says_too_much_is_given_up(
    provider: Provider, at: At, says: Says, seconds: float, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("stillme.core.http.client.MOST_BYTES", 2**20)
    desk = at(provider, timeout=seconds)
    desk.server.breaks(says, at=provider.submit)
    outcome = failed(desk)
    assert outcome.retryable
    assert words in outcome.error
    assert len(outcome.error) < 700
    assert KEY[:8] not in outcome.error


@every_provider
def test_a_broken_picture_is_a_failure_that_was_charged(provider: Provider, at: At, monkeypatch: pytest.MonkeyPatch):
    whole = images.encode_png
    monkeypatch.setattr(images, "encode_png", lambda rgb: whole(rgb)[:-40])
    outcome = failed(at(provider, price={"image": 0.04}))
    assert outcome.retryable
    assert outcome.cost > 0
    assert "truncated" in outcome.error


@every_way
def test_a_server_that_is_not_there_is_a_failure_to_retry(provider: Provider, people: list[Portrait]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        desk_editor = provider.build(f"http://127.0.0.1:{taken.getsockname()[1]}")
    outcome = failed(Desk(None, desk_editor, people))
    assert outcome.retryable


@every_provider
def test_without_a_key_nothing_is_sent(provider: Provider, at: At, monkeypatch: pytest.MonkeyPatch):
    for variable in provider.kind.needs.variables:
        monkeypatch.delenv(variable)
    desk = at(provider)
    if provider.kind.needs.variables:
        assert f"export {provider.kind.needs.variables[0]}" in failed(desk).error
        assert desk.server.asked == []
    else:
        assert isinstance(desk.ask(), Edited)


@pytest.mark.parametrize("provider", KEYED, ids=lambda provider: provider.name)
def test_a_key_pasted_with_other_characters_is_named(provider: Provider, at: At, monkeypatch: pytest.MonkeyPatch):
    variable = provider.key_variable
    monkeypatch.setenv(variable, f"“{KEY}”")
    assert f"{variable} contains characters that no key has" in failed(at(provider)).error


@every_provider
def test_the_key_goes_to_the_provider_and_nowhere_else(provider: Provider, at: At):
    desk = at(provider)
    desk.ask()
    for asked in desk.server.asked:
        assert (KEY in str(asked.headers)) == (not asked.path.endswith("picture.png")), asked.path


@every_way
def test_calls_keep_their_distance_across_threads(provider: Provider, at: At):
    desk = at(provider, requests_per_minute=1200, concurrency=4)
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: desk.ask(), range(4)))
    assert time.monotonic() - started >= 0.15
    assert [type(outcome) for outcome in outcomes] == [Edited] * 4


@every_provider
def test_a_portrait_on_its_side_is_sent_upright(provider: Provider, at: At, tmp_path: Path):
    desk = at(provider)
    desk.people[0] = replace(desk.people[0], image=on_its_side(tmp_path))
    outcome = must_be(Edited, desk.ask())
    assert outcome.effective["size"] == [4, 8]


@every_provider
def test_what_cannot_change_a_picture_is_no_part_of_the_key(provider: Provider):
    plain = provider.build("http://127.0.0.1:9")
    slow = provider.build("http://127.0.0.1:9", timeout=1, concurrency=1, requests_per_minute=1, price={"image": 1})
    other = provider.build("http://127.0.0.1:9", extra={"guidance_scale": 2})
    assert plain.spec.key == slow.spec.key != other.spec.key


@every_provider
def test_extra_fields_must_not_replace_the_experiment(provider: Provider):
    reserved = sorted(provider.kind.reserved)[0]
    editor = provider.build("http://127.0.0.1:9", extra={reserved: "something else", "steps": 4})
    (sentence,) = editor.problems([], [])
    assert f"`extra.{reserved}`" in sentence


@every_way
def test_a_server_is_told_one_name_and_its_connections_are_kept(provider: Provider, at: At):
    desk = at(provider)
    for _ in range(3):
        assert isinstance(desk.ask(), Edited)
    for asked in desk.server.asked:
        names = [value for name, value in asked.header_list if name == "user-agent"]
        assert len(names) == 1
        assert names[0].startswith("stillme/")
    # One to the provider, and one without a key to where pictures are kept.
    assert len({asked.connection for asked in desk.server.asked}) <= 2
