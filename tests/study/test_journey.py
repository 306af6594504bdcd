"""A participant's way through the study, what it leaves behind, and how somebody who left comes back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stillme.core import rubric
from stillme.study import config, keys
from stillme.study.app import build
from stillme.study.assignment import expire
from stillme.study.entry import invite, withdraw
from stillme.study.submissions import apply_status
from tests.study.conftest import Browser, Served
from tests.study.studies import change


def test_the_address_loses_the_participants_id_at_once(served: Served) -> None:
    browser = served.browser().enter("secretpid")
    browser.to_rating()
    assert not [seen for seen in browser.seen if b"secretpid" in seen]
    raw = (served.study.folder / "study.sqlite").read_bytes() + (served.study.folder / "study.sqlite-wal").read_bytes()
    assert b"secretpid" not in raw


def test_consent_is_kept_with_the_hash_of_its_text(served: Served) -> None:
    begun = time.time()
    served.browser().enter().to_training()
    with served.study.database.reading() as connection:
        row = connection.row("SELECT * FROM consent")
    assert row["decision"] == "agreed"
    assert row["text_hash"] == hashlib.sha256(served.study.config.consent_shown.encode()).hexdigest()
    assert begun - 1 <= row["at"] <= time.time() + 1


@pytest.mark.parametrize(
    ("way", "words", "code", "places"),
    [
        ("declines", "did not agree", "NOCON1", {"open"}),
        ("has a phone", "does not fit", "DEVICE1", {"open", "void"}),
        ("finds no place", "All places are taken", "OTHER1", {"done"}),
    ],
)
def test_who_cannot_take_part_is_told_why_and_gets_the_code_for_it(
    serve: Callable[..., Served], way: str, words: str, code: str, places: set[str]
) -> None:
    served = serve(tasks=1, raters=1, checks=False)
    if way == "finds no place":
        served.browser().take_part("pid1")
    browser = served.browser().enter("pid2")
    if way == "declines":
        browser.form("/study/consent", decision="decline", version="1")
    else:
        browser.agree()
    if way == "has a phone":
        browser.form("/study/device", width="390", storage="yes")
    assert words in browser.page()
    assert browser.ask("GET", "/finish").headers["location"].endswith(f"cc={code}")
    assert set(served.column("SELECT state FROM slot")) == places


def test_training_explains_wrong_answers_and_lets_only_right_ones_pass(served: Served) -> None:
    browser = served.browser().enter().to_training()
    data, csrf = browser.data()
    assert {key for item in data["items"] for key in item} == {"prompt", "pictures", "sources", "questions"}
    wrong = [[[5, 3, 1, 1, 3] for _ in item["pictures"][1:]] for item in data["items"]]
    said = browser.api("POST", "/api/training", {"answers": wrong}, csrf).json()
    assert not said["finished"]
    assert "here we would answer 1 (No change" in said["feedback"][0][0][0]
    assert said["feedback"][0][0][1:] == ["", "", "", ""]
    assert "training.js" in browser.page()


def test_raters_read_the_rubric_word_for_word(served: Served) -> None:
    data, _ = served.browser().enter().to_rating().data()
    axes = rubric.load().axes
    for name, shown in data["questions"].items():
        assert shown == {"title": axes[name].title, "question": axes[name].question, "scale": list(axes[name].scale)}


def test_the_higher_number_wins_whatever_arrives_first(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    place = {"item": 0, "side": 1, "question": 2}
    for seq, value in [(5, 4), (3, 1), (5, 2), (4, 5)]:
        assert browser.save([{**place, "seq": seq, "value": value}]).status_code == 200
    data, _ = browser.data()
    assert data["answers"] == [[0, 1, 2, 4]]
    browser.save([{**place, "seq": 6, "value": None}])
    browser.save([{**place, "seq": 5, "value": 3}])
    data, _ = browser.data()
    assert data["answers"] == [[0, 1, 2, None]]


def test_completion_names_what_is_missing_and_ends_the_answers(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    data, csrf = browser.data()
    answers = browser.answers()
    total = max(answer["item"] for answer in answers) + 1
    assert browser.complete().json() == {"missing": list(range(total))}
    browser.save([answer for answer in answers if answer["item"] != 2])
    assert browser.complete().json() == {"missing": [2]}
    browser.save([answer for answer in answers if answer["item"] == 2][:-1])
    assert browser.complete().json() == {"missing": [2]}
    assert "done" not in served.column("SELECT state FROM slot")
    browser.hand_in()
    late = {"epoch": data["epoch"], "answers": [{**answers[0], "seq": 10_000, "value": 5}]}
    assert browser.api("PUT", "/api/answers", late, csrf).status_code == 409


def test_a_lapsed_tab_notices_and_whose_place_was_given_away_is_told(serve: Callable[..., Served]) -> None:
    served = serve(tasks=1, raters=1, checks=False)
    browser = served.browser().enter().to_rating()

    def lapse() -> tuple[int, Any]:
        """The place is free again; what the page that is still open may save."""
        data, csrf = browser.data()
        with served.study.database.writing() as connection:
            assert expire(connection, time.time() + 1e6) == 1
        return data["epoch"], lambda: browser.api("PUT", "/api/answers", {"epoch": data["epoch"], "answers": []}, csrf)

    browser.save(browser.answers()[:4])
    epoch, save = lapse()
    back = browser.data()[0]
    assert (back["epoch"], len(back["answers"])) == (epoch + 1, 4), "coming back takes it again"
    stale = save()
    assert stale.status_code == 409
    assert "reload" in stale.json()["error"]
    _, save = lapse()
    served.browser().take_part("pid2")
    assert "went to another participant" in browser.page()
    assert save().status_code == 409


def test_an_invitation_link_brings_one_person_back_to_one_task(serve: Callable[..., Served]) -> None:
    served = serve(prolific=False)
    (code,) = invite(served.study, 1)
    browser = served.browser()
    assert browser.ask("GET", f"/i/{code}").status_code == 303
    browser.to_rating().save(browser.answers())
    again = served.browser()
    again.ask("GET", f"/i/{code}")
    assert len(again.data()[0]["answers"]) == len(again.answers())
    again.complete()
    assert "close this window" in again.ask("GET", "/finish").text
    assert served.browser().ask("GET", "/i/guess").status_code == 403
    assert served.browser().ask("GET", "/enter?PROLIFIC_PID=a&STUDY_ID=b&SESSION_ID=c").status_code == 403


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_only_failing_every_attention_check_changes_the_code_and_only_if_asked(
    serve: Callable[..., Served], wrong: int
) -> None:
    for asked in (False, True):
        served = serve(tasks=1, raters=1)
        if asked:
            change(served.study.folder, "send_failed_code = false", "send_failed_code = true")
            study = replace(served.study, config=config.load(served.study.folder))
            served = Served(study, build(study), served.password)
        browser = served.browser().enter().to_rating()
        data, _ = browser.data()
        checks = [n for n, item in enumerate(data["items"]) if "attention check" in item["prompt"]]
        browser.hand_in([{**a, "value": 5} if a["item"] in checks[:wrong] else a for a in browser.answers()])
        code = browser.ask("GET", "/finish").headers["location"].partition("cc=")[2]
        assert code == ("ATTN1" if asked and wrong == 2 else "DONE1")


def test_withdrawing_deletes_everything_and_frees_the_place(served: Served) -> None:
    browser = served.browser().enter("goner").to_rating()
    browser.save(browser.answers()[:20], moments=[{"item": 0, "kind": "active", "amount": 12.0}])
    browser.save([], comments=[{"seq": 900, "item": 1, "text": "Odd."}])
    secrets = served.column(
        "SELECT id FROM participant UNION ALL SELECT ext_hmac FROM participant UNION ALL SELECT pid FROM identity "
        "UNION ALL SELECT id FROM slot WHERE participant IS NOT NULL"
    )
    assert "have been deleted" in browser.form("/withdraw", page="/withdraw").text
    assert browser.ask("GET", "/study").status_code == 401
    everything = ("answer", "event", "presentation", "comment", "consent", "device", "session", "arrival", "identity")
    for table in (*everything, "participant"):
        assert served.column(f"SELECT 1 FROM {table}") == [], table
    assert served.column("SELECT withdrawn FROM study") == [1]
    assert set(served.column("SELECT state FROM slot")) == {"open"}
    served.study.database.close()
    left = b"".join(path.read_bytes() for path in served.study.folder.glob("study.sqlite*"))
    assert len(secrets) == 4
    for secret in secrets:
        assert (secret if isinstance(secret, bytes) else secret.encode()) not in left


def test_whoever_withdrew_can_begin_anew(served: Served) -> None:
    browser = served.browser().enter("pid1").to_rating()
    withdraw(served.study, *served.column("SELECT id FROM participant"))
    assert "I agree to take part" in browser.enter("pid1").page()


def test_a_full_disk_acknowledges_nothing_that_it_does_not_hold(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    answers = browser.answers()
    disk = served.study.database.writer
    kept, refused = [], 0
    for number, answer in enumerate(answers):
        if number == 5:
            disk.execute(f"PRAGMA max_page_count = {disk.value('PRAGMA page_count')}")
        # Moments fill pages quickly.
        said = browser.save([answer], moments=[{"item": 0, "kind": "shown"}] * 200)
        if said.status_code == 200:
            kept.append(answer)
        else:
            assert said.status_code == 503
            refused += 1
    assert refused > 0
    disk.execute("PRAGMA max_page_count = 1000000000")
    data, _ = browser.data()
    assert sorted(data["answers"]) == sorted([a["item"], a["side"], a["question"], a["value"]] for a in kept)
    browser.hand_in(answers)


def arrive(browser: Browser, pid: str, session: str) -> int:
    return browser.ask("GET", f"/enter?PROLIFIC_PID={pid}&STUDY_ID=study1&SESSION_ID={session}").status_code


def apply(served: Served, pid: str, status: str) -> str:
    with served.study.database.writing() as connection:
        return apply_status(served.study, connection, pid, status)


def test_a_known_id_alone_resumes_nobodys_session(served: Served) -> None:
    owner = served.browser()
    assert arrive(owner, "pid1", "s1") == 303
    owner.to_rating()
    owner.save(owner.answers()[:7])
    thief = served.browser()
    assert arrive(thief, "pid1", "guess") == 403
    assert thief.ask("GET", "/study").status_code == 401
    # Also not after payment, when the identity is purged.
    apply(served, "pid1", "APPROVED")
    assert arrive(served.browser(), "pid1", "guess") == 403
    # The link itself works on another device, and the owner's own browser with a newer link.
    elsewhere = served.browser()
    assert arrive(elsewhere, "pid1", "s1") == 303
    assert arrive(owner, "pid1", "s2") == 303
    assert elsewhere.data()[0] == owner.data()[0]
    assert (len(owner.data()[0]["answers"]), owner.data()[0]["seq"]) == (7, 7)


@pytest.mark.parametrize(("status", "title"), [("RETURNED", "You returned"), ("TIMED-OUT", "Your time ran out")])
def test_whoever_left_reads_why_and_may_begin_again_with_a_new_submission(
    served: Served, status: str, title: str
) -> None:
    rater = served.browser()
    arrive(rater, "pid1", "s1")
    rater.to_rating()
    rater.save(rater.answers()[:3])
    assert apply(served, "pid1", status) == "places freed"
    page = rater.page()
    assert title in page
    assert "for 60 minutes" not in page
    assert "begin again" in page
    # The old link still tells; a new one, from any browser, begins with consent.
    assert arrive(rater, "pid1", "s1") == 303
    assert title in rater.page()
    again = served.browser()
    assert arrive(again, "pid1", "s2") == 303
    again.to_rating()
    assert again.data()[0]["answers"] == []
    again.hand_in()
    assert rater.ask("GET", "/study").status_code == 401
    states = served.column("SELECT state FROM slot WHERE participant IS NOT NULL ORDER BY state")
    assert states == ["done", "void"]


def test_whoever_was_rejected_or_finished_does_not_begin_again(served: Served) -> None:
    rater = served.browser()
    arrive(rater, "pid1", "s1")
    rater.to_rating()
    rater.hand_in()
    assert arrive(served.browser(), "pid1", "s2") == 403
    assert apply(served, "pid1", "REJECTED") == "excluded, places freed"
    assert arrive(served.browser(), "pid1", "s2") == 403


def test_a_new_password_ends_the_admins_sessions(served: Served) -> None:
    admin = served.admin()
    assert admin.ask("GET", "/admin/log").status_code == 200
    keys.change_password(served.study.folder)
    assert admin.ask("GET", "/admin/log").status_code == 401


@pytest.mark.parametrize("width", ["²", "9" * 5000, "-5", "1e9", "１２００"])
def test_odd_numbers_and_odd_tokens_are_answered_with_400(served: Served, width: str) -> None:
    rater = served.browser()
    arrive(rater, "pid1", "s1")
    rater.agree()
    assert rater.form("/study/device", width=width, storage="yes").status_code == 400
    odd = {"csrf": rater.csrf()[:-1] + "ü", "width": "1200", "storage": "yes"}
    assert rater.ask("POST", "/study/device", data=odd).status_code == 400
