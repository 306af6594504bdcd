"""The providers' batch services as loopback servers, with a memory of what was handed over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.vlm.servers import ANTHROPIC, GEMINI, RESPONSES, Script, Speaker


@dataclass
class Parcel:
    """A batch that the server has."""

    id: str
    label: str
    requests: list[tuple[str, Any]]
    """Ids and bodies."""
    looks: int = 0
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class PostOffice:
    """One provider's batch service. Batches end after they were looked at `patience` times."""

    speaker: Speaker
    script: Script
    patience: int = 1
    parcels: list[Parcel] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    loses_the_number: int = 0
    """How many batches are made whose number never reaches the caller."""
    failing: Callable[[str], bool] = lambda _: False
    """Ids of requests that the provider fails to answer."""
    garbling: Callable[[str], bool] = lambda _: False
    """Ids of requests that are answered with no JSON."""

    def __call__(self, server: Loopback, asked: Asked) -> Says:
        said = self.answer(server, asked)
        return said or Says(body=self.speaker.say(self.script(self.speaker.see(asked.json))))

    def answer(self, server: Loopback, asked: Asked) -> Says | None:
        raise NotImplementedError

    def accept(self, label: str, requests: list[tuple[str, Any]]) -> Parcel:
        parcel = Parcel(f"batch_{len(self.parcels)}", label, requests)
        self.parcels.append(parcel)
        return parcel

    def made(self, body: Any) -> Says:
        if self.loses_the_number:
            self.loses_the_number -= 1
            return Says(status=502, body={"error": {"message": "bad gateway"}})
        return Says(body=body)

    def ended(self, parcel: Parcel) -> bool:
        return parcel.looks >= self.patience

    @property
    def handed_over(self) -> list[str]:
        """The ids of all requests of all batches."""
        return [id_ for parcel in self.parcels for id_, _ in parcel.requests]

    def said(self, id_: str, body: Any) -> Any:
        text = "no JSON" if self.garbling(id_) else self.script(self.speaker.see(body))
        return self.speaker.say(text)


