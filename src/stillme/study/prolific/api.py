"""Prolific's API (v1): the few calls that a study needs, and errors a researcher can act on."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import IO, Any, Literal, cast
from urllib.parse import quote, urlencode

from stillme.addresses import problems_of
from stillme.errors import StillmeError
from stillme.redaction import redacted, shortened
from stillme.types import Json

TOKEN = "PROLIFIC_API_TOKEN"
ADDRESS = "PROLIFIC_API_URL"
"""Another address than Prolific's own, such as a test server's."""
PROLIFIC = "https://api.prolific.com"
_TRIES = 5
_TIMEOUT, _BRIEFLY = 60.0, 5.0
_LONGEST_WAIT = 60.0
_PAGE = 100
_MOST_PAGES = 1_000
_MAX_BYTES = 32 * 2**20

RejectionCategory = Literal[
    "TOO_QUICKLY",
    "TOO_SLOWLY",
    "FAILED_INSTRUCTIONS",
    "INCOMP_LONGITUDINAL",
    "FAILED_CHECK",
    "LOW_EFFORT",
    "MALINGERING",
    "NO_CODE",
    "BAD_CODE",
    "NO_DATA",
    "UNSUPP_DEVICE",
    "OTHER",
]
StudyAction = Literal["PUBLISH", "PAUSE", "START", "STOP"]


class ProlificError(StillmeError):
    """Prolific would not do what was asked, or could not be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSubmission:
    """One submission as Prolific lists it."""

    id: str
    pid: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A webhook that waits for confirmation."""

    id: str
    proof: str
    """What confirms that we asked for it (X-Hook-Secret)."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the token along to wherever it is redirected."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow none."""


class ProlificApi:
    """Calls with the token of the environment. Faults of the moment are tried again; a transition is idempotent."""

    def __init__(self, token: str, address: str = PROLIFIC, pause: Callable[[float], None] = time.sleep) -> None:
        self._token = token
        self._address = address.rstrip("/")
        self._pause = pause
        self._opener = urllib.request.build_opener(_NoRedirects)

    @classmethod
    def from_environment(cls) -> ProlificApi:
        """With PROLIFIC_API_TOKEN, which is never written anywhere."""
        token, address = os.environ.get(TOKEN, "").strip(), os.environ.get(ADDRESS, "") or PROLIFIC
        if not token:
            raise StillmeError(f"Set {TOKEN} to a token from Prolific (Settings, API tokens). Nothing was sent.")
        for problem in problems_of(address, key=TOKEN, insecure_http=False):
            raise StillmeError(f"{ADDRESS}: {problem}. Nothing was sent.")
        return cls(token, address)

    def create_study(self, study: Mapping[str, Json]) -> str:
        """Create a draft; returns its id."""
        # Not tried again after a lost answer: there would be two drafts.
        return str(self._call("POST", "/api/v1/studies/", study, again=False)["id"])

    def study(self, study: str) -> dict[str, Any]:
        """A study as it is there."""
        return self._call("GET", f"/api/v1/studies/{quote(study, safe='')}/")

    def transition_study(self, study: str, action: StudyAction) -> str:
        """Publish, pause, start or stop a study; returns its status."""
        path = f"/api/v1/studies/{quote(study, safe='')}/transition/"
        return str(self._call("POST", path, {"action": action}).get("status", ""))

    def set_places(self, study: str, places: int) -> None:
        """Change how many people may take part."""
        self._call("PATCH", f"/api/v1/studies/{quote(study, safe='')}/", {"total_available_places": places})

    def submissions(self, study: str) -> Iterator[RemoteSubmission]:
        """All submissions of a study."""
        seen = 0
        for page in range(1, _MOST_PAGES + 1):
            query = urlencode({"study": study, "page": page, "page_size": _PAGE})
            listed = self._call("GET", f"/api/v1/submissions/?{query}")
            results = cast("list[dict[str, Any]]", listed.get("results") or [])
            for row in results:
                yield RemoteSubmission(
                    id=str(row["id"]),
                    pid=str(row.get("participant_id") or row["participant"]),
                    status=str(row["status"]),
                )
            seen += len(results)
            total = cast("dict[str, Any]", listed.get("meta") or {}).get("count")
            if not results or (seen >= int(total) if total is not None else len(results) < _PAGE):
                return

    def approve(self, submission: str) -> str:
        """Approve and pay; returns the new status."""
        return self._transition(submission, {"action": "APPROVE"})

    def reject(self, submission: str, message: str, category: RejectionCategory) -> str:
        """Reject with a message to the participant; returns the new status."""
        return self._transition(submission, {"action": "REJECT", "message": message, "rejection_category": category})

    def request_return(self, submission: str, reasons: list[str]) -> str:
        """Ask the participant to return the submission; returns its status, which is unchanged until they do."""
        path = f"/api/v1/submissions/{quote(submission, safe='')}/request-return/"
        return str(self._call("POST", path, {"request_return_reasons": list(reasons)}).get("status", ""))

    def create_secret(self, workspace: str) -> str:
        """A new secret that signs webhooks; the workspace's old one ends."""
        said = self._call("POST", "/api/v1/hooks/secrets/", {"workspace_id": workspace}, again=False)
        return str(said["value"])

    def subscribe(self, workspace: str, event: str, target: str) -> Subscription:
        """Ask for events to be sent to an address; `confirm` completes it."""
        body = {"workspace_id": workspace, "event_type": event, "target_url": target}
        headers: dict[str, str] = {}
        said = self._call("POST", "/api/v1/hooks/subscriptions/", body, again=False, headers=headers)
        return Subscription(id=str(said["id"]), proof=headers.get("x-hook-secret", ""))

    def confirm(self, subscription: Subscription) -> None:
        """Confirm a subscription."""
        path = f"/api/v1/hooks/subscriptions/{quote(subscription.id, safe='')}/"
        self._call("POST", path, {"secret": subscription.proof})

    def signing_keys(self) -> dict[str, Any]:
        """The public keys that sign entry tokens (JWKS). Asked once and briefly: a participant waits at the door."""
        return self._call("GET", "/.well-known/study/jwks.json", tries=1, timeout=_BRIEFLY)

    def _transition(self, submission: str, body: Mapping[str, Json]) -> str:
        path = f"/api/v1/submissions/{quote(submission, safe='')}/transition/"
        return str(self._call("POST", path, body).get("status", ""))

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Json] | None = None,
        *,
        again: bool = True,
        headers: dict[str, str] | None = None,
        tries: int = _TRIES,
        timeout: float = _TIMEOUT,
    ) -> dict[str, Any]:
        """One call; on success its JSON, with the answer's headers in `headers`."""
        what = f"{method} {path.partition('?')[0]}"
        for attempt in range(1, tries + 1):
            request = urllib.request.Request(
                self._address + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "User-Agent": "stillme"}
                | ({"Authorization": f"Token {self._token}"} if self._token else {}),
            )
            try:
                with self._opener.open(request, timeout=timeout) as answer:
                    content = answer.read(_MAX_BYTES)
                    if headers is not None:
                        headers.update({name.lower(): value for name, value in answer.headers.items()})
                return _parsed(content, what)
            except urllib.error.HTTPError as error:
                content = error.read(_MAX_BYTES)
                # 429 was not done; a 5xx may have been.
                retryable = error.code == 429 or (error.code >= 500 and again)
                if not retryable or attempt == tries:
                    raise ProlificError(self._explain(what, error.code, content)) from None
                wait = _seconds(error.headers.get("Retry-After"), attempt)
            except (OSError, HTTPException) as error:
                if not again or attempt == tries:
                    unsure = (
                        ""
                        if again or method == "GET"
                        else " It may have been done: look at Prolific before you repeat it."
                    )
                    reason = shortened(redacted(str(error), self._token))
                    raise ProlificError(f"Prolific cannot be reached ({what}: {reason}). Try again.{unsure}") from None
                wait = _seconds(None, attempt)
            self._pause(wait)
        raise AssertionError("unreachable")

    def _explain(self, what: str, status: int, content: bytes) -> str:
        said = shortened(redacted(_words(content), self._token)).rstrip(".")
        if status in (401, 403):
            return (
                f"Prolific refused the token in {TOKEN} for {what} ({status}: {said}). Make a new one in its settings."
            )
        if status == 404:
            return f"Prolific does not know this ({what}: {said}). Check `study_id` in study.toml."
        if 300 <= status < 400:
            return f"Prolific's API answered with a redirect ({what}), which is not followed. Check {ADDRESS}."
        return f"Prolific refused {what} ({status}: {said}). Correct that and try again."


def _parsed(content: bytes, what: str) -> dict[str, Any]:
    if not content.strip():
        return {}
    try:
        parsed: Json = json.loads(content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ProlificError(f"Prolific's answer to {what} is not what its documentation says. Try again later.")
    return cast("dict[str, Any]", parsed)


def _words(content: bytes) -> str:
    """What an error says: `error.detail` and `additional_information`, `detail`, or the text itself."""
    try:
        said: Any = json.loads(content)
    except ValueError:
        return content.decode(errors="replace") or "no reason given"
    if isinstance(said, dict):
        entries = cast("dict[str, Any]", said)
        inner = entries.get("error")
        source = cast("dict[str, Any]", inner) if isinstance(inner, dict) else entries
        parts = [source.get(name) for name in ("title", "detail", "message", "additional_information")]
        texts = [part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in parts if part]
        if texts:
            return "; ".join(texts)
    return json.dumps(said, ensure_ascii=False)


def _seconds(header: str | None, attempt: int) -> float:
    try:
        return min(float(header or ""), _LONGEST_WAIT)
    except ValueError:
        return min(2.0**attempt, _LONGEST_WAIT)
