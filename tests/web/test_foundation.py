"""What every web app of ours refuses, and what it always sends."""

from __future__ import annotations

import http.client
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from stillme import web
from stillme.core.addresses import is_loopback
from stillme.core.errors import MissingExtra, StillmeError
from stillme.web.app import (
    Cookie,
    Holder,
    KeyHolders,
    Pages,
    RequestLimit,
    Site,
    create_app,
    csrf_of,
    holder_of,
    new_token,
    number_in,
    read_form,
    require_csrf,
    token_hash,
)
from stillme.web.database import append_only, open_database
from stillme.web.serving import WebServer

HOME = "http://127.0.0.1:8470"
SITE = Site(title="A test", package="stillme.web")


def small_app(site: Site = SITE) -> FastAPI:
    app = create_app(site)

    @app.get("/")
    def home() -> Response:
        return PlainTextResponse("hello")

    @app.post("/change")
    async def change(request: Request) -> Response:
        form = await read_form(request)
        return PlainTextResponse(form["word"])

    return app


@pytest.fixture
def client() -> TestClient:
    return TestClient(small_app(), base_url=HOME, headers={"Origin": HOME})


def test_every_answer_carries_the_security_headers(client: TestClient) -> None:
    answers = [client.get("/"), client.get("/nothing"), client.get("/", headers={"Host": "evil.example"})]
    answers.append(client.post("/change", headers={"Origin": "https://evil.example"}))
    assert [answer.status_code for answer in answers] == [200, 404, 400, 403]
    for answer in answers:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": HOME}, 200),
        ({"Origin": HOME, "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://127.0.0.1:8470.evil.example"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": HOME, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": HOME, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_only_our_own_pages_may_change_something(headers: dict[str, str], code: int) -> None:
    client = TestClient(small_app(), base_url=HOME)
    assert client.post("/change", data={"word": "yes"}, headers=headers).status_code == code


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *((host, 200) for host in ("127.0.0.1:1", "localhost", "[::1]:80")),
        *((host, 400) for host in ("evil.example", "127.0.0.1.evil.example", "", "[::2]")),
    ],
)
def test_loopback_names_and_no_others_are_served(client: TestClient, host: str, code: int) -> None:
    assert client.get("/", headers={"Host": host}).status_code == code


def test_only_this_machine_is_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.3.2.1", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.0.4", "example.org", "")))


def test_large_and_endless_bodies_are_refused(client: TestClient) -> None:
    assert client.post("/change", data={"word": "x" * 70_000}).status_code == 413
    endless = client.post("/change", content=iter([b"word=", b"yes"]))
    assert endless.status_code == 411
    assert client.post("/change", content=b"x", headers={"Content-Length": "-5"}).status_code == 413


def test_only_plain_forms_are_read(client: TestClient) -> None:
    assert client.post("/change", json={"word": "yes"}).status_code == 415
    many = "&".join(f"f{number}=1" for number in range(300))
    plain = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/change", content=many, headers=plain).status_code == 400
    assert client.post("/change", content=b"word=%ff", headers=plain).status_code == 400


