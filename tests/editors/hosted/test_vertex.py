"""Gemini on Vertex AI: credentials of Google Cloud instead of a key."""

from __future__ import annotations

import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.oauth2.credentials import Credentials

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.conftest import KEY
from tests.editors.hosted.further_providers import VERTEX
from tests.editors.hosted.providers import gemini_says
from tests.editors.hosted.test_every_provider import At


def test_the_request_goes_to_project_and_location_with_the_token(at: At):
    desk = at(VERTEX, aspect_ratio="1:1", extra={"labels": {"audit": "yes"}})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    (asked,) = desk.server.asked
    assert "/projects/people/locations/global/publishers/google/models/" in asked.path
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.json["generationConfig"]["seed"] == 7
    assert asked.json["generationConfig"]["imageConfig"] == {"aspectRatio": "1:1"}
    assert asked.json["labels"] == {"audit": "yes"}


def test_the_project_of_the_credentials_is_the_default(at: At):
    assert isinstance(at(VERTEX, project="").ask(), Edited)


def test_a_refusal_is_marked_as_gemini_does(at: At):
    desk = at(VERTEX)
    desk.server.breaks(gemini_says(finishReason="IMAGE_SAFETY", finishMessage="Unable to show the generated image."))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.effective["signal"] == "finishReason = IMAGE_SAFETY"


def failed(outcome: object) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def test_without_credentials_nothing_is_sent_and_the_way_out_is_named(at: At, monkeypatch: pytest.MonkeyPatch):
    def missing(**_: object) -> None:
        raise DefaultCredentialsError("Your default credentials were not found.")

    desk = at(VERTEX)
    assert list(desk.editor.lacking(online=False)) == []
    monkeypatch.setattr("google.auth.default", missing)
    assert "gcloud auth application-default login" in next(iter(desk.editor.lacking(online=False)))
    outcome = failed(desk.ask())
    assert (outcome.fatal, desk.server.asked) == (True, [])
    assert "gcloud auth application-default login" in outcome.error


def test_without_a_project_the_audit_must_name_one(at: At, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(token=KEY), None))
    outcome = failed(at(VERTEX, project="").ask())
    assert outcome.fatal
    assert "set `project`" in outcome.error


class Stale(Credentials):
    """Credentials whose token must be fetched, which fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__(token=None)
        self.error = error

    def refresh(self, request: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "fatal"), [(RefreshError("Reauthentication is needed."), True), (TransportError("no route"), False)]
)
def test_a_token_that_cannot_be_fetched_is_a_failure(
    at: At, monkeypatch: pytest.MonkeyPatch, error: Exception, fatal: bool
):
    monkeypatch.setattr("google.auth.default", lambda **_: (Stale(error), "people"))
    outcome = failed(at(VERTEX).ask())
    assert (outcome.fatal, outcome.retryable) == (fatal, True)


def test_project_is_no_part_of_the_key_and_location_is():
    here = VERTEX.build("http://127.0.0.1:9")
    assert VERTEX.build("http://127.0.0.1:9", project="other").spec.key == here.spec.key
    assert VERTEX.build("http://127.0.0.1:9", location="europe-west4").spec.key != here.spec.key


def test_the_token_is_not_sent_unencrypted():
    with pytest.raises(ValueError, match="base_url"):
        VERTEX.build("http://example.com")
