"""What the web apps share: safe by default, on loopback unless told otherwise, nothing from a CDN.

An app is a package with `templates/` and `static/`; `curation.app` is a small example. `web.app` builds it with
the guard and the headers, `web.sessions` lets people in, `web.serving` runs it, `web.database` keeps what they do.
Templates extend `page.html`; `{{ static("app.js") }}` gives the address of a file of the app's or of ours.
Inline script and style are refused by the browser (CSP): put them into files, and data into
`<script type="application/json">`. Requests that change something must come from our own pages (Origin, Sec-Fetch-Site)
and carry the CSRF token as a field or as the header `X-CSRF`.

This module imports nothing heavy: commands call `require("curate")` first, which names the pip command.
"""

from __future__ import annotations

from importlib.util import find_spec

from stillme.core.errors import MissingExtra

_NEEDS = {
    "curate": ("fastapi", "uvicorn"),
    "study": ("fastapi", "uvicorn", "argon2", "cryptography"),
}


def require(extra: str) -> None:
    """Raise `MissingExtra` with the pip command unless the packages of an app are installed."""
    missing = [name for name in _NEEDS[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f'`stillme {extra}` needs {", ".join(missing)}, not installed: run `pip install "stillme[{extra}]"`.'
        )
