"""The pages: who are you, the grid, one cell, settling what curators disagree on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from stillme.curation.criteria import load_criteria
from stillme.curation.decisions import Kind
from stillme.curation.pages.encoded_pictures import EncodedPictures, Size
from stillme.curation.pages.overview import FILTERS, Filter, grid, neighbours, progress, tiles
from stillme.curation.pages.workspace import MAX_NAME, NotAllowed, Workspace, clean_name
from stillme.curation.sampling import Cell
from stillme.types import Json, digest
from stillme.web.forms import read_form
from stillme.web.pages import Pages
from stillme.web.sessions import Cookie, SingleUser, new_token

_YEAR = 365 * 24 * 3600
_KEYS = {"frontal": "f", "focus": "o", "lighting": "l", "features": "i", "expression": "e", "upright": "p"}

routes = APIRouter()


class ActionRequest(BaseModel):
    """One action of the cell page's script."""

    model_config = ConfigDict(extra="forbid")

    curator: str = Field(max_length=MAX_NAME)
    cell: int
    kind: Kind
    token: str = Field(min_length=16, max_length=64)
    detail: dict[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationContext:
    """What every route needs; kept in `app.state.context`."""

    workspace: Workspace
    pages: Pages
    pictures: EncodedPictures
    user: SingleUser
    cookie: Cookie
    """Holds the curator's name."""

    def curator(self, request: Request) -> str:
        """The name that the browser kept; empty where there is none."""
        return clean_name(unquote(self.cookie.read(request) or ""))


class NoName(Exception):
    """The visitor has not given a name yet."""


async def context_of(request: Request) -> CurationContext:
    """What the app serves."""
    return request.app.state.context


Context = Annotated[CurationContext, Depends(context_of)]


async def curator_of(request: Request, context: Context) -> str:
    """Who is asking; whoever has no name is sent to the first page."""
    curator = context.curator(request)
    if not curator:
        raise NoName
    return curator


async def checked_form(request: Request, context: Context) -> Mapping[str, str]:
    """A form that one of our own pages sent; 403 for one from elsewhere."""
    form = await read_form(request)
    context.user.require_csrf(form.get("csrf"))
    return form


async def numbered_cell(context: Context, number: int) -> Cell:
    """The cell of an address; 404 where there is none."""
    return _cell(context.workspace, number)


Curator = Annotated[str, Depends(curator_of)]
Form = Annotated[Mapping[str, str], Depends(checked_form)]
NumberedCell = Annotated[Cell, Depends(numbered_cell)]


@routes.get("/")
def home(request: Request, context: Context) -> Response:
    """The grid of cells, or the question for a name."""
    curator, workspace = context.curator(request), context.workspace
    if not curator:
        return _name_page(context)
    chosen = Filter.of(workspace, request.query_params)
    cells = tiles(workspace, curator, chosen)
    return context.pages.show(
        "grid.html",
        csrf=context.user.csrf,
        curator=curator,
        levels=workspace.pools.design.levels,
        chosen=chosen,
        filters=FILTERS,
        rows=grid(workspace, cells),
        tiles=cells,
        first=next((tile.number for tile in cells if tile.matches), None),
        progress=progress(workspace),
        agreement=list(workspace.tally.agreement()),
        needed=workspace.tally.needed,
        cells=len(workspace.cells),
        decidable=sum(map(bool, workspace.pools.cells.values())),
        contested=[tile for tile in cells if tile.state == "contested"],
        page={"curator": curator, "csrf": context.user.csrf, "pools": workspace.pools.key},
    )


@routes.post("/name")
def enter_name(context: Context, form: Form) -> Response:
    """Keep the curator's name in a cookie."""
    curator = clean_name(form.get("name", ""))
    if not curator:
        return _name_page(context, f"Give a name of 1 to {MAX_NAME} letters.")
    response = RedirectResponse("/", status_code=303)
    context.cookie.set_on(response, quote(curator), seconds=_YEAR)
    return response


@routes.post("/leave", dependencies=[Depends(checked_form)])
def leave(context: Context) -> Response:
    """Forget the curator's name."""
    response = RedirectResponse("/", status_code=303)
    context.cookie.clear_on(response)
    return response


@routes.get("/cell/{number}")
def cell_page(request: Request, context: Context, curator: Curator, cell: NumberedCell, number: int) -> Response:
    """The candidates of one cell."""
    workspace, criteria = context.workspace, load_criteria()
    chosen = Filter.of(workspace, request.query_params)
    before, after = neighbours(tiles(workspace, curator, chosen), number)
    return context.pages.show(
        "cell.html",
        curator=curator,
        number=number,
        names=list(workspace.pools.design.levels),
        cell=cell,
        cells=len(workspace.cells),
        per_cell=workspace.pools.design.per_cell,
        candidates=workspace.open(curator, cell),
        criteria=criteria,
        keys=_KEYS,
        chosen=chosen,
        before=before,
        after=after,
        contested=workspace.tally.outcomes[cell].state == "contested",
        page={
            "curator": curator,
            "cell": number,
            "csrf": context.user.csrf,
            "pools": workspace.pools.key,
            "keys": {letter: criterion for criterion, letter in _KEYS.items()},
            "titles": {criterion.key: criterion.title for criterion in criteria.all},
            "reasons": dict(criteria.reasons),
            "perCell": workspace.pools.design.per_cell,
            "before": f"/cell/{before}{chosen.query}" if before else None,
            "after": f"/cell/{after}{chosen.query}" if after else None,
            "grid": f"/{chosen.query}",
            "state": workspace.state(curator, cell),
        },
    )


@routes.post("/act")
def act(request: Request, context: Context, action: ActionRequest) -> Response:
    """Log one action; on 200 it is on disk."""
    context.user.require_csrf(request.headers.get("x-csrf"))
    if action.curator != context.curator(request):
        raise HTTPException(409, f"You are not {action.curator} any more. Open the page again.")
    cell = _cell(context.workspace, action.cell)
    context.workspace.act(action.curator, cell, action.kind, action.detail, action.token)
    return JSONResponse(context.workspace.state(action.curator, cell))


@routes.get("/picture/{candidate}/{size}")
def picture(context: Context, candidate: str, size: Size) -> Response:
    """A candidate's picture without metadata."""
    if candidate not in context.workspace.pools.by_id:
        raise HTTPException(404, "There is no such picture.")
    webp = context.pictures.webp(candidate, size)
    return Response(webp, media_type="image/webp", headers={"Cache-Control": "private, max-age=86400"})


@routes.get("/settle/{number}", dependencies=[Depends(curator_of)])
def settle_page(context: Context, cell: NumberedCell, number: int) -> Response:
    """What curators disagree on."""
    return _settle_page(context, number, cell)


@routes.post("/settle/{number}")
def settle(context: Context, form: Form, cell: NumberedCell, curator: Curator, number: int) -> Response:
    """Decide a cell for all curators."""
    candidates = [name.removeprefix("candidate-") for name in form if name.startswith("candidate-")]
    if not candidates and "nobody" not in form:
        return _settle_page(context, number, cell, "Choose somebody, or say that no candidate fits.")
    try:
        token = form.get("token", "") or new_token()
        context.workspace.settle(curator, cell, candidates, form.get("note", ""), token)
    except NotAllowed as error:
        return _settle_page(context, number, cell, str(error))
    return RedirectResponse("/?show=contested", status_code=303)


def _name_page(context: CurationContext, wrong: str = "") -> Response:
    known = context.workspace.tally.curators
    status = 422 if wrong else 200
    return context.pages.show("name.html", status, csrf=context.user.csrf, known=known, wrong=wrong, longest=MAX_NAME)


def _settle_page(context: CurationContext, number: int, cell: Cell, wrong: str = "") -> Response:
    workspace = context.workspace
    outcome = workspace.tally.outcomes[cell]
    voted = sorted({candidate for chosen in outcome.votes.values() for candidate in chosen})
    # Neither who chose whom nor how many: whoever settles looks at the pictures.
    random.Random(digest([cell, voted])).shuffle(voted)
    return context.pages.show(
        "settle.html",
        422 if wrong else 200,
        csrf=context.user.csrf,
        number=number,
        cell=cell,
        per_cell=workspace.pools.design.per_cell,
        candidates=[workspace.view(candidate, place) for place, candidate in enumerate(voted, start=1)],
        token=new_token(),
        contested=outcome.state == "contested",
        wrong=wrong,
    )


def _cell(workspace: Workspace, number: int) -> Cell:
    try:
        return workspace.cell(number)
    except NotAllowed as error:
        raise HTTPException(404, str(error)) from None
