"""What participants were promised: what consent names, until when they can withdraw, and what deletion means."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stillme.core.errors import StillmeError
from stillme.runs.store import Store
from stillme.study import config
from stillme.study.app import serve as serve_study
from stillme.study.closing import close_study
from stillme.study.config import InvalidStudy
from stillme.study.opening import open_study
from stillme.study.progress import ids_held, overview_of
from stillme.study.submissions import apply_statuses, purge
from tests.command_lines import ran
from tests.study.conftest import Browser, Served, serving_again
from tests.study.studies import change, write_study


def withdraw(browser: Browser) -> str:
    page = browser.ask("GET", "/withdraw").text
    if 'name="csrf"' not in page:
        return page
    return browser.form("/withdraw", page="/withdraw").text


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    with Store.writing(folder):
        return folder


# -- consent ----------------------------------------------------------------------------------------------------------


def test_consent_names_time_pay_retention_withdrawal_and_contact(served: Served) -> None:
    page = served.browser().enter().page()
    names = ("Time", "Pay", "Kept", "Withdrawing", "Contact")
    assert all(f"<dt>{name}</dt>" in page for name in names)
    assert "ask@study.example" in page
    assert "USD for the whole task" in page
    assert "until you have been paid" in page
    assert "added to the results, they can no longer be taken out" in page
    assert set(served.study.config.consent_facts) == set(names)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('contact = "ask@study.example"', 'contact = " "', "contact"),
        ("retention = ", "retention = ''  # ", "retention"),
    ],
)
def test_a_study_that_leaves_out_a_promise_is_not_served(tmp_path: Path, old: str, new: str, place: str) -> None:
    write_study(tmp_path)
    change(tmp_path, old, new)
    with pytest.raises(InvalidStudy, match=place):
        serve_study(tmp_path, lambda _: None)


def test_the_word_withdraw_in_a_text_is_no_promise(tmp_path: Path) -> None:
    write_study(tmp_path)
    file = tmp_path / "study.toml"
    text = file.read_text()
    start, end = text.index("consent = '''"), text.index("guide = '''")
    file.write_text(
        text[:start] + "consent = '''Short text that the ethics board has approved word for word.'''\n" + text[end:]
    )
    assert config.load(tmp_path).consent_facts["Withdrawing"].startswith("Until the study is closed.")


# -- closing ----------------------------------------------------------------------------------------------------------


def test_closing_ends_open_places_with_thanks_and_a_code(served: Served, run: Path) -> None:
    served.browser().take_part("finished")
    rating = served.browser().enter("rating").to_rating()
    data, csrf = rating.data()
    answers = rating.answers()
    assert rating.save(answers[:5]).status_code == 200
    done = close_study(served.study, run, flagged="include")
    assert (done.raters, done.ended) == (1, 1)
    late = rating.api("PUT", "/api/answers", {"epoch": data["epoch"], "answers": answers[5:6]}, csrf)
    assert late.status_code == 409
    assert "has been closed" in late.json()["error"]
    page = rating.page()
    assert "The study has ended" in page
    assert "Thank you" in page
    assert rating.ask("GET", "/finish").headers["location"].endswith("cc=OTHER1")
    newcomer = served.browser().enter("late").agree()
    assert "The study has ended" in newcomer.page()
    again = close_study(served.study, run, flagged="include")
    assert (again.added, again.ended) == (0, 0)


def test_withdrawal_works_until_the_answers_are_in_the_run_and_says_so(served: Served, run: Path) -> None:
    finished = served.browser().take_part("finished")
    rating = served.browser().enter("rating").to_rating()
    rating.save(rating.answers()[:5])
    close_study(served.study, run, flagged="include")
    # Nothing of the unfinished task went into the run.
    assert "have been deleted" in withdraw(rating)
    page = withdraw(finished)
    assert "It is too late to withdraw" in page
    assert f"{datetime.now(UTC):%-d %B %Y}, under a pseudonym" in page
    assert served.column("SELECT count(*) FROM participant") == [1]


def test_whose_answers_are_in_the_run_is_neither_excluded_nor_released(served: Served, run: Path) -> None:
    served.browser().take_part("finished")
    close_study(served.study, run, flagged="include")
    admin = served.admin()
    (rater,) = overview_of(served.study).raters
    for path in ("/admin/exclude", "/admin/release"):
        answer = admin.decide(path, rater.rater, "returned", sure="yes")
        assert answer.status_code == 409
        assert "stay there" in answer.text
    assert overview_of(served.study).raters[0].counts


def test_a_promised_day_keeps_answers_out_of_the_run(serve: Callable[..., Served], run: Path) -> None:
    today = datetime.now(UTC).date()
    served = serve(consent=f"withdraw_until = {today}")
    assert f"Until the end of {today:%-d %B %Y}." in served.browser().enter("x").page()
    browser = served.browser().take_part("finished")
    done = close_study(served.study, run, flagged="include")
    assert (done.added, done.raters, done.waits_until) == (0, 1, str(today))
    assert not served.study.is_open
    with pytest.raises(StillmeError, match="Participants may withdraw until"):
        purge(served.study)
    assert "have been deleted" in withdraw(browser)
    past = serve(consent=f"withdraw_until = {today - timedelta(days=1)}")
    past.browser().take_part("finished")
    assert close_study(past.study, run, flagged="include").waits_until == ""


def test_a_closing_that_fails_takes_nobodys_right(served: Served, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = served.browser().take_part("finished")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", lambda *_: (_ for _ in ()).throw(StillmeError("disk full")))
        with pytest.raises(StillmeError, match="disk full"):
            close_study(served.study, run, flagged="include")
    assert "have been deleted" in withdraw(browser)


def test_a_second_click_gives_no_error_page(served: Served) -> None:
    browser = served.browser().enter()
    csrf = browser.csrf()
    for path, fields in (
        ("/study/consent", {"decision": "agree", "version": "1"}),
        ("/study/device", {"width": "1280", "storage": "yes"}),
        ("/study/guide", {}),
    ):
        for _ in range(2):
            answer = browser.ask("POST", path, data={"csrf": csrf, **fields})
            assert (answer.status_code, answer.headers["location"]) == (303, "/study"), path
    cookie = "; ".join(f"{name}={value}" for name, value in browser.client.cookies.items())
    for _ in range(2):
        answer = browser.ask("POST", "/withdraw", data={"csrf": csrf}, headers={"Cookie": cookie})
        assert answer.status_code == 200
        assert "You have withdrawn" in answer.text


# -- deletion ---------------------------------------------------------------------------------------------------------


@contextmanager
def another_reader(folder: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who looks into the database meanwhile, such as a backup."""
    with closing(sqlite3.connect(folder / "study.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM participant").fetchone()
        yield reader


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("study.sqlite*"))


