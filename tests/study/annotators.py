"""Simulated annotators over plain HTTP, a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from stillme.study.opening import open_study
from tests.processes import Started
from tests.study.studies import RIGHT, practised

Place = tuple[int, int, int]
"""Item, side, question."""


class Lost(Exception):
    """The server is gone, or said that it cannot now."""


@dataclass
class Annotator:
    """One participant from the first page to the completion code; keeps what the server acknowledged."""

    port: int
    name: str
    think: float = 0.0
    """Seconds between answers."""
    mischief: bool = False
    """Whether requests are doubled and old answers replayed."""
    acknowledged: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """By place: sequence number and value."""
    times: list[float] = field(default_factory=list)
    """Seconds of each acknowledged save."""
    practice: list[list[list[int]]] | None = None
    """The practice items' right answers, where nothing changed in them is not the right answer to all."""
    code: str = ""
    withdrawn: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    _cookie: str = ""
    _stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    # -- talking --------------------------------------------------------------------------------------------------

    async def once(
        self, method: str, path: str, body: bytes = b"", kind: str = "", csrf: str = ""
    ) -> tuple[int, str, bytes]:
        """One request on the kept-open connection; status, Location and body."""
        if self._stream is None:
            try:
                self._stream = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError as error:
                raise Lost from error
        reader, writer = self._stream
        host = f"127.0.0.1:{self.port}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"]
        lines += [f"Cookie: {self._cookie}"] if self._cookie else []
        lines += [f"X-CSRF: {csrf}"] if csrf else []
        lines += [f"Content-Type: {kind}"] if kind else []
        lines += [f"Content-Length: {len(body)}", "", ""]
        try:
            writer.write("\r\n".join(lines).encode() + body)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            headers = {name.lower(): value for name, value in headers.items()}
            answer = await reader.readexactly(int(headers.get(b"content-length", b"0")))
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            self._stream = None
            raise Lost from error
        if b"set-cookie" in headers:
            self._cookie = headers[b"set-cookie"].decode().partition(";")[0]
        return int(head.split()[1]), headers.get(b"location", b"").decode(), answer

    async def insist(self, *request: Any, **more: Any) -> tuple[int, str, bytes]:
        """Ask until there is an answer that is no server trouble."""
        for _ in range(600):
            try:
                status, location, body = await self.once(*request, **more)
                if status < 500 and status != 429:
                    return status, location, body
            except Lost:
                pass
            self.retries += 1
            await asyncio.sleep(0.1)
        raise AssertionError(f"no answer to {request[:2]}")

    async def page(self) -> str:
        status, _, body = await self.insist("GET", "/study")
        assert status == 200, (status, body[:200])
        return body.decode()

    async def form(self, path: str, page: str, *, answered: int = 303, **fields: str) -> bytes:
        body = urlencode({"csrf": csrf_in(page), **fields}).encode()
        status, _, said = await self.insist("POST", path, body, "application/x-www-form-urlencoded")
        assert status == answered, (path, status, said[:200])
        return said

    async def api(self, method: str, path: str, content: Any, csrf: str) -> tuple[int, Any]:
        status, _, body = await self.insist(method, path, json.dumps(content).encode(), "application/json", csrf)
        return status, json.loads(body)

    # -- the way through ------------------------------------------------------------------------------------------

    async def arrive(self) -> str:
        """Enter, agree, pass the checks and the training; returns the rating page, or the one that says it is full."""
        query = urlencode({"PROLIFIC_PID": self.name, "STUDY_ID": "study1", "SESSION_ID": f"s{self.name}"})
        status, location, _ = await self.insist("GET", f"/enter?{query}")
        assert (status, location) == (303, "/study")
        page = await self.page()
        if 'action="/study/consent"' in page:
            await self.form("/study/consent", page, decision="agree", version=shown_version(page))
            page = await self.page()
        if 'action="/study/device"' in page:
            await self.form("/study/device", page, **READY)
            page = await self.page()
        if 'action="/study/guide"' in page:
            await self.form("/study/guide", page)
            page = await self.page()
        if "training.js" in page:
            data, csrf = page_data(page)
            unchanged = [[list(RIGHT) for _ in item["pictures"][1:]] for item in data["items"]]
            answers = self.practice or unchanged
            status, said = await self.api("POST", "/api/training", {"answers": answers}, csrf)
            # 409: an earlier attempt was heard, and only its answer was lost. The page would reload.
            assert status in (200, 409), said
            page = await self.page()
        return page

    async def rate(self, page: str, only: int | None = None) -> None:
        """Answer everything, click by click, or the first items only."""
        data, csrf = page_data(page)
        seq = data["seq"]
        for item, shown in enumerate(data["items"][:only]):
            self.seen = {"pictures": len(shown["pictures"]), "decoded": data["picture"]["side"], "shown": 400}
            for side in range(len(shown["pictures"]) - 1):
                for question in range(len(shown["questions"])):
                    seq += 1
                    value = 2 if "attention check" in shown["prompt"] else 1 + secrets.randbelow(5)
                    await self._save(data["epoch"], csrf, (item, side, question), seq, value)
                    if self.think:
                        await asyncio.sleep(self.think)

    async def _save(self, epoch: int, csrf: str, place: Place, seq: int, value: int) -> None:
        item, side, question = place
        answer = {"seq": seq, "item": item, "side": side, "question": question, "value": value, "seen": self.seen}
        moment = {"item": item, "kind": "active", "amount": 2500.0}
        begun = time.perf_counter()
        status, said = await self.api(
            "PUT", "/api/answers", {"epoch": epoch, "answers": [answer], "moments": [moment]}, csrf
        )
        assert status == 200, (status, said)
        self.times.append(time.perf_counter() - begun)
        assert said["saved"] == [seq]
        self.acknowledged[place] = (seq, value)
        if self.mischief and seq % 7 == 0:
            old = {**answer, "seq": max(1, seq - 1), "value": 1 + value % 5}
            status, _ = await self.api("PUT", "/api/answers", {"epoch": epoch, "answers": [old]}, csrf)
            assert status == 200

    async def finish(self, page: str) -> None:
        """Complete, and take the code."""
        data, csrf = page_data(page)
        status, said = await self.api("POST", "/api/complete", {"epoch": data["epoch"]}, csrf)
        # A completion whose answer was lost is complete: the second attempt then finds nothing to complete.
        assert status == 409 or said == {"missing": []}, (status, said)
        status, location, _ = await self.insist("GET", "/finish")
        assert status == 303
        self.code = location.partition("cc=")[2]

    async def take_part(self) -> None:
        """The whole way."""
        page = await self.arrive()
        if "rating.js" in page:
            if self.mischief:
                again = Annotator(self.port, self.name)
                pages = await asyncio.gather(self.page(), again.arrive())
                assert page_data(pages[0])[0]["items"] == page_data(pages[1])[0]["items"]
                again.hang_up()
            await self.rate(page)
            await self.finish(page)
        self.hang_up()

    async def withdraw(self) -> None:
        """Have everything deleted."""
        _, _, page = await self.insist("GET", "/withdraw")
        assert b"You have withdrawn" in await self.form("/withdraw", page.decode(), answered=200)
        self.withdrawn = True
        self.acknowledged.clear()
        self.hang_up()

    async def give_up(self) -> None:
        """Answer half and withdraw."""
        page = await self.arrive()
        if "rating.js" in page:
            await self.rate(page, only=1)
            await self.withdraw()
        self.hang_up()

    def hang_up(self) -> None:
        if self._stream:
            self._stream[1].close()
            self._stream = None


