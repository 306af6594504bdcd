"""A server on loopback that speaks Prolific's documented API, its errors included."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "tok-1234567890abcdef"
CATEGORIES = {"TOO_QUICKLY", "FAILED_CHECK", "LOW_EFFORT", "OTHER", "NO_DATA"}
CODE_TYPES = {"COMPLETED", "FAILED_ATTENTION_CHECK", "NO_CONSENT", "INCOMPATIBLE_DEVICE", "OTHER", "FIXED_SCREENOUT"}
ACTIONS = {"MANUALLY_REVIEW", "REQUEST_RETURN", "FIXED_SCREEN_OUT_PAYMENT", "AUTOMATICALLY_APPROVE"}


@dataclass
class Prolific:
    """What the server holds, and the faults that it is told to have."""

    address: str = ""
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    submissions: dict[str, dict[str, Any]] = field(default_factory=dict)
    subscriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=lambda: {"keys": []})
    asked: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Any] = field(default_factory=list)
    """Used up one by one: a status, `drop`, `garbage` or `redirect`."""

    def submit(self, pid: str, status: str, study: str = "study1", name: str = "") -> None:
        name = name or f"s{pid}"
        self.submissions[name] = {"id": name, "participant_id": pid, "status": status, "study_id": study}

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        if path == "/.well-known/study/jwks.json":
            return 200, self.keys, {}
        if (method, path) == ("POST", "/api/v1/studies/"):
            return self._create(body)
        if study := re.fullmatch(r"/api/v1/studies/(\w+)/", path):
            known = self.studies.get(study[1])
            if known is None:
                return _error(404, "Not found.")
            if method == "PATCH":
                known |= body
            return 200, known, {}
        if study := re.fullmatch(r"/api/v1/studies/(\w+)/transition/", path):
            statuses = {"PUBLISH": "ACTIVE", "PAUSE": "PAUSED", "START": "ACTIVE", "STOP": "AWAITING REVIEW"}
            if study[1] not in self.studies:
                return _error(404, "Not found.")
            self.studies[study[1]]["status"] = statuses[body["action"]]
            return 200, self.studies[study[1]], {}
        if path == "/api/v1/submissions/":
            rows = [row for row in self.submissions.values() if row["study_id"] == query["study"]]
            page, size = int(query.get("page", 1)), int(query.get("page_size", 20))
            return 200, {"results": rows[(page - 1) * size : page * size], "meta": {"count": len(rows)}}, {}
        if one := re.fullmatch(r"/api/v1/submissions/(\w+)/(transition|request-return)/", path):
            return self._review(one[1], one[2], body)
        if path == "/api/v1/hooks/secrets/":
            self.secrets.append(f"secret{len(self.secrets)}")
            return 201, {"id": "1", "value": self.secrets[-1], "workspace_id": body["workspace_id"]}, {}
        if path == "/api/v1/hooks/subscriptions/":
            if not body["target_url"].startswith("https://"):
                return _error(400, {"target_url": ["must use https"]})
            self.subscriptions["hook1"] = {**body, "is_enabled": False}
            return 201, {"id": "hook1", **body}, {"X-Hook-Secret": "proof1"}
        if path == "/api/v1/hooks/subscriptions/hook1/":
            if body != {"secret": "proof1"}:
                return _error(400, "The secret does not match.")
            self.subscriptions["hook1"]["is_enabled"] = True
            return 200, self.subscriptions["hook1"], {}
        return _error(404, "Not found.")

    def _create(self, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        wrong: dict[str, Any] = {}
        needed = ("name", "description", "external_study_url", "prolific_id_option", "completion_codes")
        for name in (*needed, "total_available_places", "estimated_completion_time", "reward"):
            if name not in body:
                wrong[name] = ["This field is required."]
        codes = body.get("completion_codes", [])
        if len({code["code"] for code in codes}) < len(codes):
            wrong["completion_codes"] = ["Codes must be unique."]
        for code in codes:
            actions = {action["action"] for action in code["actions"]}
            if code["code_type"] not in CODE_TYPES or not actions or not actions <= ACTIONS:
                wrong["completion_codes"] = [f"{code} is invalid."]
        if body.get("reward", 0) / max(body.get("estimated_completion_time", 1), 1) * 60 < 800:
            wrong["reward"] = ["The reward is below the minimum per hour."]
        if not isinstance(body.get("reward"), int):
            wrong["reward"] = ["Give cents."]
        if wrong:
            return _error(400, wrong)
        self.studies["new1"] = {**body, "id": "new1", "status": "UNPUBLISHED", "places_taken": 0}
        return 201, self.studies["new1"], {}

    def _review(self, name: str, verb: str, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        row = self.submissions.get(name)
        if row is None:
            return _error(404, "Not found.")
        if verb == "request-return":
            if not body.get("request_return_reasons"):
                return _error(400, {"request_return_reasons": ["This field is required."]})
            row["return_requested"] = body["request_return_reasons"]
            return 200, row, {}
        wanted = {"APPROVE": "APPROVED", "REJECT": "REJECTED"}[body["action"]]
        if row["status"] == wanted:
            return 200, row, {}
        if row["status"] != "AWAITING REVIEW":
            return _error(400, f"This submission is {row['status']} and cannot be changed.")
        if wanted == "REJECTED" and (len(body["message"]) < 100 or body["rejection_category"] not in CATEGORIES):
            return _error(400, "A rejection needs a message of 100 characters and a category.")
        row["status"] = wanted
        return 200, row, {}


def _error(status: int, detail: Any) -> tuple[int, Any, dict[str, str]]:
    return status, {"error": {"status": status, "error_code": 140000, "title": "Error", "detail": detail}}, {}


@contextmanager
def prolific_server() -> Iterator[Prolific]:
    """Serve until the block ends."""
    state = Prolific()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(length)
            where = urlsplit(self.path)
            state.asked.append((self.command, where.path))
            fault = state.faults.pop(0) if state.faults else None
            if fault == "drop":
                self.connection.close()
                self.close_connection = True
                return
            if fault == "redirect":
                self._send(302, {}, {"Location": f"{state.address}/stolen"})
                return
            if isinstance(fault, int):
                repeated = {"error": {"status": fault, "detail": f"trouble with {self.headers['Authorization']}"}}
                self._send(fault, repeated, {"Retry-After": "0"})
                return
            public = where.path.startswith("/.well-known/")
            if not public and self.headers.get("Authorization") != f"Token {TOKEN}":
                self._send(401, {"detail": "Authentication credentials were not provided."}, {})
                return
            query = {name: values[-1] for name, values in parse_qs(where.query).items()}
            status, said, headers = state.answer(self.command, where.path, query, json.loads(content or b"null"))
            if fault == "garbage":
                self._send(200, None, {}, b"<html>maintenance</html>")
            else:
                self._send(status, said, headers)

        def __getattr__(self, name: str) -> Any:
            if name in ("do_GET", "do_POST", "do_PATCH"):
                return self._handle
            raise AttributeError(name)

        def _send(self, status: int, said: Any, headers: dict[str, str], raw: bytes | None = None) -> None:
            content = json.dumps(said).encode() if raw is None else raw
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