def test_withdrawal_is_pending_while_another_program_reads_and_is_finished_after(served: Served) -> None:
    folder = served.study.folder
    browser = served.browser().enter("goner").to_rating()
    browser.save(browser.answers()[:20])
    (gone,), (hashed,) = served.column("SELECT id FROM participant"), served.column("SELECT ext_hmac FROM participant")
    with another_reader(folder):
        assert "will be finished within minutes" in withdraw(browser)
        assert gone.encode() in bytes_of(folder), "otherwise the test proves nothing"
        assert "still to be finished" in overview_of(served.study).as_text()
        # Others work on meanwhile.
        served.browser().enter("another").to_rating()
    for _ in range(100):
        if not overview_of(served.study).progress.deletion_pending:
            break
        time.sleep(0.1)
    assert not overview_of(served.study).progress.deletion_pending
    left = bytes_of(folder)
    assert gone.encode() not in left
    assert hashed.encode() not in left


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    from stillme.study.entry import Arrival, enter
    from stillme.study.entry import withdraw as withdraw_participant

    write_study(tmp_path)
    with ExitStack() as until_closed, open_study(tmp_path) as study:
        with study.database.writing() as connection:
            enter(study, connection, Arrival(origin="prolific", name="goner", submission="s"))
            gone, hashed = connection.execute("SELECT id, ext_hmac FROM participant").fetchone()
        until_closed.enter_context(another_reader(tmp_path))
        assert not withdraw_participant(study, gone)
        # As a crash would leave it: no thread goes on, and the log is not checkpointed when the study is closed.
        study.database.is_closed = True
        assert hashed.encode() in bytes_of(tmp_path)
        time.sleep(0.7)
    with open_study(tmp_path) as study:
        assert not overview_of(study).progress.deletion_pending
    assert hashed.encode() not in bytes_of(tmp_path)


