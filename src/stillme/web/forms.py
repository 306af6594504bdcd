"""Read what a form sent."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

FIELDS = 200


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a urlencoded form, the last of each name; anything else is answered with 415 or 400."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send this as a form.")
    try:
        body = (await request.body()).decode("utf-8")
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=FIELDS, errors="strict"))
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
