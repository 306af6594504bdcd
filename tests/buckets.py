"""Buckets on this machine: moto's S3 over loopback, behind a proxy that misbehaves as told."""

from __future__ import annotations

import http.client
import itertools
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import boto3
from moto.server import ThreadedMotoServer

KEY, SECRET = "AKIATESTINGTESTING", "a-secret-that-nobody-may-see"

Fault = int | Literal["hang up", "cut", "shorten", "dawdle"]
"""A status; no answer at all; half of it, which HTTP notices; half of it, which only its hash tells; a slow one."""
_PAUSE = 3.0


@dataclass
class Proxy:
    """Between S3 and whoever asks."""

    port: int
    upstream: int
    fault: Callable[[str, str], Fault | None] = lambda method, path: None
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method and path, with what failed."""

    def count(self, method: str, end: str = "") -> int:
        return sum(count for (verb, path), count in self.asked.items() if verb == method and path.endswith(end))


@dataclass
class Bucket:
    """One bucket, and what to tell a process that is to use it."""

    name: str
    client: Any
    proxy: Proxy

    @property
    def address(self) -> str:
        return f"s3://{self.name}/audit"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "2",
        }

    def objects(self) -> dict[str, bytes]:
        """Every object below the address, by name."""
        listed = self.client.list_objects_v2(Bucket=self.name, Prefix="audit/").get("Contents", [])
        bodies = {entry["Key"]: self.client.get_object(Bucket=self.name, Key=entry["Key"])["Body"] for entry in listed}
        return {key.removeprefix("audit/"): body.read() for key, body in bodies.items()}

    def pictures(self) -> dict[str, bytes]:
        """The pictures, by the name that a local run's files have."""
        return {name.partition("/")[2]: data for name, data in self.objects().items() if "/" in name}

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"audit/{name}", Body=data)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"audit/{name}")


class S3:
    """The service."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
        self._server.start()
        port = self._server.get_host_and_port()[1]
        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        self._port = port
        self._numbers = itertools.count()

    def stop(self) -> None:
        self._client.close()
        self._server.stop()

    @contextmanager
    def bucket(self) -> Iterator[Bucket]:
        name = f"bucket-{next(self._numbers)}"
        self._client.create_bucket(Bucket=name)
        with _proxied(self._port) as proxy:
            yield Bucket(name, self._client, proxy)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def _proxied(upstream: int) -> Iterator[Proxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = server.proxy = Proxy(server.server_address[1], upstream)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        proxy: Proxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        proxy.asked[self.command, path] += 1
        fault = proxy.fault(self.command, path)
        if fault == "hang up":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if isinstance(fault, int):
            code = {403: "AccessDenied", 404: "NoSuchBucket", 500: "InternalError", 503: "ServiceUnavailable"}[fault]
            answer = f"<Error><Code>{code}</Code><Message>as the test wants, with key {SECRET}</Message></Error>"
            self._send(fault, [("Content-Type", "application/xml")], answer.encode())
            return
        if fault == "dawdle":
            time.sleep(_PAUSE)
        upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        upstream.request(self.command, self.path, body, headers)
        reply = upstream.getresponse()
        data, kept = reply.read(), ("content-length", "transfer-encoding", "connection", "server", "date")
        fields = [(name, value) for name, value in reply.getheaders() if name.lower() not in kept]
        length = reply.getheader("Content-Length") if self.command == "HEAD" else None
        upstream.close()
        if fault == "shorten":
            fields = [(name, value) for name, value in fields if "checksum" not in name.lower()]
            data = data[: len(data) // 2]
        self._send(reply.status, fields, data, length=length, cut=fault == "cut")

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _send(
        self, status: int, fields: list[tuple[str, str]], data: bytes, *, length: str | None = None, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
