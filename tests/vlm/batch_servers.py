"""Loopback servers of the providers' batch APIs, which remember what was submitted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.vlm.servers import ANTHROPIC, GEMINI, RESPONSES, Script, WireFormat


@dataclass
class StoredBatch:
    """A batch on the server."""

    id: str
    label: str
    requests: list[tuple[str, Any]]
    """IDs and bodies."""
    polls: int = 0
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class BatchServer:
    """One provider's batch API. A batch ends when it was polled `polls_until_ended` times."""

    wire: WireFormat
    script: Script
    polls_until_ended: int = 1
    batches: list[StoredBatch] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    lost_ids: int = 0
    """How many batches are created whose ID never reaches the caller."""
    fails: Callable[[str], bool] = lambda _: False
    """IDs of requests that fail."""
    garbles: Callable[[str], bool] = lambda _: False
    """IDs of requests whose answer is no JSON."""

    def __call__(self, server: Loopback, asked: Asked) -> Says:
        response = self.respond(server, asked)
        return response or Says(body=self.wire.answer(self.script(self.wire.parse(asked.json))))

    def respond(self, server: Loopback, asked: Asked) -> Says | None:
        raise NotImplementedError

    def accept(self, label: str, requests: list[tuple[str, Any]]) -> StoredBatch:
        batch = StoredBatch(f"batch_{len(self.batches)}", label, requests)
        self.batches.append(batch)
        return batch

    def created(self, body: Any) -> Says:
        if self.lost_ids:
            self.lost_ids -= 1
            return Says(status=502, body={"error": {"message": "bad gateway"}})
        return Says(body=body)

    def ended(self, batch: StoredBatch) -> bool:
        return batch.polls >= self.polls_until_ended

    @property
    def submitted(self) -> list[str]:
        """The IDs of all requests of all batches."""
        return [id_ for batch in self.batches for id_, _ in batch.requests]

    def model_response(self, id_: str, body: Any) -> Any:
        text = "no JSON" if self.garbles(id_) else self.script(self.wire.parse(body))
        return self.wire.answer(text)


