"""Read what a form sent."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

FIELDS = 200
_DIGITS = 9


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


def number_in(form: Mapping[str, str], name: str) -> int:
    """A whole number of a form, 0 where it is empty; anything else is answered with 400."""
    text = form.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise HTTPException(400, "The form cannot be read. Open the page again and retry.")
    return int(text or 0)
