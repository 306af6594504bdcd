"""Open the pools, measure new candidates, and serve the pages until interrupted."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Callable
from pathlib import Path

from stillme.curation.checks import check_missing
from stillme.curation.decisions import Log
from stillme.curation.pages.app import create
from stillme.curation.pages.workspace import Workspace
from stillme.curation.pools import load_pools
from stillme.errors import StillmeError
from stillme.web.app import Site
from stillme.web.serving import Server
from stillme.web.sessions import SingleUser, new_token

_KEY = ".curate.key"


def serve(
    folder: Path,
    *,
    curators: int | None,
    host: str,
    port: int | None,
    browser: bool,
    say: Callable[[str], None],
    watch: Callable[[int, int], None] | None = None,
) -> None:
    """Serve the curation of `folder`."""
    pools = load_pools(folder)
    log = Log(pools)
    try:
        workspace = Workspace(pools, log, check_missing(pools, watch=watch))
        if curators:
            workspace.require_curators(curators)
        server = Server.choose(host=host, port=port)
        site = Site(title="Curate", package="stillme.curation.pages", hosts=server.hosts, secure=server.secure)
        user = SingleUser(site, key=_key(folder))
        app = create(workspace, site, user)
        address = server.address + user.entry_path
        say(f"Curate {len(workspace.cells)} cells at {address}")
        say("Several people may use this address, each under their name. Ctrl-C stops; nothing is lost.")
        if browser:
            webbrowser.open(address)
        server.run(app)
    finally:
        log.close()


def _key(folder: Path) -> str:
    """The key of these pools. Kept, so that an open page still works after a restart of the server."""
    file = folder / _KEY
    try:
        if not file.is_file():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(new_token())
        return file.read_text("utf-8").strip() or new_token()
    except OSError as error:
        raise StillmeError(f"{file} cannot be used ({error.strerror}). Make the folder writable.") from None
