"""What participants were promised: what consent names, until when they can withdraw, and what deletion means."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from stillme.cli import cli
from stillme.errors import StillmeError
from stillme.store import Store
from stillme.study import config, shredding
from stillme.study import schema as t
from stillme.study.closing import close_study
from stillme.study.config import InvalidStudy
from stillme.study.opening import open_study
from stillme.study.overview import overview_of
from stillme.study.serving import ServeOptions, serve
from tests.study.conftest import Browser, Served
from tests.study.studies import write_study


def withdraw(browser: Browser) -> str:
    page = browser.ask("GET", "/withdraw").text
    if 'name="csrf"' not in page:
        return page
    return browser.ask("POST", "/withdraw", data={"csrf": page.split('name="csrf" value="')[1].split('"')[0]}).text


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
    file = tmp_path / "study.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(InvalidStudy, match=place):
        serve(tmp_path, ServeOptions(), lambda _: None)


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
    done = close_study(served.study, run)
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
    again = close_study(served.study, run)
    assert (again.added, again.ended) == (0, 0)


def test_withdrawal_works_until_the_answers_are_in_the_run_and_says_so(served: Served, run: Path) -> None:
    finished = served.browser().take_part("finished")
    rating = served.browser().enter("rating").to_rating()
    rating.save(rating.answers()[:5])
    close_study(served.study, run)
    # Nothing of the unfinished task went into the run.
    assert "have been deleted" in withdraw(rating)
    page = withdraw(finished)
    assert "It is too late to withdraw" in page
    assert f"{datetime.now(UTC):%-d %B %Y}, under a pseudonym" in page
    with served.study.database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(t.participant)).scalar_one() == 1


def test_whose_answers_are_in_the_run_is_neither_excluded_nor_released(served: Served, run: Path) -> None:
    served.browser().take_part("finished")
    close_study(served.study, run)
    admin = served.admin()
    csrf = admin.ask("GET", "/admin").text.split('name="csrf" value="')[1].split('"')[0]
    (rater,) = overview_of(served.study).raters
    form = {"csrf": csrf, "rater": rater.rater, "reason": "returned", "sure": "yes"}
    for path in ("/admin/exclude", "/admin/release"):
        answer = admin.ask("POST", path, data=form)
        assert answer.status_code == 409
        assert "stay there" in answer.text
    assert overview_of(served.study).raters[0].counts


def test_a_promised_day_keeps_answers_out_of_the_run(serve: Callable[..., Served], run: Path) -> None:
    today = datetime.now(UTC).date()
    served = serve(consent=f"withdraw_until = {today}")
    assert f"Until the end of {today:%-d %B %Y}." in served.browser().enter("x").page()
    browser = served.browser().take_part("finished")
    done = close_study(served.study, run)
    assert (done.added, done.raters, done.waits_until) == (0, 1, str(today))
    assert not served.study.is_open
    assert "have been deleted" in withdraw(browser)
    past = serve(consent=f"withdraw_until = {today - timedelta(days=1)}")
    past.browser().take_part("finished")
    assert close_study(past.study, run).waits_until == ""


def test_a_closing_that_fails_takes_nobodys_right(served: Served, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = served.browser().take_part("finished")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add_assessments", lambda *_: (_ for _ in ()).throw(StillmeError("disk full")))
        with pytest.raises(StillmeError, match="disk full"):
            close_study(served.study, run)
    assert "have been deleted" in withdraw(browser)


# -- double clicks ----------------------------------------------------------------------------------------------------


def test_a_second_click_gives_no_error_page(served: Served) -> None:
    browser = served.browser().enter()
    page = browser.page()
    csrf = page.split('name="csrf" value="')[1].split('"')[0]
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
    with served.study.database.reading() as connection:
        gone = connection.execute(sa.select(t.participant)).one()
    with another_reader(folder):
        assert "will be finished within minutes" in withdraw(browser)
        assert gone.id.encode() in bytes_of(folder), "otherwise the test proves nothing"
        assert "still to be finished" in overview_of(served.study).as_text()
        # Others work on meanwhile.
        served.browser().enter("another").to_rating()
    for _ in range(100):
        with served.study.database.reading() as connection:
            if not shredding.is_pending(connection, served.study.id):
                break
        time.sleep(0.1)
    assert not overview_of(served.study).progress.deletion_pending
    left = bytes_of(folder)
    assert gone.id.encode() not in left
    assert gone.ext_hmac.encode() not in left


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    from stillme.study.entry import Arrival, enter
    from stillme.study.withdrawal import withdraw as withdraw_participant

    write_study(tmp_path)
    with another_reader_later(tmp_path) as hold, open_study(tmp_path) as study:
        with study.database.writing() as connection:
            enter(study, connection, Arrival(origin="prolific", name="goner", submission="s"))
            gone = connection.execute(sa.select(t.participant)).one()
        hold()
        assert not withdraw_participant(study, gone.id)
        # As a crash would leave it: no thread goes on, and the log is not checkpointed when the study is closed.
        study.database.is_closed = True
        assert gone.ext_hmac.encode() in bytes_of(tmp_path)
        time.sleep(0.7)
    with open_study(tmp_path) as study, study.database.reading() as connection:
        assert not shredding.is_pending(connection, study.id)
    assert gone.ext_hmac.encode() not in bytes_of(tmp_path)


@contextmanager
def another_reader_later(folder: Path) -> Iterator[Callable[[], None]]:
    readers: list[sqlite3.Connection] = []

    def hold() -> None:
        reader = sqlite3.connect(folder / "study.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM participant").fetchone()
        readers.append(reader)

    yield hold
    for reader in readers:
        reader.close()


def test_the_command_says_what_closing_did(served: Served, run: Path) -> None:
    served.browser().take_part("finished")
    served.browser().enter("rating").to_rating()
    said = CliRunner().invoke(cli, ["study", "close", str(served.study.folder), "--run", str(run)])
    assert said.exit_code == 0, said.output
    assert "1 tasks were under way and have been ended" in said.output
