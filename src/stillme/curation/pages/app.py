"""Put the curation app together."""

from __future__ import annotations

import getpass
import os
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import FastAPI

from stillme.core.errors import StillmeError
from stillme.curation.decisions import Log
from stillme.curation.measuring import check_missing
from stillme.curation.pages.routes import CurationContext, routes
from stillme.curation.pages.workspace import EncodedPictures, Workspace, clean_name
from stillme.curation.pools import load_pools
from stillme.web.app import Pages, Site, create_app
from stillme.web.serving import WebServer
from stillme.web.sessions import KeyHolders, new_token


def create(workspace: Workspace, site: Site, curators: KeyHolders) -> FastAPI:
    """The app of one folder of pools, for these curators."""
    app = create_app(site)
    curators.protect(app)
    app.state.context = CurationContext(
        workspace=workspace, pages=Pages(site), pictures=EncodedPictures(workspace.pools)
    )
    app.include_router(routes)
    return app


_SECRET = ".curate.key"


def serve(
    folder: Path,
    *,
    curators: int | None,
    names: Sequence[str],
    host: str,
    port: int | None,
    browser: bool,
    say: Callable[[str], None],
    watch: Callable[[int, int], None] | None = None,
) -> None:
    """Serve the curation of `folder` to these people and those of before; each has a link of their own."""
    pools = load_pools(folder)
    log = Log(pools)
    try:
        workspace = Workspace(pools, log, check_missing(pools, watch=watch))
        if curators:
            workspace.require_curators(curators)
        people = workspace.invite(names) or workspace.invite([_own_name()])
        server = WebServer.choose(host=host, port=port)
        site = Site(title="Curate", package="stillme.curation.pages", hosts=server.hosts, secure=server.secure)
        holders = KeyHolders(site, _secret(folder), people)
        app = create(workspace, site, holders)
        say(f"Curate {len(workspace.cells)} cells. Everybody has a link of their own; do not share them:")
        for name in people:
            say(f"  {name}: {server.address}{holders.entry_path(name)}")
        if (needed := workspace.tally.needed) > len(people):
            say(f"{needed} curators must decide a cell, and {len(people)} have a link.")
        say("`--name NAME` adds a curator. Ctrl-C stops; nothing is lost.")
        if browser and len(people) == 1:
            webbrowser.open(server.address + holders.entry_path(people[0]))
        server.run(app)
    finally:
        log.close()


def _own_name() -> str:
    try:
        return clean_name(getpass.getuser()) or "curator"
    except (OSError, KeyError):  # a user without an entry, as in some containers
        return "curator"


def _secret(folder: Path) -> str:
    """What everybody's key follows from. Kept, so that links and open pages still work after a restart."""
    file = folder / _SECRET
    try:
        if not file.is_file():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(new_token())
        return file.read_text("utf-8").strip() or new_token()
    except OSError as error:
        raise StillmeError(f"{file} cannot be used ({error.strerror}). Make the folder writable.") from None
