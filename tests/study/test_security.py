"""Forged, replayed, tampered and foreign requests are refused; blinding holds byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.study.annotators import page_data
from tests.study.conftest import Served, serving_again
from tests.study.studies import SECRET_WORDS, change, write_study

TRAVERSAL = [
    "/img/../secrets.json",
    "/img/..%2f..%2fsecrets.json",
    "/img/%2e%2e/study.sqlite",
    "/static/../study.toml",
    "/static/%252e%252e/x",
    "/i/../../etc/passwd",
    "/img/" + "0" * 32,
    "/img/" + "0" * 5000,
]


def test_strangers_see_nothing(served: Served) -> None:
    rater = served.browser().enter().to_rating()
    (picture, *_) = rater.data()[0]["items"][0]["pictures"]
    stranger = served.browser()
    for path in ("/study", f"/img/{picture}", "/finish", "/withdraw", "/admin/log", "/admin/export.zip"):
        assert stranger.ask("GET", path).status_code == 401, path
    for method, path in (("PUT", "/api/answers"), ("POST", "/api/complete"), ("POST", "/api/training")):
        body = {"epoch": 1} if path != "/api/training" else {"answers": []}
        assert stranger.api(method, path, body, "x").status_code == 401, path


def test_pictures_are_shown_only_to_whoever_has_the_task(serve: Callable[..., Served]) -> None:
    served = serve(tasks=2, raters=1, checks=False)
    one = served.browser().enter("pid1").to_rating()
    two = served.browser().enter("pid2").to_rating()
    mine = {picture for item in one.data()[0]["items"] for picture in item["pictures"]}
    others = {picture for item in two.data()[0]["items"] for picture in item["pictures"]}
    assert not mine & others
    assert {one.ask("GET", f"/img/{picture}").status_code for picture in mine} == {200}
    assert {one.ask("GET", f"/img/{picture}").status_code for picture in others} == {404}
    one.hand_in()
    assert {one.ask("GET", f"/img/{picture}").status_code for picture in mine} == {404}


def test_csrf_and_origin_are_required(served: Served) -> None:
    browser = served.browser().enter()
    assert browser.ask("POST", "/study/consent", data={"decision": "agree"}).status_code == 403
    assert browser.ask("POST", "/study/consent", data={"decision": "agree", "csrf": "0" * 32}).status_code == 403
    token = browser.csrf()
    evil = {"Origin": "https://evil.example"}
    form = {"decision": "agree", "csrf": token}
    assert browser.ask("POST", "/study/consent", data=form, headers=evil).status_code == 403
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert browser.ask("POST", "/study/consent", data=form, headers=cross).status_code == 403
    browser.to_rating()
    data, csrf = browser.data()
    body = {"epoch": data["epoch"], "answers": browser.answers()[:1]}
    assert browser.ask("PUT", "/api/answers", json=body).status_code == 403
    assert browser.api("PUT", "/api/answers", body, csrf[::-1]).status_code == 403
    other = served.browser().enter("pid2").to_rating().data()[1]
    assert browser.api("PUT", "/api/answers", body, other).status_code == 403
    assert not browser.data()[0]["answers"]


@pytest.mark.parametrize(
    "tampered",
    [
        *({"value": value} for value in (6, -1, 2.5, "3", True)),
        *({"item": item} for item in (999, -1)),
        *({"seq": seq} for seq in (0, 2**60)),
        *({"side": 2}, {"question": 5}, {"slot": "x"}),
    ],
)
def test_tampered_answers_are_refused_whole(served: Served, tampered: dict[str, object]) -> None:
    browser = served.browser().enter().to_rating()
    good = browser.answers()[:2]
    answer = browser.save([good[0], {**good[1], **tampered}])
    assert answer.status_code == 422
    assert not browser.data()[0]["answers"]


def test_cannot_tell_is_refused_where_the_study_does_not_offer_it(served: Served, tmp_path: Path) -> None:
    browser = served.browser().enter().to_rating()
    assert browser.save([{**browser.answers()[0], "value": 0}]).status_code == 200
    write_study(tmp_path / "strict", checks=False)
    change(tmp_path / "strict", "can_abstain = true", "can_abstain = false")
    with serving_again(tmp_path / "strict") as strict:
        browser = strict.browser().enter().to_rating()
        assert browser.save([{**browser.answers()[0], "value": 0}]).status_code == 422


def test_the_steps_cannot_be_skipped(served: Served) -> None:
    browser = served.browser().enter()
    csrf = browser.csrf()
    save = {"epoch": 1, "answers": [{"seq": 1, "item": 0, "side": 0, "question": 0, "value": 3}]}
    assert browser.api("PUT", "/api/answers", save, csrf).status_code == 409
    assert browser.api("POST", "/api/complete", {"epoch": 1}, csrf).status_code == 409
    assert browser.ask("POST", "/study/guide", data={"csrf": csrf}).status_code == 303
    assert "I agree to take part" in browser.page()
    assert browser.ask("GET", "/finish").headers["location"] == "/study"
    browser.to_training()
    assert browser.api("PUT", "/api/answers", save, csrf).status_code == 409
    half = {"answers": [[[1, 3, 1, 1, 3]] * 2]}
    assert not browser.api("POST", "/api/training", half, csrf).json()["finished"]
    for odd in ({"answers": []}, {"answers": [[[1]]]}, {"answers": [[[1, 3, 1, 1, 9]] * 2]}, {"answers": 1}):
        assert browser.api("POST", "/api/training", odd, csrf).status_code == 422
    assert served.column("SELECT * FROM answer") == []


@pytest.mark.parametrize("path", TRAVERSAL)
def test_nothing_outside_is_reached(served: Served, path: str) -> None:
    answer = served.browser().enter().to_rating().ask("GET", path)
    assert answer.status_code in (303, 401, 403, 404)
    assert b"naming" not in answer.content


def test_forged_cookies_are_strangers(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    (name,) = browser.client.cookies
    value = browser.client.cookies[name]
    (stored,) = served.column("SELECT token_hash FROM session")
    for forged in (value[:-1] + ("A" if value[-1] != "A" else "B"), "", "x" * 5000, stored):
        stranger = served.browser()
        assert stranger.ask("GET", "/study", headers={"Cookie": f"{name}={forged}"}).status_code == 401


def test_the_hasty_are_slowed_down(serve: Callable[..., Served]) -> None:
    served = serve(extra="\n[limits]\nentries_per_minute = 3\nrequests_per_minute = 40\n")
    codes = [
        served.browser().ask("GET", f"/enter?PROLIFIC_PID=p{n}&STUDY_ID=study1&SESSION_ID=s").status_code
        for n in range(5)
    ]
    assert codes == [303, 303, 303, 429, 429]


def test_guessing_the_admins_password_is_slow_and_logged(served: Served) -> None:
    browser = served.browser()
    codes = [browser.ask("POST", "/admin/login", data={"password": f"guess{n}"}).status_code for n in range(8)]
    assert codes == [403] * 6 + [429] * 2
    assert served.column("SELECT kind FROM audit").count("wrong password") == 6
    assert b"guess" not in (served.study.folder / "study.sqlite-wal").read_bytes()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "PROLIFIC_PID=a",
        "PROLIFIC_PID=a&STUDY_ID=study1&SESSION_ID=",
        "PROLIFIC_PID=a&STUDY_ID=other&SESSION_ID=s",
        "PROLIFIC_PID=%3Cscript%3E&STUDY_ID=study1&SESSION_ID=s",
        f"PROLIFIC_PID={'a' * 500}&STUDY_ID=study1&SESSION_ID=s",
    ],
)
def test_incomplete_and_foreign_entries_are_refused(served: Served, query: str) -> None:
    assert served.browser().ask("GET", f"/enter?{query}").status_code == 403


# -- blinding ---------------------------------------------------------------------------------------------------------


def test_no_byte_that_reaches_a_browser_tells_group_editor_arm_or_prompt_id(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    data, _ = browser.data()
    for item in data["items"]:
        for picture in item["pictures"]:
            assert browser.ask("GET", f"/img/{picture}").headers["content-type"] == "image/jpeg"
    browser.hand_in()
    for path in ("/study", "/finish", "/withdraw", "/static/rating.js", "/static/task.js", "/static/study.css"):
        browser.ask("GET", path)
    everything = b"\n".join(browser.seen).lower()
    assert len(everything) > 50_000
    for word in (*SECRET_WORDS, "zyxedit", "zyxsha", served.study.folder.name + "/"):
        assert word.lower().encode() not in everything, word
    drawn = {item.id for item in served.study.drawn.items}
    shown = json.dumps(data)
    assert not [name for name in drawn if f'"{name}"' in shown]


def test_pictures_cannot_be_told_apart_by_name_size_or_headers(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    answers = [
        browser.ask("GET", f"/img/{picture}") for item in browser.data()[0]["items"] for picture in item["pictures"]
    ]
    heads = {tuple((name, value) for name, value in answer.headers.items() if name != "date") for answer in answers}
    assert len(heads) == 1
    (head,) = heads
    assert dict(head)["cache-control"] == "no-store"
    assert not {"etag", "last-modified"} & {name for name, _ in head}
    assert len({len(answer.content) for answer in answers}) == 1
    for answer in answers:
        assert b"Exif" not in answer.content
        assert b"http://ns.adobe.com" not in answer.content


def test_the_database_behind_the_web_does_not_know_groups_editors_or_arms(served: Served) -> None:
    served.browser().take_part("pid1")
    served.study.database.close()
    raw = b"".join(path.read_bytes() for path in served.study.folder.glob("study.sqlite*"))
    assert not [word for word in SECRET_WORDS if word.encode() in raw]


# -- anything at all --------------------------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["epoch", "answers", "moments", "seq", "item", "side", "question", "value", "kind"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
    path=st.sampled_from([("PUT", "/api/answers"), ("POST", "/api/complete"), ("POST", "/api/training")]),
)
def test_nothing_sent_makes_the_server_stumble(fuzzed: Served, body: object, path: tuple[str, str]) -> None:
    browser = fuzzed.browser().enter("fuzz")
    if "rating.js" not in (page := browser.page()):
        browser.to_rating()
        page = browser.page()
    answer = browser.api(*path, body, page_data(page)[1])
    assert answer.status_code < 500
    assert answer.headers["content-type"] == "application/json"


@pytest.fixture
def fuzzed(serve: Callable[..., Served]) -> Served:
    return serve(extra="\n[limits]\nrequests_per_minute = 100000\nentries_per_minute = 100000\n")
