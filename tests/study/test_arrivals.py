"""Who may resume a participation, and how somebody who left comes back."""

from __future__ import annotations

import pytest

from stillme.study import keys
from stillme.study.submissions import apply_status
from tests.study.conftest import Browser, Served


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
