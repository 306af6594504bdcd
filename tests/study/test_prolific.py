"""Prolific's API, webhook, codes and keys, against a server on loopback that speaks its documented protocol."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import jwt
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa

from stillme.cli import cli
from stillme.errors import StillmeError
from stillme.study import config, keys
from stillme.study import schema as t
from stillme.study.app import build
from stillme.study.progress import progress
from stillme.study.prolific import signed_keys
from stillme.study.prolific.api import ProlificApi, ProlificError
from stillme.study.prolific.following import approve, reject, request_return, sync
from stillme.study.prolific.recruiting import create_study, offer_places
from stillme.study.prolific.webhook import PATH, signature_of, subscribe
from stillme.study.submissions import submissions
from tests.study.conftest import Served
from tests.study.prolific_server import TOKEN, Prolific, prolific_server

WHY = "You finished the whole task in forty seconds, and both questions that only ask for a certain answer were missed."


@pytest.fixture
def prolific(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prolific]:
    with prolific_server() as state:
        monkeypatch.setenv("PROLIFIC_API_TOKEN", TOKEN)
        monkeypatch.setenv("PROLIFIC_API_URL", state.address)
        yield state


@pytest.fixture
def api(prolific: Prolific) -> ProlificApi:
    return ProlificApi(TOKEN, prolific.address, pause=lambda _: None)


def changed(served: Served, **settings: object) -> Served:
    """The same study with other settings."""
    study = replace(served.study, config=served.study.config.model_copy(update=settings))
    return Served(study, build(study), served.password)


def raters(served: Served) -> dict[str, str]:
    """Pseudonyms by Prolific id."""
    with served.study.database.reading() as connection:
        return {one.pid: one.rater for one in submissions(served.study, connection)}


def test_the_study_is_created_from_its_file_and_its_id_is_kept(
    serve: Callable[..., Served], prolific: Prolific, api: ProlificApi
) -> None:
    served = serve(tasks=2, raters=3, extra='screened_out = "OUT1"\n')
    file = served.study.folder / "study.toml"
    with pytest.raises(StillmeError, match="already names the study study1"):
        create_study(served.study, api, "https://study.example", "Rate pictures.")
    file.write_text(file.read_text().replace('study_id = "study1"', 'study_id = ""  # mine'))
    read = config.load(served.study.folder)
    fresh = changed(served, prolific=read.prolific, pay=config.Pay(amount=6.0, minutes=20)).study
    with pytest.raises(StillmeError, match="over https"):
        create_study(fresh, api, "http://study.example", "Rate pictures.")
    assert create_study(fresh, api, "https://study.example/", "Rate pictures.") == "new1"
    sent = prolific.studies["new1"]
    assert sent["total_available_places"] == 6
    assert (sent["reward"], sent["estimated_completion_time"]) == (600, 20)
    assert sent["external_study_url"] == (
        "https://study.example/enter?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}"
    )
    kinds = {code["code"]: (code["code_type"], code["actions"][0]["action"]) for code in sent["completion_codes"]}
    assert kinds["DONE1"] == ("COMPLETED", "MANUALLY_REVIEW")
    assert kinds["NOCON1"] == ("NO_CONSENT", "REQUEST_RETURN")
    assert kinds["OUT1"] == ("OTHER", "MANUALLY_REVIEW")
    assert config.load(served.study.folder).prolific.study_id == "new1"  # type: ignore[union-attr]
    assert "# mine" in file.read_text()


def test_prolifics_own_words_reach_the_researcher(
    serve: Callable[..., Served], prolific: Prolific, api: ProlificApi
) -> None:
    unpaid = {"pay": config.Pay(amount=1.0, minutes=30), "prolific": config.Prolific(codes=_codes())}
    served = changed(serve(), **unpaid)
    with pytest.raises(
        ProlificError, match=r"Prolific refused POST /api/v1/studies/ \(400: .*below the minimum per hour"
    ):
        create_study(served.study, api, "https://study.example", "x")
    assert prolific.studies == {}


def _codes() -> config.Codes:
    return config.Codes(completed="A1", other="B1")


def test_sync_reads_every_page_and_applies_each_status(served: Served, prolific: Prolific, api: ProlificApi) -> None:
    done, gone, late, paid = (served.browser().enter(pid) for pid in ("done", "gone", "late", "paid"))
    for browser in (done, paid):
        browser.to_rating()
        browser.save(browser.answers())
        browser.complete()
    for browser in (gone, late):
        browser.to_rating()
    for pid, status in (("done", "AWAITING REVIEW"), ("gone", "RETURNED"), ("late", "TIMED-OUT"), ("paid", "APPROVED")):
        prolific.submit(pid, status)
    for number in range(230):
        prolific.submit(f"x{number}", "RETURNED")
    prolific.submit("odd", "SOMETHING NEW")
    prolific.faults = [429, 500, None, "drop"]
    assert sync(served.study, api) == {"places freed": 2, "identities purged": 1, "unknown here": 231}
    pages = [path for method, path in prolific.asked if path == "/api/v1/submissions/"]
    assert len(pages) == 3 + 3
    assert "You returned your submission" in gone.page()
    assert sync(served.study, api) == {"unknown here": 231}


def test_the_status_of_an_older_submission_says_nothing_about_the_next(
    served: Served, prolific: Prolific, api: ProlificApi
) -> None:
    browser = served.browser().enter("pid1").to_rating()
    prolific.submit("pid1", "RETURNED", name="spid1")
    sync(served.study, api)
    assert browser.ask("GET", "/enter?PROLIFIC_PID=pid1&STUDY_ID=study1&SESSION_ID=s2").status_code == 303
    browser.to_rating()
    prolific.submit("pid1", "ACTIVE", name="s2")
    assert sync(served.study, api) == {"an earlier submission: nothing was done": 1}
    browser.save(browser.answers())
    assert browser.complete().json() == {"missing": []}


def test_approving_pays_who_counts_and_forgets_who_they_are(
    served: Served, prolific: Prolific, api: ProlificApi
) -> None:
    for pid in ("one", "two", "three"):
        served.browser().take_part(pid)
        prolific.submit(pid, "AWAITING REVIEW")
    served.browser().enter("four").to_rating()
    prolific.submit("four", "ACTIVE")
    names = raters(served)
    admin = served.admin()
    csrf = admin.ask("GET", "/admin").text.split('name="csrf" value="')[1].split('"')[0]
    admin.ask("POST", "/admin/exclude", data={"csrf": csrf, "rater": names["two"], "reason": "bots"})
    prolific.submissions["sthree"]["status"] = "RETURNED"
    prolific.faults = [503]
    reviewed = approve(served.study, api, [])
    assert reviewed.done == {names["one"]: "APPROVED"}
    assert "is RETURNED and cannot be changed" in reviewed.failed[names["three"]]
    assert sorted(raters(served)) == ["four", "three", "two"]
    with pytest.raises(StillmeError, match="No submission of r-nobody"):
        approve(served.study, api, ["r-nobody"])


def test_a_rejection_needs_words_frees_the_place_and_excludes(
    served: Served, prolific: Prolific, api: ProlificApi
) -> None:
    served.browser().take_part("one")
    prolific.submit("one", "AWAITING REVIEW")
    name = raters(served)["one"]
    with pytest.raises(StillmeError, match="at least 100 characters"):
        reject(served.study, api, [name], "too fast", "TOO_QUICKLY")
    with served.study.database.reading() as connection:
        before = progress(served.study, connection).raters_needed
    assert reject(served.study, api, [name], WHY, "TOO_QUICKLY").done == {name: "REJECTED"}
    with served.study.database.reading() as connection:
        assert progress(served.study, connection).raters_needed == before + 1


def test_a_return_is_asked_for_and_heard_of_later(served: Served, prolific: Prolific, api: ProlificApi) -> None:
    browser = served.browser().enter("one").to_rating()
    prolific.submit("one", "AWAITING REVIEW")
    name = raters(served)["one"]
    assert request_return(served.study, api, [name], "The task was not finished.").done == {name: "AWAITING REVIEW"}
    assert prolific.submissions["sone"]["return_requested"] == ["The task was not finished."]
    assert "You returned" not in browser.page()


def test_places_are_raised_where_raters_are_missing(served: Served, prolific: Prolific, api: ProlificApi) -> None:
    prolific.studies["study1"] = {"status": "ACTIVE", "total_available_places": 6, "places_taken": 2}
    assert (offer_places(served.study, api).places, prolific.studies["study1"]["total_available_places"]) == (8, 8)
    assert offer_places(served.study, api).more == 0


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (401, "refused the token in PROLIFIC_API_TOKEN"),
        (404, "does not know this"),
        (422, "refused GET"),
        ("garbage", "not what its documentation says"),
        ("redirect", "redirect"),
    ],
)
def test_faults_are_explained_without_the_token(
    served: Served, prolific: Prolific, api: ProlificApi, fault: object, sentence: str
) -> None:
    prolific.faults = [fault]
    with pytest.raises(ProlificError) as caught:
        sync(served.study, api)
    assert sentence in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert ("GET", "/stolen") not in prolific.asked


def test_an_outage_is_tried_again_and_a_draft_is_never_made_twice(
    served: Served, prolific: Prolific, api: ProlificApi
) -> None:
    prolific.faults = ["drop"] * 5
    with pytest.raises(ProlificError, match="cannot be reached"):
        sync(served.study, api)
    assert len(prolific.asked) == 5
    prolific.faults = ["drop"]
    with pytest.raises(ProlificError, match="It may have been done: look at Prolific"):
        api.create_study({})
    assert [path for _, path in prolific.asked].count("/api/v1/studies/") == 1


def test_the_commands_ask_for_a_token_and_never_send_it_in_the_open(
    served: Served, prolific: Prolific, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(served.study.folder)
    served.browser().take_part("one")
    prolific.submit("one", "AWAITING REVIEW")
    prolific.studies["study1"] = {"status": "ACTIVE", "total_available_places": 6, "places_taken": 1, "reward": 600}
    run = CliRunner()
    said = run.invoke(cli, ["study", "prolific", "sync", folder, "--json"])
    assert json.loads(said.stdout) == {"done": {}, "places": 6, "raised_by": 0}
    asked = run.invoke(cli, ["study", "prolific", "set", "publish", folder], input="n\n")
    assert asked.exit_code == 1
    assert "6 places at 6.00 each" in asked.output
    assert run.invoke(cli, ["study", "prolific", "set", "pause", folder]).stdout.startswith("study1: PAUSED")
    assert "1 approved." in run.invoke(cli, ["study", "prolific", "approve", folder]).stdout
    for name, value, words in (
        ("PROLIFIC_API_URL", "http://prolific.example", "would be sent unencrypted"),
        ("PROLIFIC_API_TOKEN", "", "Set PROLIFIC_API_TOKEN"),
    ):
        monkeypatch.setenv(name, value)
        failed = run.invoke(cli, ["study", "prolific", "sync", folder])
        assert words in str(failed.exception)
    assert TOKEN not in (served.study.folder / "secrets.json").read_text()


# -- the webhook ------------------------------------------------------------------------------------------------------


def send(served: Served, event: object, *, secret: str = "s3cret", at: float | None = None, **headers: str):
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    timestamp = str(int(time.time() if at is None else at))
    browser = served.browser()
    browser.client.headers.pop("origin")
    signed = {
        "X-Prolific-Request-Timestamp": timestamp,
        "X-Prolific-Request-Signature": signature_of(secret, timestamp, body),
        "Content-Type": "application/json",
    }
    return browser.ask("POST", PATH, content=body, headers=signed | headers)


def event(pid: str, status: str, submission: str = "") -> dict[str, str]:
    changed = {"event_type": "submission.status.change", "participant_id": pid, "status": status}
    return {**changed, "resource_id": submission or f"s{pid}"}


def test_signed_events_are_applied_at_once_and_repeats_change_nothing(served: Served) -> None:
    browser = served.browser().enter("one").to_rating()
    assert send(served, event("one", "RETURNED")).status_code == 404
    keys.keep_webhook_secret(served.study.folder, "s3cret")
    assert send(served, event("one", "ACTIVE")).status_code == 204
    assert "You returned" not in browser.page()
    for _ in range(2):
        assert send(served, event("one", "RETURNED")).status_code == 204
    assert "You returned your submission" in browser.page()
    # Late news of the old submission do not touch the new one.
    browser.ask("GET", "/enter?PROLIFIC_PID=one&STUDY_ID=study1&SESSION_ID=s2")
    browser.to_rating()
    assert send(served, event("one", "RETURNED")).status_code == 204
    assert browser.data()[0]["items"]
    for other in (event("stranger", "RETURNED"), {"event_type": "study.status.change", "resource_id": "x"}):
        assert send(served, other).status_code == 204


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"secret": "another"}, 403),
        ({"at": time.time() - 3600}, 403),
        ({"at": time.time() + 3600}, 403),
        ({"X-Prolific-Request-Signature": ""}, 400),
        ({"X-Prolific-Request-Signature": "AAAA"}, 403),
        ({"X-Prolific-Request-Timestamp": "soon"}, 400),
        ({"X-Prolific-Request-Timestamp": "9" * 400}, 400),
        ({"X-Prolific-Request-Timestamp": "1"}, 403),
    ],
)
def test_forged_and_stale_events_change_nothing(served: Served, changes: dict[str, object], status: int) -> None:
    keys.keep_webhook_secret(served.study.folder, "s3cret")
    browser = served.browser().enter("one").to_rating()
    assert send(served, event("one", "RETURNED"), **changes).status_code == status  # type: ignore[arg-type]
    assert "You returned" not in browser.page()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"event_type": "submission.status.change", "status": 5}', b"\xff"]
)
def test_signed_nonsense_is_the_senders_fault(served: Served, body: bytes) -> None:
    keys.keep_webhook_secret(served.study.folder, "s3cret")
    assert send(served, body).status_code == 400


def test_the_example_of_prolifics_documentation_verifies() -> None:
    """base64(HMAC-SHA256(secret, timestamp + body)), computed here as its page does."""
    import base64
    import hashlib
    import hmac

    body, timestamp, secret = '{"status": "APPROVED"}', "1700000000", "abc"
    theirs = base64.b64encode(hmac.new(secret.encode(), str.encode(timestamp + body), hashlib.sha256).digest())
    assert signature_of(secret, timestamp, body.encode()) == theirs.decode()


def test_subscribing_keeps_the_secret_confirms_and_keeps_the_password(
    served: Served, prolific: Prolific, api: ProlificApi
) -> None:
    assert subscribe(served.study, api, "ws1", "https://study.example") == "hook1"
    hook = prolific.subscriptions["hook1"]
    assert hook["target_url"] == f"https://study.example{PATH}"
    assert hook["is_enabled"]
    loaded = keys.load(served.study.folder)
    assert loaded.webhook == "secret0"
    assert loaded.is_admin(served.password)
    assert (served.study.folder / "secrets.json").stat().st_mode & 0o77 == 0
    keys.change_password(served.study.folder)
    assert keys.load(served.study.folder).webhook == "secret0"


# -- codes ------------------------------------------------------------------------------------------------------------


def test_the_code_is_on_the_page_and_only_at_the_end(served: Served) -> None:
    browser = served.browser().enter("one").to_rating()
    assert "DONE1" not in browser.page()
    browser.save(browser.answers())
    browser.complete()
    assert '<code id="completion-code">DONE1</code>' in browser.page()
    declined = served.browser().enter("two")
    declined.form("/study/consent", decision="decline", version="1")
    assert '<code id="completion-code">NOCON1</code>' in declined.page()


def test_too_many_wrong_tries_at_the_training_end_with_the_code_for_that(serve: Callable[..., Served]) -> None:
    served = serve(extra='screened_out = "OUT1"\n')
    served = changed(served, checks=config.Checks(training_tries=2))
    browser = served.browser().enter("one").to_training()
    data, csrf = browser.data()
    wrong = {"answers": [[[5] * len(data["items"][0]["questions"]) for _ in data["items"][0]["pictures"][1:]]]}
    assert not browser.api("POST", "/api/training", wrong, csrf).json()["finished"]
    assert browser.api("POST", "/api/training", wrong, csrf).json()["finished"]
    page = browser.page()
    assert "OUT1" in page
    assert browser.ask("GET", "/finish").headers["location"].endswith("cc=OUT1")
    with served.study.database.reading() as connection:
        assert set(
            connection.execute(sa.select(t.slot.c.state).where(t.slot.c.participant.is_not(None))).scalars()
        ) == {"void"}
    # Others may still try as often as they like in a study without that limit.
    patient = serve().browser().enter("one").to_training()
    data, csrf = patient.data()
    for _ in range(5):
        assert not patient.api("POST", "/api/training", wrong, csrf).json()["finished"]


# -- keys of signed entries -------------------------------------------------------------------------------------------


def _signer(name: str) -> tuple[rsa.RSAPrivateKey, dict[str, object]]:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(made.public_key()))
    return made, {**public, "kid": name, "alg": "RS256"}


def _enter(served: Served, signer: rsa.RSAPrivateKey, name: str, pid: str) -> int:
    claims = {
        "aud": "https://study.example",
        "exp": int(time.time()) + 60,
        "prolific": {"PROLIFIC_PID": pid, "STUDY_ID": "study1", "SESSION_ID": f"s{pid}"},
    }
    token = jwt.encode(claims, signer, algorithm="RS256", headers={"kid": name})
    return served.browser().ask("GET", f"/enter?prolific_token={token}").status_code


def test_keys_are_fetched_renewed_daily_and_when_unknown_but_not_for_every_forgery(
    serve: Callable[..., Served], prolific: Prolific, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(extra='[prolific.token]\naudience = "https://study.example"\n')
    file = served.study.folder / "jwks.json"
    monkeypatch.setattr(signed_keys, "_PAUSE", 0.0)
    old, old_key = _signer("old")
    new, new_key = _signer("new")
    prolific.keys = {"keys": [old_key]}
    assert _enter(served, old, "old", "one") == 303
    assert json.loads(file.read_text())["keys"][0]["kid"] == "old"
    # Known and fresh: nobody is asked.
    asked = len(prolific.asked)
    assert _enter(served, old, "old", "two") == 303
    assert len(prolific.asked) == asked
    # Rotated: the unknown key is fetched once.
    prolific.keys = {"keys": [new_key]}
    assert _enter(served, new, "new", "three") == 303
    # Forged with names that nobody has: asked at most once a minute.
    monkeypatch.setattr(signed_keys, "_PAUSE", 60.0)
    asked = len(prolific.asked)
    for _ in range(5):
        assert _enter(served, old, "forged", "four") == 403
    assert len(prolific.asked) <= asked + 1
    # A day old: renewed; while Prolific is down, the keys at hand still work.
    monkeypatch.setattr(signed_keys, "_PAUSE", 0.0)
    os.utime(file, (time.time() - 90_000,) * 2)
    prolific.faults = [404]
    assert _enter(served, new, "new", "five") == 303
    assert _enter(served, new, "new", "six") == 303
    assert time.time() - file.stat().st_mtime < 60