class OpenAIBatchServer(BatchServer):
    def respond(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path.removeprefix("/v1")
        if asked.method == "DELETE":
            name = path.rpartition("/")[2]
            self.files.pop(name, None)
            self.labels.pop(name, None)
            return Says(body={"id": name, "object": "file", "deleted": True})
        if path == "/files" and asked.method == "GET":
            return Says(body={"object": "list", "data": [self._file(name) for name in self.labels], "has_more": False})
        if path == "/files":
            name = f"file_{len(self.files)}"
            self.files[name] = asked.form["file"][0]
            file_name = re.search(rb'filename="([^"]+)"', asked.content)
            self.labels[name] = file_name[1].decode() if file_name else ""
            return Says(body=self._file(name))
        if path_match := re.fullmatch(r"/files/(\w+)/content", path):
            return Says(body=self.files[path_match[1]])
        if path == "/batches" and asked.method == "POST":
            fields = asked.json
            lines = [json.loads(line) for line in self.files[fields["input_file_id"]].splitlines()]
            assert {line["url"] for line in lines} == {"/v1/responses"} == {fields["endpoint"]}
            requests = [(line["custom_id"], line["body"]) for line in lines]
            batch = self.accept(fields["metadata"]["stillme"], requests)
            return self.created(self._batch(batch, fields["input_file_id"]))
        if path == "/batches":
            listed = [self._batch(batch, "file_0") for batch in reversed(self.batches)]
            return Says(body={"object": "list", "data": listed, "has_more": False})
        if path_match := re.fullmatch(r"/batches/(\w+)", path):
            batch = next((batch for batch in self.batches if batch.id == path_match[1]), None)
            if batch is None:
                return Says(status=404, body={"error": {"message": "No batch path_match"}})
            batch.polls += 1
            return Says(body=self._batch(batch, "file_0"))
        return None

    def _file(self, name: str) -> Any:
        return {
            "id": name,
            "object": "file",
            "bytes": 1,
            "created_at": 1,
            "filename": self.labels.get(name, ""),
            "purpose": "batch",
            "status": "processed",
        }

    def _batch(self, batch: StoredBatch, file: str) -> Any:
        body = {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/responses",
            "input_file_id": file,
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": int(batch.created_at.timestamp()),
            "metadata": {"stillme": batch.label},
            "request_counts": {"total": len(batch.requests), "completed": 0, "failed": 0},
        }
        if self.ended(batch):
            name = f"out_{batch.id}"
            lines = [json.dumps(self._line(id_, sent)) for id_, sent in batch.requests]
            self.files[name] = "\n".join(lines).encode()
            body |= {"status": "completed", "output_file_id": name}
        return body

    def _line(self, id_: str, body: Any) -> Any:
        if self.fails(id_):
            error = {"status_code": 500, "request_id": "r", "body": {"error": {"message": "broken"}}}
            return {"id": "l", "custom_id": id_, "response": error, "error": None}
        answer = {"status_code": 200, "request_id": "r", "body": self.model_response(id_, body)}
        return {"id": "l", "custom_id": id_, "response": answer, "error": None}


class GeminiBatchServer(BatchServer):
    def respond(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path
        if asked.method == "DELETE":
            self.files.pop(path.rpartition("/")[2], None)
            return Says(body={})
        if path.startswith("/upload/"):
            if "start" in asked.headers.get("x-goog-upload-command", ""):
                name = f"f{len(self.labels)}"
                details = asked.json["file"]
                self.labels[name] = details.get("displayName") or details["display_name"]
                where = f"{server.url}/upload-here/{name}"
                return Says(body={}, headers={"X-Goog-Upload-URL": where, "X-Goog-Upload-Status": "active"})
            raise AssertionError(asked.path)
        if path.startswith("/upload-here/"):
            name = path.rpartition("/")[2]
            self.files[name] = asked.content
            return Says(body={"file": self._file(name)}, headers={"X-Goog-Upload-Status": "final"})
        if path.endswith(":batchGenerateContent"):
            sent = asked.json["batch"]
            lines = [
                json.loads(line) for line in self.files[sent["inputConfig"]["fileName"].rpartition("/")[2]].splitlines()
            ]
            batch = self.accept(sent["displayName"], [(line["key"], line["request"]) for line in lines])
            return self.created(self._job(batch))
        if path.endswith(":download") or (path_match := re.search(r"/files/(out_\w+):download", path)):
            path_match = re.search(r"/files/(\w+):download", path)
            assert path_match
            return Says(body=self.files[path_match[1]])
        if path.endswith("/batches"):
            return Says(body={"operations": [self._job(batch) for batch in self.batches]})
        if path.endswith("/files"):
            return Says(body={"files": [self._file(name) for name in self.files if name in self.labels]})
        if path_match := re.search(r"/batches/(\w+)$", path):
            batch = next((batch for batch in self.batches if batch.id == path_match[1]), None)
            if batch is None:
                return Says(status=404, body={"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}})
            batch.polls += 1
            return Says(body=self._job(batch))
        return None

    def _file(self, name: str) -> Any:
        return {"name": f"files/{name}", "displayName": self.labels[name], "mimeType": "application/jsonl"}

    def _job(self, batch: StoredBatch) -> Any:
        details = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "name": f"batches/{batch.id}",
            "displayName": batch.label,
            "model": "models/gemini-3-flash-preview",
            "createTime": batch.created_at.isoformat(),
            "state": "BATCH_STATE_RUNNING",
        }
        body: dict[str, Any] = {"name": f"batches/{batch.id}", "metadata": details}
        if self.ended(batch):
            name = f"out_{batch.id}"
            self.files[name] = "\n".join(json.dumps(self._line(id_, sent)) for id_, sent in batch.requests).encode()
            details |= {"state": "BATCH_STATE_SUCCEEDED", "output": {"responsesFile": f"files/{name}"}}
            body |= {"done": True, "response": {"responsesFile": f"files/{name}"}}
        return body

    def _line(self, id_: str, body: Any) -> Any:
        if self.fails(id_):
            return {"key": id_, "error": {"code": 13, "message": "broken"}}
        return {"key": id_, "response": self.model_response(id_, body)}


class AnthropicBatchServer(BatchServer):
    def respond(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path
        if asked.method == "DELETE":
            return Says(body={"id": path.rpartition("/")[2], "type": "message_batch_deleted"})
        if path == "/v1/messages/batches" and asked.method == "POST":
            requests = [(request["custom_id"], request["params"]) for request in asked.json["requests"]]
            return self.created(self._batch(server, self.accept("", requests)))
        if path == "/v1/messages/batches":
            for batch in self.batches:
                batch.polls += 1  # time passes for whoever only polls at the list, too
            listed = [self._batch(server, batch) for batch in reversed(self.batches)]
            return Says(body={"data": listed, "has_more": False, "first_id": None, "last_id": None})
        if path_match := re.fullmatch(r"/v1/messages/batches/(\w+)(/results)?", path):
            batch = next((batch for batch in self.batches if batch.id == path_match[1]), None)
            if batch is None:
                error = {"type": "not_found_error", "message": "gone"}
                return Says(status=404, body={"type": "error", "error": error})
            if path_match[2]:
                lines = [json.dumps(self._line(id_, sent)) for id_, sent in batch.requests]
                return Says(body="\n".join(lines).encode(), headers={"Content-Type": "application/x-jsonl"})
            batch.polls += 1
            return Says(body=self._batch(server, batch))
        return None

    def _batch(self, server: Loopback, batch: StoredBatch) -> Any:
        count, done = len(batch.requests), self.ended(batch)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if done else "in_progress",
            "request_counts": {
                "processing": 0 if done else count,
                "succeeded": count if done else 0,
                "errored": 0,
                "canceled": 0,
                "expired": 0,
            },
            "created_at": batch.created_at.isoformat(),
            "expires_at": batch.created_at.isoformat(),
            "ended_at": batch.created_at.isoformat() if done else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{server.url}/v1/messages/batches/{batch.id}/results" if done else None,
        }

    def _line(self, id_: str, body: Any) -> Any:
        if self.fails(id_):
            error = {"type": "error", "error": {"type": "api_error", "message": "broken"}, "request_id": None}
            return {"custom_id": id_, "result": {"type": "errored", "error": error}}
        return {"custom_id": id_, "result": {"type": "succeeded", "message": self.model_response(id_, body)}}


BATCH_SERVERS: dict[str, tuple[type[BatchServer], WireFormat]] = {
    "openai": (OpenAIBatchServer, RESPONSES),
    "google": (GeminiBatchServer, GEMINI),
    "anthropic": (AnthropicBatchServer, ANTHROPIC),
}
