"""What the web apps share: safe by default, on loopback unless told otherwise, nothing from a CDN.

An app is a package with `templates/` and `static/`, and a function that builds it:

    from typing import Annotated
    from fastapi import Depends, Request
    from starlette.responses import RedirectResponse, Response

    from stillme.web.app import Pages, Site, create_app, read_form
    from stillme.web.sessions import Holder, KeyHolders, holder_of
    from stillme.web.serving import Server

    def build(server: Server) -> FastAPI:
        site = Site(title="Curate", package="stillme.curation.pages", hosts=server.hosts, secure=server.secure)
        app, pages = create_app(site), Pages(site)
        holders = KeyHolders(site, secret, ["Ada", "Bo"])       # a key for each, printed in the terminal
        holders.protect(app)
        Visitor = Annotated[Holder, Depends(holder_of)]

        @app.get("/")
        def home(visitor: Visitor) -> Response:
            return pages.show("home.html", csrf=visitor.csrf)   # {{ csrf }} goes into every form

        @app.post("/keep")
        async def keep(request: Request, visitor: Visitor) -> Response:
            form = await read_form(request)    # urlencoded, small; no uploads
            visitor.require_csrf(form.get("csrf"))
            return RedirectResponse("/", status_code=303)

        print(server.address + holders.entry_path("Ada"))       # http://127.0.0.1:8123/?key=…
        return app

    server = Server.choose(port=None)          # a free port on 127.0.0.1; `host="0.0.0.0"` must be asked for
    server.run(build(server))

Templates extend `page.html`, which brings the shared style; `{{ static("app.js") }}` gives the address of a file of the
app's or of ours. Inline script and style are refused by the browser (CSP): put them into files, and data into
`<script type="application/json">`. Requests that change something must come from our own pages (Origin, Sec-Fetch-Site)
and carry the CSRF token as a field or as the header `X-CSRF`. `stillme.web.database` opens SQLite, with an
append-only log in it.

This module imports nothing heavy: commands call `require("curate")` first, which names the pip command.
"""

from __future__ import annotations

from importlib.util import find_spec

from stillme.core.errors import MissingExtra

_NEEDS = {
    "curate": ("fastapi", "uvicorn", "sqlalchemy"),
    "study": ("fastapi", "uvicorn", "sqlalchemy", "argon2", "cryptography"),
}


def require(extra: str) -> None:
    """Raise `MissingExtra` with the pip command unless the packages of an app are installed."""
    missing = [name for name in _NEEDS[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f'`stillme {extra}` needs {", ".join(missing)}, not installed: run `pip install "stillme[{extra}]"`.'
        )