class OpenAIOffice(PostOffice):
    def answer(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path.removeprefix("/v1")
        if asked.method == "DELETE":
            name = path.rpartition("/")[2]
            self.files.pop(name, None)
            return Says(body={"id": name, "object": "file", "deleted": True})
        if path == "/files":
            name = f"file_{len(self.files)}"
            self.files[name] = asked.form["file"][0]
            return Says(body=self._file(name))
        if found := re.fullmatch(r"/files/(\w+)/content", path):
            return Says(body=self.files[found[1]])
        if path == "/batches" and asked.method == "POST":
            fields = asked.json
            lines = [json.loads(line) for line in self.files[fields["input_file_id"]].splitlines()]
            assert {line["url"] for line in lines} == {"/v1/responses"} == {fields["endpoint"]}
            requests = [(line["custom_id"], line["body"]) for line in lines]
            parcel = self.accept(fields["metadata"]["stillme"], requests)
            return self.made(self._batch(parcel, fields["input_file_id"]))
        if path == "/batches":
            listed = [self._batch(parcel, "file_0") for parcel in reversed(self.parcels)]
            return Says(body={"object": "list", "data": listed, "has_more": False})
        if found := re.fullmatch(r"/batches/(\w+)", path):
            parcel = next((each for each in self.parcels if each.id == found[1]), None)
            if parcel is None:
                return Says(status=404, body={"error": {"message": "No batch found"}})
            parcel.looks += 1
            return Says(body=self._batch(parcel, "file_0"))
        return None

    def _file(self, name: str) -> Any:
        return {
            "id": name,
            "object": "file",
            "bytes": 1,
            "created_at": 1,
            "filename": "x",
            "purpose": "batch",
            "status": "processed",
        }

    def _batch(self, parcel: Parcel, file: str) -> Any:
        body = {
            "id": parcel.id,
            "object": "batch",
            "endpoint": "/v1/responses",
            "input_file_id": file,
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": int(parcel.created.timestamp()),
            "metadata": {"stillme": parcel.label},
            "request_counts": {"total": len(parcel.requests), "completed": 0, "failed": 0},
        }
        if self.ended(parcel):
            name = f"out_{parcel.id}"
            lines = [json.dumps(self._line(id_, sent)) for id_, sent in parcel.requests]
            self.files[name] = "\n".join(lines).encode()
            body |= {"status": "completed", "output_file_id": name}
        return body

    def _line(self, id_: str, body: Any) -> Any:
        if self.failing(id_):
            error = {"status_code": 500, "request_id": "r", "body": {"error": {"message": "broken"}}}
            return {"id": "l", "custom_id": id_, "response": error, "error": None}
        answer = {"status_code": 200, "request_id": "r", "body": self.said(id_, body)}
        return {"id": "l", "custom_id": id_, "response": answer, "error": None}


class GeminiOffice(PostOffice):
    def answer(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path
        if asked.method == "DELETE":
            self.files.pop(path.rpartition("/")[2], None)
            return Says(body={})
        if path.startswith("/upload/"):
            if "start" in asked.headers.get("x-goog-upload-command", ""):
                name = f"f{len(self.labels)}"
                about = asked.json["file"]
                self.labels[name] = about.get("displayName") or about["display_name"]
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
            parcel = self.accept(sent["displayName"], [(line["key"], line["request"]) for line in lines])
            return self.made(self._job(parcel))
        if path.endswith(":download") or (found := re.search(r"/files/(out_\w+):download", path)):
            found = re.search(r"/files/(\w+):download", path)
            assert found
            return Says(body=self.files[found[1]])
        if path.endswith("/batches"):
            return Says(body={"operations": [self._job(parcel) for parcel in self.parcels]})
        if path.endswith("/files"):
            return Says(body={"files": [self._file(name) for name in self.files if name in self.labels]})
        if found := re.search(r"/batches/(\w+)$", path):
            parcel = next((each for each in self.parcels if each.id == found[1]), None)
            if parcel is None:
                return Says(status=404, body={"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}})
            parcel.looks += 1
            return Says(body=self._job(parcel))
        return None

    def _file(self, name: str) -> Any:
        return {"name": f"files/{name}", "displayName": self.labels[name], "mimeType": "application/jsonl"}

    def _job(self, parcel: Parcel) -> Any:
        about = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "name": f"batches/{parcel.id}",
            "displayName": parcel.label,
            "model": "models/gemini-3-flash-preview",
            "createTime": parcel.created.isoformat(),
            "state": "BATCH_STATE_RUNNING",
        }
        body: dict[str, Any] = {"name": f"batches/{parcel.id}", "metadata": about}
        if self.ended(parcel):
            name = f"out_{parcel.id}"
            self.files[name] = "\n".join(json.dumps(self._line(id_, sent)) for id_, sent in parcel.requests).encode()
            about |= {"state": "BATCH_STATE_SUCCEEDED", "output": {"responsesFile": f"files/{name}"}}
            body |= {"done": True, "response": {"responsesFile": f"files/{name}"}}
        return body

    def _line(self, id_: str, body: Any) -> Any:
        if self.failing(id_):
            return {"key": id_, "error": {"code": 13, "message": "broken"}}
        return {"key": id_, "response": self.said(id_, body)}


class AnthropicOffice(PostOffice):
    def answer(self, server: Loopback, asked: Asked) -> Says | None:
        path = urlsplit(asked.path).path
        if asked.method == "DELETE":
            return Says(body={"id": path.rpartition("/")[2], "type": "message_batch_deleted"})
        if path == "/v1/messages/batches" and asked.method == "POST":
            requests = [(each["custom_id"], each["params"]) for each in asked.json["requests"]]
            return self.made(self._batch(server, self.accept("", requests)))
        if path == "/v1/messages/batches":
            for parcel in self.parcels:
                parcel.looks += 1  # time passes for whoever only looks at the list, too
            listed = [self._batch(server, parcel) for parcel in reversed(self.parcels)]
            return Says(body={"data": listed, "has_more": False, "first_id": None, "last_id": None})
        if found := re.fullmatch(r"/v1/messages/batches/(\w+)(/results)?", path):
            parcel = next((each for each in self.parcels if each.id == found[1]), None)
            if parcel is None:
                error = {"type": "not_found_error", "message": "gone"}
                return Says(status=404, body={"type": "error", "error": error})
            if found[2]:
                lines = [json.dumps(self._line(id_, sent)) for id_, sent in parcel.requests]
                return Says(body="\n".join(lines).encode(), headers={"Content-Type": "application/x-jsonl"})
            parcel.looks += 1
            return Says(body=self._batch(server, parcel))
        return None

    def _batch(self, server: Loopback, parcel: Parcel) -> Any:
        count, done = len(parcel.requests), self.ended(parcel)
        return {
            "id": parcel.id,
            "type": "message_batch",
            "processing_status": "ended" if done else "in_progress",
            "request_counts": {
                "processing": 0 if done else count,
                "succeeded": count if done else 0,
                "errored": 0,
                "canceled": 0,
                "expired": 0,
            },
            "created_at": parcel.created.isoformat(),
            "expires_at": parcel.created.isoformat(),
            "ended_at": parcel.created.isoformat() if done else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{server.url}/v1/messages/batches/{parcel.id}/results" if done else None,
        }

    def _line(self, id_: str, body: Any) -> Any:
        if self.failing(id_):
            error = {"type": "error", "error": {"type": "api_error", "message": "broken"}, "request_id": None}
            return {"custom_id": id_, "result": {"type": "errored", "error": error}}
        return {"custom_id": id_, "result": {"type": "succeeded", "message": self.said(id_, body)}}


OFFICES: dict[str, tuple[type[PostOffice], Speaker]] = {
    "openai": (OpenAIOffice, RESPONSES),
    "google": (GeminiOffice, GEMINI),
    "anthropic": (AnthropicOffice, ANTHROPIC),
}