def test_static_files_are_ours_and_cannot_be_walked_out_of(client: TestClient) -> None:
    address = Pages(SITE).static("page.css")
    shown = client.get(address)
    assert shown.status_code == 200
    assert "immutable" in shown.headers["cache-control"]
    for path in ("/static/../pages.py", "/static/%2e%2e/pages.py", "/static/..%2fpages.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404


def test_pages_escape_what_they_are_given() -> None:
    site = Site(title="<script>alert(1)</script>", package="stillme.web")
    assert b"<script>alert" not in Pages(site).show("page.html").body


def test_a_cookie_over_https_is_bound_to_the_host() -> None:
    response = PlainTextResponse("")
    Cookie(name="s", secure=True).set_on(response, "t")
    given = response.headers["set-cookie"]
    assert given.startswith("__Host-s=t")
    assert all(word in given for word in ("HttpOnly", "Path=/", "SameSite=lax", "Secure"))


def test_tokens_are_long_and_neither_hash_nor_csrf_gives_them_away() -> None:
    token = new_token()
    assert len(token) >= 43
    assert token not in token_hash(token) + csrf_of(token)
    assert csrf_of(token) != csrf_of(new_token())


def test_everybody_gets_in_with_their_own_key_and_is_nobody_else() -> None:
    holders, app = KeyHolders(SITE, "secret", ["Ada", "Bo"]), small_app()
    holders.protect(app)

    @app.get("/who")
    def who(holder: Annotated[Holder, Depends(holder_of)]) -> Response:
        return PlainTextResponse(f"{holder.name} {holder.csrf}")

    stranger = TestClient(app, base_url=HOME)
    refused = stranger.get("/")
    assert refused.status_code == 403
    assert "default-src" in refused.headers["content-security-policy"]
    for wrong in ("wrong", "", "schlüssel", "%00", "Ada"):
        assert stranger.get("/", params={"key": wrong}).status_code == 403
    said: dict[str, str] = {}
    for name in ("Ada", "Bo"):
        owner = TestClient(app, base_url=HOME)
        entered = owner.get(holders.entry_path(name), follow_redirects=False)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert owner.get("/").text == "hello"
        who_said, said[name] = owner.get("/who").text.split()
        assert who_said == name
    assert said["Ada"] != said["Bo"]
    again, other = KeyHolders(SITE, "secret", ["Ada"]), KeyHolders(SITE, "another", ["Ada"])
    assert again.keys["Ada"] == holders.keys["Ada"] != other.keys["Ada"]


@pytest.mark.parametrize(("given", "status"), [("wrong", 403), ("", 403), (None, 403), ("cläß", 400), ("\udc80", 400)])
def test_a_csrf_token_that_is_wrong_is_refused_and_never_a_fault_of_ours(given: str | None, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        require_csrf(new_token(), given)
    assert refused.value.status_code == status


def test_a_server_chooses_a_free_port_on_loopback() -> None:
    first, second = WebServer.choose(), WebServer.choose()
    try:
        assert first.address != second.address
        assert not first.public
        assert "127.0.0.1" in first.hosts
    finally:
        first.listening.close()
        second.listening.close()


def test_a_port_in_use_and_an_unknown_address_are_reported_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StillmeError, match=f"127.0.0.1 port {port} .Address already in use"):
            WebServer.choose(port=port)
    with pytest.raises(StillmeError, match="Cannot assign requested address"):
        WebServer.choose(host="192.0.2.1", port=port)
    with pytest.raises(StillmeError, match="Cannot listen"):
        WebServer.choose(port=70_000)


def test_every_interface_must_be_asked_for_and_is_known_to_be_public() -> None:
    server = WebServer.choose(host="0.0.0.0", public_url="https://study.example/")
    server.listening.close()
    assert server.public
    assert server.secure
    assert "study.example" in server.hosts
    assert "*" not in server.hosts


def test_limits_slow_one_client_and_not_another() -> None:
    now = [0.0]
    limit = RequestLimit(per_minute=60, burst=3, clock=lambda: now[0])
    assert [limit.allows("a") for _ in range(4)] == [True, True, True, False]
    assert limit.allows("b")
    now[0] = 1.0
    assert [limit.allows("a"), limit.allows("a")] == [True, False]


def test_the_log_is_append_only_and_part_of_the_transaction(tmp_path: Path) -> None:
    database = open_database(tmp_path / "x.sqlite", f"CREATE TABLE event (kind);{append_only('event')}")
    with database.writing() as connection:
        connection.insert("event", {"kind": "kept"})

    def break_off() -> None:
        with database.writing() as connection:
            connection.insert("event", {"kind": "lost"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    with database.reading() as connection:
        assert connection.column("SELECT kind FROM event") == ["kept"]
    database.close()
    with sqlite3.connect(tmp_path / "x.sqlite") as raw:
        for change in ("DELETE FROM event", "UPDATE event SET kind = 'other'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(change)
    raw.close()


def test_a_database_that_cannot_be_opened_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for file in (tmp_path, tmp_path / "file" / "x.sqlite"):
        with pytest.raises(StillmeError, match="Cannot open the database"):
            open_database(file, "")


def test_only_its_owner_may_read_a_database_and_its_log(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    file.write_bytes(b"")
    file.chmod(0o644)
    database = open_database(file, "CREATE TABLE t (x)")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("x.sqlite", "x.sqlite-wal", "x.sqlite-shm"), 0o600)
    database.close()


def test_a_missing_extra_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "stillme\[study\]"'):
        web.require("study")


@pytest.mark.parametrize("text", ["²", "١٢", "-1", "1e3", "9" * 5000, " 1", "0x1", "NaN"])
def test_an_odd_number_is_the_senders_fault(client: TestClient, text: str) -> None:
    with pytest.raises(HTTPException) as refused:
        number_in({"width": text}, "width")
    assert refused.value.status_code == 400
    length = {"Content-Length": text.encode()} if text.strip() == text else {"Content-Length": b"-1"}
    assert client.post("/change", content=b"word=x", headers=length).status_code in (400, 413)


@contextmanager
def served(before: str) -> Iterator[str]:
    """The small app in a process of its own, after some lines of Python; its address."""
    script = (
        "from stillme.web import serving; from tests.web.test_foundation import small_app; app = small_app()\n"
        f"{before}\n"
        "server = serving.WebServer.choose(port=0); print(server.address, flush=True); server.run(app)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def test_half_open_connections_neither_stop_the_server_nor_stay() -> None:
    """1,200 connections that never finish a request; a slow one; and one that sends a byte now and then."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096 and hard != resource.RLIM_INFINITY:
        pytest.skip("this system permits too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    opened: list[socket.socket] = []
    limits = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(7)[1]))"
    with served(f"serving.REQUEST_SECONDS = 4.0\n{limits}") as address:
        where = ("127.0.0.1", int(address.rpartition(":")[2]))
        for number in range(1200):
            connection = socket.create_connection(where, timeout=20)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" if number % 2 else b"G")
            opened.append(connection)
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.read() == b"hello"
        # A byte now and then does not renew the deadline, in headers or in a body.
        trickle, body = opened[1], socket.create_connection(where, timeout=20)
        opened.append(body)
        head = f"POST /change HTTP/1.1\r\nHost: {where[0]}:{where[1]}\r\nOrigin: {address}\r\n"
        kind = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\nword="
        body.sendall((head + kind).encode())
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 30:
                trickle.sendall(b"X")
                body.sendall(b"x")
                time.sleep(0.2)
        assert time.monotonic() - began < 30
        assert sum(_is_closed(connection) for connection in opened) >= 1199
    for connection in opened:
        connection.close()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_connection_that_asks_properly_is_kept() -> None:
    slow = "@app.get('/slow')\ndef slow() -> str:\n    import time; time.sleep(2.5); return 'slow'"
    with served(f"serving.REQUEST_SECONDS = 1.0\n{slow}") as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
        for path, said in (("/", b"hello"), ("/slow", b'"slow"'), ("/", b"hello")):
            connection.request("GET", path)
            assert connection.getresponse().read() == said
            time.sleep(1.5)
        connection.close()
