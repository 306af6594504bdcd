"""Put the curation app together."""

from __future__ import annotations

from fastapi import FastAPI

from stillme.curation.pages.encoded_pictures import EncodedPictures
from stillme.curation.pages.routes import CurationContext, routes
from stillme.curation.pages.workspace import Workspace
from stillme.web.app import Site, create_app
from stillme.web.pages import Pages
from stillme.web.sessions import KeyHolders


def create(workspace: Workspace, site: Site, curators: KeyHolders) -> FastAPI:
    """The app of one folder of pools, for these curators."""
    app = create_app(site)
    curators.protect(app)
    app.state.context = CurationContext(
        workspace=workspace, pages=Pages(site), pictures=EncodedPictures(workspace.pools)
    )
    app.include_router(routes)
    return app
