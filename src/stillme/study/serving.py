"""Serve a study."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stillme.errors import StillmeError
from stillme.study.app import build
from stillme.study.config import FILE, InvalidStudy, lacking_for_people, warnings
from stillme.study.entry import invite
from stillme.study.opening import DATABASE, open_study
from stillme.web.serving import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how a study is served."""

    host: str = "127.0.0.1"
    port: int | None = None
    public_url: str = ""
    database: str | None = None
    workers: int = 1
    proxies: tuple[str, ...] = ()


def preview(folder: Path, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve the study in `folder` on a database that is thrown away, until interrupted."""
    with tempfile.TemporaryDirectory(prefix="stillme-preview-") as scratch:
        database = Path(scratch) / DATABASE
        with open_study(folder, database) as study:
            file = folder / FILE
            for problem in lacking_for_people(study.config, file):
                say(f"Before participants come: {problem}")
            for warning in warnings(study.config):
                say(f"Note: {warning}")
            server = Server.choose(host=options.host, port=options.port, public_url=options.public_url)
            (code,) = invite(study, 1)
            say(f"Preview at {server.address}/i/{code}")
            say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; nothing of this is kept.")
            server.run(build(study, hosts=server.hosts, secure=server.secure, preview=True))


def serve(folder: Path, options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve the study in `folder` until interrupted."""
    if options.workers > 1 and options.database is None:
        raise StillmeError("SQLite is for one worker. Add `--database postgresql://…`, or leave out `--workers`.")
    # Opened once beforehand, so that mistakes are reported before anything listens.
    with open_study(folder, options.database, renew=True) as study:
        if lacking := lacking_for_people(study.config, folder / FILE):
            raise InvalidStudy(str(folder / FILE), lacking)
        for warning in warnings(study.config):
            say(f"Note: {warning}")
        drawn = study.drawn
        entrance = "/enter?PROLIFIC_PID=…&STUDY_ID=…&SESSION_ID=…" if study.config.prolific else "/i/CODE"
    server = Server.choose(host=options.host, port=options.port, public_url=options.public_url)
    if server.public and not server.secure:
        say("Note: other machines can reach this without https. Put a proxy in front and name it with --public-url.")
    say(f"Study of {drawn.batches} tasks at {server.address}; participants enter by {entrance}")
    say(f"Admin pages: {server.address}/admin    Stop with Ctrl+C; every acknowledged answer is on disk.")

    def work() -> None:
        with open_study(folder, options.database, renew=True) as study:
            app = build(study, hosts=server.hosts, secure=server.secure)
            server.run(app, trusted_proxies=options.proxies)

    if options.workers > 1:
        server.run_many(work, options.workers)
    else:
        work()
