from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from stillme.api.pipeline import run_stages
from stillme.study.app import build
from stillme.study.entry import invite
from stillme.study.opening import Study, open_study
from tests.records import small_audit
from tests.study.annotators import READY, csrf_in, page_data, seen_whole, shown_version
from tests.study.studies import RIGHT, write_study

HOME = "http://127.0.0.1:8470"


@dataclass
class Browser:
    """A participant's browser without a screen."""

    client: TestClient
    seen: list[bytes] = field(default_factory=list)
    """Every byte of every answer: status line aside, headers and body."""

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, path, follow_redirects=False, **more)
        head = b"\n".join(name.encode() + b": " + value.encode() for name, value in answer.headers.items())
        self.seen.append(head + b"\n\n" + answer.content)
        return answer

    def enter(self, name: str = "pid1") -> Browser:
        answer = self.ask("GET", f"/enter?PROLIFIC_PID={name}&STUDY_ID=study1&SESSION_ID=s{name}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/study")
        return self

    def page(self) -> str:
        return self.ask("GET", "/study").text

    def csrf(self, page: str = "/study") -> str:
        """The token of a page's forms."""
        return csrf_in(self.ask("GET", page).text)

    def form(self, path: str, *, page: str = "/study", **fields: str) -> Any:
        return self.ask("POST", path, data={"csrf": self.csrf(page), **fields})

    def decide(self, path: str, rater: str, reason: str, **fields: str) -> Any:
        """What a researcher decides about a rater."""
        return self.form(path, page="/admin", rater=rater, reason=reason, **fields)

    def api(self, method: str, path: str, content: Any, csrf: str) -> Any:
        return self.ask(method, path, json=content, headers={"X-CSRF": csrf})

    def agree(self) -> Browser:
        self.form("/study/consent", decision="agree", version=shown_version(self.page()))
        return self

    def to_training(self) -> Browser:
        self.agree()
        self.form("/study/device", **READY)
        self.form("/study/guide")
        return self

    def to_rating(self, practice: list[Any] | None = None) -> Browser:
        self.to_training()
        data, csrf = page_data(self.page())
        answers = practice or [[list(RIGHT) for _ in item["pictures"][1:]] for item in data["items"]]
        said = self.api("POST", "/api/training", {"answers": answers}, csrf)
        assert said.json()["finished"], said.text
        return self

    def data(self) -> tuple[dict[str, Any], str]:
        return page_data(self.page())

    def answers(self, value: Callable[[int, int, int], int] = lambda i, s, q: 3) -> list[dict[str, int]]:
        """Everything that is asked, answered."""
        data, _ = self.data()
        made: list[dict[str, int]] = []
        for item, shown in enumerate(data["items"]):
            for side in range(len(shown["pictures"]) - 1):
                for question in range(len(shown["questions"])):
                    chosen = 2 if "attention check" in shown["prompt"] else value(item, side, question)
                    place = {"item": item, "side": side, "question": question}
                    made.append({"seq": len(made) + 1, **place, "value": chosen})
        return made

    def save(self, answers: list[dict[str, Any]], **more: Any) -> Any:
        data, csrf = self.data()
        answer = None
        seen = [seen_whole(answer, data) for answer in answers]
        for start in range(0, max(1, len(seen)), 100):
            body = {"epoch": data["epoch"], "answers": seen[start : start + 100], **more}
            answer = self.api("PUT", "/api/answers", body, csrf)
            if answer.status_code != 200:
                break
        return answer

    def complete(self) -> Any:
        data, csrf = self.data()
        return self.api("POST", "/api/complete", {"epoch": data["epoch"]}, csrf)

    def hand_in(self, answers: list[dict[str, Any]] | None = None, **more: Any) -> Browser:
        """Save these answers, or some to everything that is asked, and complete the task."""
        saved = self.save(self.answers() if answers is None else answers, **more)
        assert saved.status_code == 200, saved.text
        assert self.complete().json() == {"missing": []}
        return self

    def take_part(self, name: str, value: Callable[[int, int, int], int] = lambda i, s, q: 3) -> Browser:
        self.enter(name).to_rating()
        return self.hand_in(self.answers(value))

    def guess(self, name: str, **more: Any) -> Browser:
        """Say 5 to everything, attention checks too."""
        self.enter(name).to_rating()
        return self.hand_in([{**answer, "value": 5} for answer in self.answers()], **more)


@dataclass
class Served:
    """A study and its app."""

    study: Study
    app: FastAPI
    password: str

    def browser(self) -> Browser:
        return Browser(TestClient(self.app, base_url=HOME, headers={"Origin": HOME}))

    def invited(self) -> Browser:
        """The browser of somebody who came by a personal link."""
        (code,) = invite(self.study, 1)
        browser = self.browser()
        assert browser.ask("GET", f"/i/{code}").status_code == 303
        return browser

    def column(self, sql: str, *values: object) -> list[Any]:
        """The first column of what the study's database answers."""
        with self.study.database.reading() as connection:
            return connection.column(sql, values)

    def change(self, sql: str, *values: object) -> None:
        with self.study.database.writing() as connection:
            connection.execute(sql, values)

    def admin(self) -> Browser:
        browser = self.browser()
        assert browser.ask("POST", "/admin/login", data={"password": self.password}).status_code == 303
        return browser


@contextmanager
def serving_again(folder: Path) -> Iterator[Served]:
    """As `stillme study serve` would after a restart."""
    with open_study(folder, renew=True) as study:
        yield Served(study, build(study), "")


@pytest.fixture(scope="session")
def two_editors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: four portraits with faces, three prompts, two editors. Copy it before writing to it."""
    folder = tmp_path_factory.mktemp("two-editors")
    editors = [{"use": "noop"}, {"use": "planted", "name": "other"}]
    small_audit(folder, prompts=("O-01", "O-02", "V-05"), limit=4, editors=editors)
    run_stages(folder, ("edit", "judge"))
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Write a study with these options and serve it in this process."""
    opened = []

    def make(**options: Any) -> Served:
        folder = tmp_path / f"study{len(opened)}"
        password = write_study(folder, **options)
        context = open_study(folder)
        opened.append(context)
        study = context.__enter__()
        return Served(study, build(study), password)

    yield make
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()
