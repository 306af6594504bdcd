"""Keys go to their provider and nowhere else, and no secret is stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stillme.core import registry
from stillme.core.errors import NotReady
from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.conftest import KEY
from tests.editors.hosted.loopback import Loopback, Says
from tests.editors.hosted.providers import FAL, GEMINI, OPENAI, SERVER, Provider, base64_of
from tests.editors.hosted.test_every_provider import At
from tests.records import must_be

keyed = pytest.mark.parametrize("provider", [OPENAI, GEMINI, FAL], ids=lambda provider: provider.name)


@pytest.mark.parametrize("name", ["key_variable", "api_key_env"])
@pytest.mark.parametrize("provider", [OPENAI, FAL], ids=lambda provider: provider.name)
def test_a_key_may_be_in_another_variable(at: At, provider: Provider, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sesame-4711")
    desk = at(provider, **{name: "MY_KEY"})
    assert isinstance(desk.ask(), Edited)
    assert all("sesame-4711" in str(asked.headers) for asked in desk.server.asked)


def test_readiness_is_checked_for_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(NotReady, match="MY_KEY is not set"):
        registry.build("editor", "openai", {"key_variable": "MY_KEY"})
    monkeypatch.setenv("MY_KEY", "sesame-4711")
    registry.build("editor", "openai", {"api_key_env": "MY_KEY"})


@keyed
@pytest.mark.parametrize("url", ["http://api.example.com", "http://93.184.216.34:8000/v1"])
def test_a_key_is_not_sent_unencrypted(provider: Provider, at: At, url: str):
    editor = provider.build(url)
    (sentence,) = editor.problems([], [])
    assert "unencrypted" in sentence
    (outcome,) = editor.edit([at(provider).request()])
    assert outcome.fatal
    assert sentence in outcome.error


@pytest.mark.parametrize(
    ("provider", "url", "settings"),
    [
        *((OPENAI, url, {}) for url in ("https://api.example.com", "http://localhost:8000", "http://127.0.0.1")),
        (OPENAI, "http://[::1]", {}),
        (OPENAI, "http://api.example.com", {"insecure_http": True}),
        (SERVER, "http://gpu.example.com", {"key_variable": None}),
    ],
)
def test_a_key_is_sent_over_https_to_this_machine_and_where_the_audit_allows_it(
    provider: Provider, url: str, settings: dict[str, object]
):
    assert list(provider.build(url, **settings).problems([], [])) == []


def test_credentials_in_an_address_are_refused_and_not_repeated():
    (sentence,) = SERVER.build("https://me:hunter2@gpu.example.com/v1").problems([], [])
    assert "contains credentials" in sentence
    assert "hunter2" not in sentence


@keyed
def test_a_key_does_not_follow_to_another_host(provider: Provider, at: At, loopback: Callable[..., Loopback]):
    other, desk = loopback(lambda *_: Says(body={})), at(provider)
    desk.server.breaks(Says(status=307, headers={"Location": f"{other.url}/take"}), at=provider.submit)
    outcome = must_be(Failed, desk.ask())
    assert outcome.fatal
    assert f"{desk.server.url} redirects to {other.url}/take" in outcome.error, "with scheme and port"
    assert other.asked == []


def test_refusals_and_rewritten_prompts_are_redacted_too(at: At):
    desk = at(OPENAI)
    message = f"Rejected for {KEY}, see https://x.example/log?sig=abcdef"
    desk.server.breaks(Says(status=400, body={"error": {"code": "moderation_blocked", "message": message}}))
    outcome = must_be(Refused, desk.ask())
    assert outcome.message == "Rejected for …, see https://x.example/log?…"
    picture = base64_of(desk.people[0].image.read())
    data = [{"b64_json": picture, "revised_prompt": f"Do it with Bearer {KEY}"}]
    desk.server.breaks(Says(body={"created": 1, "data": data}))
    outcome = must_be(Edited, desk.ask())
    assert KEY not in str(outcome.effective)
