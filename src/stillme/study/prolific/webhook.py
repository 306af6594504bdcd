"""Hear from Prolific at once when a submission changes: signed events, applied like a sync."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any, cast

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stillme.errors import StillmeError
from stillme.study import keys
from stillme.study.context import Context, client
from stillme.study.opening import Study
from stillme.study.prolific.api import ProlificApi, RemoteSubmission
from stillme.study.prolific.following import apply_all

PATH = "/prolific/webhook"
EVENT = "submission.status.change"
TOLERANCE = 15 * 60
"""Seconds that a request may be old, or a clock ahead."""

routes = APIRouter()


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """Prolific's signature: base64 of the HMAC-SHA256 of the timestamp and the body."""
    return base64.b64encode(hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).digest()).decode()


@routes.post(PATH)
async def receive(request: Request, context: Context) -> Response:
    """Apply a submission's new status; 204 also for events that change nothing here."""
    context.entries.require(client(request))
    body = await request.body()
    secret = keys.load(context.study.folder).webhook
    if not secret:
        raise HTTPException(404, "There is no webhook here.")
    _verify(request, secret, body)
    event = _event(body)
    if event is not None:
        await run_in_threadpool(apply_all, context.study, [event], "webhook")
    return Response(status_code=204)


def subscribe(study: Study, api: ProlificApi, workspace: str, address: str, secret: str = "") -> str:
    """Have Prolific send events here; returns the subscription's id. Without `secret` the workspace gets a new one."""
    if not address.startswith("https://"):
        raise StillmeError(
            "Prolific sends events over https only; give the study's address with `--address https://…`."
        )
    # Kept before the first event can arrive.
    keys.keep_webhook_secret(study.folder, secret or api.create_secret(workspace))
    subscription = api.subscribe(workspace, EVENT, address.rstrip("/") + PATH)
    api.confirm(subscription)
    return subscription.id


def _verify(request: Request, secret: str, body: bytes) -> None:
    timestamp = request.headers.get("x-prolific-request-timestamp", "")
    given = request.headers.get("x-prolific-request-signature", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12 and given.isascii() and given):
        raise HTTPException(400, "The signature or its timestamp is missing.")
    if not hmac.compare_digest(signature_of(secret, timestamp, body), given):
        raise HTTPException(403, "The signature does not fit.")
    if abs(time.time() - int(timestamp)) > TOLERANCE:
        raise HTTPException(403, "The request is too old.")


def _event(body: bytes) -> RemoteSubmission | None:
    try:
        said: Any = json.loads(body)
    except ValueError:
        raise HTTPException(400, "This is not JSON.") from None
    if not isinstance(said, dict):
        raise HTTPException(400, "This is not an event.")
    event = cast("dict[str, Any]", said)
    if event.get("event_type") != EVENT:
        return None
    fields = [event.get(name) for name in ("resource_id", "participant_id", "status")]
    if not all(isinstance(field, str) and field for field in fields):
        raise HTTPException(400, "This event lacks the submission, the participant or the status.")
    return RemoteSubmission(id=str(fields[0]), pid=str(fields[1]), status=str(fields[2]))