class Researcher(Annotator):
    """Somebody at the admin pages, over plain HTTP."""

    def __init__(self, port: int, password: str) -> None:
        super().__init__(port, "researcher")
        self.password = password

    async def sign_in(self) -> None:
        await self._post("/admin/login", password=self.password)
        self.csrf = csrf_in(await self._overview())

    async def _post(self, path: str, **fields: str) -> None:
        status, _, said = await self.insist(
            "POST", path, urlencode(fields).encode(), "application/x-www-form-urlencoded"
        )
        assert status == 303, (path, status, said[-600:])

    async def _overview(self) -> str:
        _, _, page = await self.insist("GET", "/admin")
        return page.decode()

    async def finished_raters(self) -> list[str]:
        """Pseudonyms of those who finished and count."""
        rows = re.findall(r'<tr data-rater="(r-\w+)" data-counts="yes">', await self._overview())
        return list(rows)

    async def raters_needed(self) -> int:
        found = re.search(r'id="raters-needed">(\d+)<', await self._overview())
        assert found
        return int(found[1])

    async def exclude(self, rater: str, reason: str = "guessed") -> None:
        await self._decide("/admin/exclude", rater, reason)

    async def release(self, rater: str, reason: str = "returned") -> None:
        await self._decide("/admin/release", rater, reason, sure="yes")

    async def _decide(self, path: str, rater: str, reason: str, **more: str) -> None:
        await self._post(path, csrf=self.csrf, rater=rater, reason=reason, **more)


