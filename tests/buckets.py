"""Buckets on this machine: moto's S3 over loopback, behind a proxy that misbehaves as told."""

from __future__ import annotations

import http.client
import itertools
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import boto3
from moto.server import ThreadedMotoServer

from tests.editors.hosted.loopback import Asked, Says, serving

KEY, SECRET = "AKIATESTINGTESTING", "a-secret-that-nobody-may-see"

Fault = int | Literal["hang up", "cut", "shorten", "dawdle"]
"""A status; no answer at all; half of it, which HTTP notices; half of it, which only its hash tells; a slow one."""
_PAUSE = 3.0


@dataclass
class Proxy:
    """Between S3 and whoever asks."""

    url: str
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
            "AWS_ENDPOINT_URL": self.proxy.url,
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
        with serving(lambda _, asked: _forwarded(proxy, asked)) as server:
            proxy = Proxy(server.url, self._port)
            yield Bucket(name, self._client, proxy)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _forwarded(proxy: Proxy, asked: Asked) -> Says:
    path = asked.path.partition("?")[0]
    proxy.asked[asked.method, path] += 1
    fault = proxy.fault(asked.method, path)
    if fault == "hang up":
        return Says(hangs_up=True)
    if isinstance(fault, int):
        code = {403: "AccessDenied", 404: "NoSuchBucket", 500: "InternalError", 503: "ServiceUnavailable"}[fault]
        answer = f"<Error><Code>{code}</Code><Message>as the test wants, with key {SECRET}</Message></Error>"
        return Says(status=fault, headers={"Content-Type": "application/xml"}, body=answer.encode())
    if fault == "dawdle":
        time.sleep(_PAUSE)
    upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream)
    headers = {name: value for name, value in asked.headers.items() if name != "expect"}
    upstream.request(asked.method, asked.path, asked.content, headers)
    reply = upstream.getresponse()
    data, kept = reply.read(), ("transfer-encoding", "connection", "server", "date")
    fields = {name.title(): value for name, value in reply.getheaders() if name.lower() not in kept}
    upstream.close()
    if fault == "shorten":
        data = data[: len(data) // 2]
        fields = {name: value for name, value in fields.items() if "Checksum" not in name and name != "Content-Length"}
    return Says(status=reply.status, headers=fields, body=data, truncated=fault == "cut")
