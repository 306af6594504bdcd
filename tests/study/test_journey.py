"""A participant's way through the study, and what it leaves behind."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from stillme.core import rubric
from stillme.study.assignment import expire
from stillme.study.entry import invite, withdraw
from tests.study.conftest import Served


def test_from_the_first_page_to_the_completion_code(served: Served) -> None:
    browser = served.browser().enter()
    assert "I agree to take part" in browser.page()
    browser.to_rating()
    assert browser.save(browser.answers()).status_code == 200
    assert browser.complete().json() == {"missing": []}
    assert "Return to Prolific" in browser.page()
    left = browser.ask("GET", "/finish")
    assert left.headers["location"] == "https://app.prolific.com/submissions/complete?cc=DONE1"


def test_the_address_loses_the_participants_id_at_once(served: Served) -> None:
    browser = served.browser().enter("secretpid")
    browser.to_rating()
    assert not [seen for seen in browser.seen if b"secretpid" in seen]
    raw = (served.study.folder / "study.sqlite").read_bytes() + (served.study.folder / "study.sqlite-wal").read_bytes()
    assert b"secretpid" not in raw


def test_reloading_and_coming_back_lead_to_the_same_place(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    answers = browser.answers()
    browser.save(answers[:7])
    first, _ = browser.data()
    elsewhere = served.browser().enter()
    second, _ = elsewhere.data()
    assert first == second
    assert len(second["answers"]) == 7
    assert second["seq"] == 7


def test_consent_is_kept_with_the_hash_of_its_text(served: Served) -> None:
    begun = time.time()
    served.browser().enter().to_training()
    with served.study.database.reading() as connection:
        row = connection.row("SELECT * FROM consent")
    assert row["decision"] == "agreed"
    assert row["text_hash"] == hashlib.sha256(served.study.config.consent_shown.encode()).hexdigest()
    assert begun - 1 <= row["at"] <= time.time() + 1


def test_who_declines_is_let_go_without_a_place(served: Served) -> None:
    browser = served.browser().enter()
    browser.form("/study/consent", decision="decline", version="1")
    assert "did not agree" in browser.page()
    assert browser.ask("GET", "/finish").headers["location"].endswith("cc=NOCON1")
    assert set(served.column("SELECT state FROM slot")) == {"open"}
    assert browser.ask("GET", "/study").status_code == 200


def test_a_phone_is_turned_away_and_its_place_is_free_again(served: Served) -> None:
    browser = served.browser().enter()
    browser.agree()
    browser.form("/study/device", width="390", storage="yes")
    assert "does not fit" in browser.page()
    assert browser.ask("GET", "/finish").headers["location"].endswith("cc=DEVICE1")
    assert set(served.column("SELECT state FROM slot")) == {"open", "void"}


def test_whoever_finds_no_place_is_told_and_paid(serve: Callable[..., Served]) -> None:
    served = serve(tasks=1, raters=1, checks=False)
    served.browser().take_part("pid1")
    late = served.browser().enter("pid2")
    late.agree()
    assert "All places are taken" in late.page()
    assert late.ask("GET", "/finish").headers["location"].endswith("cc=OTHER1")


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


def test_completion_names_what_is_missing(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    answers = browser.answers()
    total = max(answer["item"] for answer in answers) + 1
    assert browser.complete().json() == {"missing": list(range(total))}
    browser.save([answer for answer in answers if answer["item"] != 2])
    assert browser.complete().json() == {"missing": [2]}
    browser.save([answer for answer in answers if answer["item"] == 2][:-1])
    assert browser.complete().json() == {"missing": [2]}
    assert "done" not in served.column("SELECT state FROM slot")


def test_answers_after_completion_change_nothing(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    data, csrf = browser.data()
    answers = browser.answers()
    browser.save(answers)
    browser.complete()
    late = {"epoch": data["epoch"], "answers": [{**answers[0], "seq": 10_000, "value": 5}]}
    assert browser.api("PUT", "/api/answers", late, csrf).status_code == 409


def test_two_tabs_share_one_task_and_a_lapsed_one_notices(served: Served) -> None:
    browser = served.browser().enter().to_rating()
    data, csrf = browser.data()
    with served.study.database.writing() as connection:
        assert expire(connection, time.time() + 1e6) == 1
    renewed, _ = browser.data()  # coming back takes it again
    assert renewed["epoch"] == data["epoch"] + 1
    stale = browser.api("PUT", "/api/answers", {"epoch": data["epoch"], "answers": []}, csrf)
    assert stale.status_code == 409
    assert "reload" in stale.json()["error"]


def test_whose_place_was_given_away_is_told(serve: Callable[..., Served]) -> None:
    served = serve(tasks=1, raters=1, checks=False)
    browser = served.browser().enter().to_rating()
    data, csrf = browser.data()
    with served.study.database.writing() as connection:
        expire(connection, time.time() + 1e6)
    served.browser().take_part("pid2")
    assert "went to another participant" in browser.page()
    save = {"epoch": data["epoch"], "answers": []}
    assert browser.api("PUT", "/api/answers", save, csrf).status_code == 409


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
            file = served.study.folder / "study.toml"
            file.write_text(file.read_text().replace("send_failed_code = false", "send_failed_code = true"))
            served = Served(*_reopened(served))
        browser = served.browser().enter().to_rating()
        data, _ = browser.data()
        checks = [n for n, item in enumerate(data["items"]) if "attention check" in item["prompt"]]
        answers = [{**a, "value": 5} if a["item"] in checks[:wrong] else a for a in browser.answers()]
        browser.save(answers)
        browser.complete()
        code = browser.ask("GET", "/finish").headers["location"].partition("cc=")[2]
        assert code == ("ATTN1" if asked and wrong == 2 else "DONE1")


def _reopened(served: Served):
    from stillme.study import config
    from stillme.study.app import build

    study = replace(served.study, config=config.load(served.study.folder))
    return study, build(study), served.password


# -- withdrawing ------------------------------------------------------------------------------------------------------


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
    assert browser.save(answers).status_code == 200
    assert browser.complete().json() == {"missing": []}