# -- ids --------------------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> bytes:
    """Everything on disk of a study but its pictures: database, write-ahead log, codes, log."""
    return b"\n".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_purge_leaves_no_id_no_hash_and_no_link_in_database_and_log(served: Served, run: Path, tmp_path: Path) -> None:
    study, names = served.study, ("ANNAprolificid0001", "BENNOprolificid0002")
    for name in names:
        served.browser().take_part(name)
    export = tmp_path / "export.csv"
    rows = "".join(f"{name},s{name},AWAITING REVIEW\n" for name in names)
    export.write_text(f"Participant id,Submission id,Status\n{rows}")
    apply_statuses(study, export)
    hashes = served.column("SELECT ext_hmac FROM participant UNION SELECT link_hmac FROM arrival")
    sealed = served.column("SELECT pid FROM identity")
    assert len(hashes) == 4
    before = files_of(study.folder)
    assert all(text.encode() in before for text in (*names, *hashes)), "else the search below would prove nothing"
    assert "2 ids and keyed hashes of 2 participants are held, the oldest since" in overview_of(study).as_text()
    with pytest.raises(StillmeError, match="Close it first"):
        purge(study)
    close_study(study, run, flagged="include")
    assert "Deleted 2 ids and the keyed hashes of 2 participants" in ran("study", "purge", study.folder).output
    after = files_of(study.folder)
    for trace in (*names, *hashes):
        assert trace.encode() not in after
    assert not any(pid in after for pid in sealed)
    assert not ids_held(study)
    # What they answered stays, and the same id is a stranger now.
    assert overview_of(study).progress.counting == 2
    assert apply_statuses(study, export).done == {"unknown here": 2}


def test_own_ids_in_any_letter_case_leave_comments_and_a_nul_is_refused(served: Served) -> None:
    browser = served.browser().enter("AbC123xyz").to_rating()
    first = {"seq": 1, "item": 0, "text": "I am abc123XYZ, session SABC123xyz"}
    assert browser.save([], comments=[first]).status_code == 200
    assert browser.save([], comments=[{"seq": 2, "item": 1, "text": "a\x00b"}]).status_code == 422
    browser.hand_in()
    assert browser.form("/study/comment", comment="x\x00y").status_code == 400
    texts = served.column("SELECT text FROM comment")
    assert texts == ["I am [id], session [id]"] or texts == ["I am [id], session S[id]"]


def test_what_holds_answers_items_and_codes_is_readable_by_its_owner_only(two_editors: Path, tmp_path: Path) -> None:
    ran("study", "new", two_editors, "--items", 2, "--size", 64, "--out", tmp_path / "s")
    with open_study(tmp_path / "s"):
        pass
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "s").iterdir() if path.is_file()}
    assert set(modes) == {"items.json", "secrets.json", "study.toml", "study.sqlite"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(("checks", "told"), [(True, True), (False, False)])
def test_consent_speaks_of_checks_only_where_the_study_has_some(
    serve: Callable[..., Served], checks: bool, told: bool
) -> None:
    page = serve(checks=checks).browser().enter().page()
    assert ("check that you are looking" in page, "shown twice" in page) == (told, told)
    assert "{checks}" not in page


def test_full_is_asked_again_when_places_are_added(serve: Callable[..., Served]) -> None:
    served = serve(tasks=1, per_task=1, raters=1, checks=False)
    served.browser().enter("one").agree()
    late = served.browser().enter("two").agree()
    assert "All places are taken" in late.page()
    change(served.study.folder, "raters = 1", "raters = 2")
    with serving_again(served.study.folder) as renewed:
        again = renewed.browser()
        again.client.cookies = late.client.cookies
        assert "Is your screen ready?" in again.page()
