"""Turn templates into pages."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from stillme.web.app import Site, static_folders


class Pages:
    """The templates of a site and the shared ones; everything is escaped, and an unknown name is an error."""

    def __init__(self, site: Site) -> None:
        self._folders = tuple(static_folders(site))
        self._environment = Environment(
            loader=ChoiceLoader([PackageLoader(site.package), PackageLoader("stillme.web")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._globals = {"static": self.static, "site": site}

    def show(self, name: str, status: int = 200, /, **context: Any) -> HTMLResponse:
        """Render a template."""
        return HTMLResponse(self._environment.get_template(name).render(self._globals, **context), status_code=status)

    def static(self, name: str) -> str:
        """The address of a static file, with the hash of its content so that browsers may keep it."""
        for folder in self._folders:
            if (folder / name).is_file():
                return f"/static/{name}?{_hash(folder / name)}"
        raise LookupError(f"no static file {name!r}")


@cache
def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