async def disturb(researcher: Researcher, people: Sequence[Annotator], times: int) -> None:
    """While others rate: exclude somebody who finished, free somebody's place, have somebody withdraw; in turn."""
    await researcher.sign_in()
    for turn in range(times):
        while not (names := await researcher.finished_raters()) or not (done := _finished(people)):
            await asyncio.sleep(0.5)
        if turn % 3 == 0:
            await researcher.exclude(names[0])
        elif turn % 3 == 1:
            await researcher.release(names[0])
        else:
            await done[-1].withdraw()


def _finished(people: Sequence[Annotator]) -> list[Annotator]:
    return [person for person in people if person.code == "DONE1" and not person.withdrawn]


async def fill_up(port: int, researcher: Researcher) -> list[Annotator]:
    """Have as many people come as are needed, of whom every fifth withdraws half way, until nobody is."""
    came: list[Annotator] = []
    for wave in range(50):
        needed = await researcher.raters_needed()
        if not needed:
            researcher.hang_up()
            return came
        comers = [Annotator(port, f"wave{wave}n{n}") for n in range(needed)]
        came += comers
        await asyncio.gather(*(c.give_up() if n % 5 == 4 else c.take_part() for n, c in enumerate(comers)))
    raise AssertionError("raters are still needed")


def page_data(page: str) -> tuple[dict[str, Any], str]:
    """The data of a task page, and its CSRF token."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    token = re.search(r'<meta name="csrf" content="(\w+)"', page)
    assert data, page[:500]
    assert token
    return json.loads(unescape(data[1])), token[1]


def csrf_in(page: str) -> str:
    """The token of a page's forms."""
    token = re.search(r'name="csrf" value="(\w+)"', page)
    assert token, page[:300]
    return token[1]


READY = {"width": "1280", "height": "800", "ratio": "150", "storage": "yes", "brightness": "yes", "filters": "yes"}
"""What a good device says."""


def seen_whole(answer: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """An answer by somebody who saw every picture of the item."""
    pictures = len(data["items"][answer["item"]]["pictures"]) if answer["item"] < len(data["items"]) else 0
    return {"seen": {"pictures": pictures, "decoded": data["picture"]["side"], "shown": 400}, **answer}


def shown_version(page: str) -> str:
    """The version of the consent page."""
    found = re.search(r'name="version" value="(\d+)"', page)
    return found[1] if found else ""


# -- processes --------------------------------------------------------------------------------------------------------


@dataclass
class ServerProcess:
    """`stillme study serve` in a process of its own."""

    folder: Path
    port: int
    running: Started | None = None

    def start(self) -> None:
        self.running = Started("study", "serve", self.folder, "--port", self.port)
        for _ in range(600):
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.running.poll() is None, "the server did not start"
            time.sleep(0.05)
        raise AssertionError("the server does not listen")

    def kill(self) -> None:
        """SIGKILL, to every process of it."""
        assert self.running
        self.running.kill()
        self.running.wait()

    def stop(self) -> None:
        if self.running and self.running.poll() is None:
            self.running.send_signal(signal.SIGTERM)
            try:
                self.running.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(folder: Path) -> Iterator[ServerProcess]:
    """A running server on a free port."""
    process = ServerProcess(folder, free_port())
    process.start()
    try:
        yield process
    finally:
        process.stop()


def rate_by(folder: Path, *, people: int) -> None:
    """Serve a drawn study of Prolific until so many people have taken part, each to its completion code."""
    with open_study(folder) as study:
        right = practised(study)
        assert study.config.recruiting
        completed = study.config.recruiting.codes.completed

    async def rate(port: int) -> None:
        raters = [Annotator(port, f"p{number}", practice=right) for number in range(people)]
        await asyncio.gather(*(rater.take_part() for rater in raters))
        assert {rater.code for rater in raters} == {completed}

    with serving(folder) as server:
        asyncio.run(rate(server.port))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
