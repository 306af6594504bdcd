"""The pages: who are you, the grid, one cell, settling what curators disagree on."""

from __future__ import annotations

import random
from urllib.parse import quote, unquote

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from stillme.curation.criteria import load_criteria
from stillme.curation.decisions import Kind
from stillme.curation.pages.desk import LONGEST_NAME, Desk, NotAllowed, clean_name
from stillme.curation.pages.overview import FILTERS, Filter, grid, neighbours, progress, tiles
from stillme.curation.pages.pictures import Pictures, Size
from stillme.curation.sampling import Cell
from stillme.types import Json, digest
from stillme.web.app import Site, create_app
from stillme.web.forms import read_form
from stillme.web.pages import Pages
from stillme.web.sessions import Cookie, SingleUser, new_token

_YEAR = 365 * 24 * 3600
_KEYS = {"frontal": "f", "focus": "o", "lighting": "l", "features": "i", "expression": "e", "upright": "p"}


class Act(BaseModel):
    """One action of the cell page's script."""

    model_config = ConfigDict(extra="forbid")

    curator: str = Field(max_length=LONGEST_NAME)
    cell: int
    kind: Kind
    token: str = Field(min_length=16, max_length=64)
    detail: dict[str, Json] = {}


def create(desk: Desk, site: Site, user: SingleUser) -> FastAPI:
    """Build the app."""
    app, pages, pictures = create_app(site), Pages(site), Pictures(desk.pools)
    user.protect(app)
    curator_cookie = Cookie(name="stillme-curator", secure=site.secure)

    def who(request: Request) -> str:
        return clean_name(unquote(curator_cookie.read(request) or ""))

    def refuse(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status_code=422)

    app.add_exception_handler(NotAllowed, refuse)

    @app.get("/")
    def home(request: Request) -> Response:
        curator = who(request)
        if not curator:
            return pages.show("name.html", csrf=user.csrf, known=desk.standing.curators, wrong="", longest=LONGEST_NAME)
        chosen = Filter.of(desk, request.query_params)
        found = tiles(desk, curator, chosen)
        return pages.show(
            "grid.html",
            csrf=user.csrf,
            curator=curator,
            levels=desk.pools.design.levels,
            chosen=chosen,
            filters=FILTERS,
            rows=grid(desk, found),
            tiles=found,
            first=next((tile.number for tile in found if tile.matches), None),
            progress=progress(desk),
            agreement=list(desk.standing.agreement()),
            needed=desk.standing.needed,
            cells=len(desk.cells),
            decidable=sum(map(bool, desk.pools.cells.values())),
            contested=[tile for tile in found if tile.state == "contested"],
            page={"curator": curator, "csrf": user.csrf, "pools": desk.pools.key},
        )

    @app.post("/name")
    async def name(request: Request) -> Response:
        form = await read_form(request)
        user.require_csrf(form.get("csrf"))
        curator = clean_name(form.get("name", ""))
        if not curator:
            wrong = f"Give a name of 1 to {LONGEST_NAME} letters."
            known = desk.standing.curators
            return pages.show("name.html", 422, csrf=user.csrf, known=known, wrong=wrong, longest=LONGEST_NAME)
        response = RedirectResponse("/", status_code=303)
        curator_cookie.give(response, quote(curator), seconds=_YEAR)
        return response

    @app.post("/leave")
    async def leave(request: Request) -> Response:
        form = await read_form(request)
        user.require_csrf(form.get("csrf"))
        response = RedirectResponse("/", status_code=303)
        curator_cookie.take(response)
        return response

    @app.get("/cell/{number}")
    def cell_page(request: Request, number: int) -> Response:
        curator = who(request)
        if not curator:
            return RedirectResponse("/", status_code=303)
        cell, chosen = _cell(desk, number), Filter.of(desk, request.query_params)
        found = tiles(desk, curator, chosen)
        before, after = neighbours(found, number)
        candidates = desk.open(curator, cell)
        return pages.show(
            "cell.html",
            curator=curator,
            number=number,
            names=list(desk.pools.design.levels),
            cell=cell,
            cells=len(desk.cells),
            per_cell=desk.pools.design.per_cell,
            candidates=candidates,
            criteria=load_criteria(),
            keys=_KEYS,
            chosen=chosen,
            before=before,
            after=after,
            contested=desk.standing.outcomes[cell].state == "contested",
            page={
                "curator": curator,
                "cell": number,
                "csrf": user.csrf,
                "pools": desk.pools.key,
                "keys": {letter: criterion for criterion, letter in _KEYS.items()},
                "titles": {each.key: each.title for each in load_criteria().all},
                "reasons": dict(load_criteria().reasons),
                "perCell": desk.pools.design.per_cell,
                "before": f"/cell/{before}{chosen.query}" if before else None,
                "after": f"/cell/{after}{chosen.query}" if after else None,
                "grid": f"/{chosen.query}",
                "state": desk.state(curator, cell),
            },
        )

    @app.post("/act")
    def act(request: Request, asked: Act) -> Response:
        user.require_csrf(request.headers.get("x-csrf"))
        if asked.curator != who(request):
            raise HTTPException(409, f"You are not {asked.curator} any more. Open the page again.")
        cell = _cell(desk, asked.cell)
        desk.act(asked.curator, cell, asked.kind, asked.detail, asked.token)
        return JSONResponse(desk.state(asked.curator, cell))

    @app.get("/picture/{candidate}/{size}")
    def picture(candidate: str, size: Size) -> Response:
        if candidate not in desk.pools.by_id:
            raise HTTPException(404, "There is no such picture.")
        shown = pictures.webp(candidate, size)
        return Response(shown, media_type="image/webp", headers={"Cache-Control": "private, max-age=86400"})

    @app.get("/settle/{number}")
    def settle_page(request: Request, number: int) -> Response:
        curator = who(request)
        if not curator:
            return RedirectResponse("/", status_code=303)
        return _settling(number, _cell(desk, number), "")

    @app.post("/settle/{number}")
    async def settle(request: Request, number: int) -> Response:
        form = await read_form(request)
        user.require_csrf(form.get("csrf"))
        curator, cell = who(request), _cell(desk, number)
        if not curator:
            return RedirectResponse("/", status_code=303)
        candidates = [name.removeprefix("candidate-") for name in form if name.startswith("candidate-")]
        if not candidates and "nobody" not in form:
            return _settling(number, cell, "Choose somebody, or say that no candidate fits.")
        try:
            desk.settle(curator, cell, candidates, form.get("note", ""), form.get("token", "") or new_token())
        except NotAllowed as error:
            return _settling(number, cell, str(error))
        return RedirectResponse("/?show=contested", status_code=303)

    def _settling(number: int, cell: Cell, wrong: str) -> Response:
        outcome = desk.standing.outcomes[cell]
        voted = sorted({candidate for chosen in outcome.votes.values() for candidate in chosen})
        # Neither who chose whom nor how many: whoever settles looks at the pictures.
        random.Random(digest([cell, voted])).shuffle(voted)
        return pages.show(
            "settle.html",
            422 if wrong else 200,
            csrf=user.csrf,
            number=number,
            cell=cell,
            per_cell=desk.pools.design.per_cell,
            candidates=[desk.look(each, place) for place, each in enumerate(voted, start=1)],
            token=new_token(),
            contested=outcome.state == "contested",
            wrong=wrong,
        )

    return app


def _cell(desk: Desk, number: int) -> Cell:
    try:
        return desk.cell(number)
    except NotAllowed as error:
        raise HTTPException(404, str(error)) from None
