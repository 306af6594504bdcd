"""The command that shows a report while its run is in progress: serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillme.cli.options import audit_argument, json_option, out_option, print_json
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.core.types import Redaction


@click.command()
@audit_argument
@out_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; by default this machine only."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8777, show_default=True, help="0 takes any free one.")
@click.option("--redact", type=click.Choice(["blur", "omit"]), help="Blur portraits, or leave them out.")
@json_option
def serve(audit: Path, out: Path | None, host: str, port: int, redact: Redaction | None, as_json: bool) -> None:
    """Show the report in a browser while the run is in progress.

    Ctrl-C ends it. The page refreshes as rows come in; a button shows the newer numbers. Nothing is written, so the run
    is never disturbed. Only this machine can connect. With another --host, that network can see the portraits.
    """
    from stillme.report.server import Served
    from stillme.report.server import serve as serve_report
    from stillme.web.hosts import is_loopback

    def ready(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            echo(f"{address}  (Ctrl-C ends it)")
        if not is_loopback(host) and redact is None:
            echo(f"Anyone who can reach {host} sees the portraits; --redact blur hides them.", err=True)

    serve_report(Served(path=audit, out=out, redact=redact or "none", host=host, port=port), ready)
