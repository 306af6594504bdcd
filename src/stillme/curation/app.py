"""The curation app: its pages and forms, and how it is served."""

from __future__ import annotations

import getpass
import os
import random
import webbrowser
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from stillme.core.errors import StillmeError
from stillme.core.types import Json, digest
from stillme.curation.decisions import Kind, Log
from stillme.curation.measuring import check_missing, load_criteria
from stillme.curation.pools import Cell, load_pools
from stillme.curation.workspace import MAX_NAME, EncodedPictures, NotAllowed, Size, Workspace, clean_name
from stillme.web.app import Holder, KeyHolders, Pages, Site, create_app, holder_of, new_token, read_form
from stillme.web.serving import WebServer

FILTERS = {
    "all": "all cells",
    "todo": "not decided by me",
    "mine": "decided by me",
    "contested": "curators disagree",
    "empty": "no candidate fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which cells are shown."""

    show: str = "all"
    levels: Mapping[str, str]
    """The level asked for, by attribute."""

    @classmethod
    def of(cls, workspace: Workspace, query: Mapping[str, str]) -> Filter:
        """Read a page's query; unknown values are ignored."""
        show = query.get("show", "all")
        levels = {
            name: query[name] for name, known in workspace.pools.design.levels.items() if query.get(name, "") in known
        }
        return cls(show=show if show in FILTERS else "all", levels=levels)

    @property
    def query(self) -> str:
        """The query that keeps this filter."""
        chosen = ({"show": self.show} if self.show != "all" else {}) | dict(self.levels)
        return "?" + urlencode(chosen) if chosen else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One cell of the grid."""

    number: int
    cell: Cell
    candidates: int
    mine: str
    """`chosen`, `none_fits`, `begun`, or nothing."""
    state: str
    """Of the cell, as far as this curator may know it."""
    others: int
    """Other curators who decided; 0 before this curator's own decision."""
    matches: bool

    @property
    def words(self) -> str:
        """The tile's state, for screen readers."""
        mine = {
            "chosen": "decided by you",
            "none_fits": "you found no candidate fit",
            "begun": "begun",
            "": "not begun",
        }
        parts = [f"{self.candidates} candidates", mine[self.mine]]
        if self.others:
            parts.append(f"decided by {self.others} other{'s' if self.others > 1 else ''}")
        if self.state == "contested":
            parts.append("curators disagree")
        return ", ".join(parts)


def tiles(workspace: Workspace, curator: str, chosen: Filter) -> list[Tile]:
    """Every cell, and whether the filter keeps it."""
    tally = workspace.tally
    names = list(workspace.pools.design.levels)
    every_tile: list[Tile] = []
    for number, cell in enumerate(workspace.cells, start=1):
        opinion, state = tally.opinion(curator, cell), tally.seen_state(curator, cell)
        decided = "chosen" if opinion.decided(workspace.pools.design.per_cell) else ""
        begun = "begun" if opinion.ticked or opinion.rejected or opinion.chosen else ""
        mine = "none_fits" if opinion.none_fits is not None else decided or begun
        shown = {
            "all": True,
            "todo": mine in ("", "begun") and bool(workspace.pools.cells[cell]),
            "mine": mine in ("chosen", "none_fits"),
            "contested": state == "contested",
            "empty": state == "empty" or mine == "none_fits" or not workspace.pools.cells[cell],
        }[chosen.show]
        here = all(chosen.levels.get(name, level) == level for name, level in zip(names, cell, strict=True))
        every_tile.append(
            Tile(
                number=number,
                cell=cell,
                candidates=len(workspace.pools.cells[cell]),
                mine=mine,
                state=state,
                others=len(set(tally.outcomes[cell].votes) - {curator}) if mine in ("chosen", "none_fits") else 0,
                matches=shown and here,
            )
        )
    return every_tile


def grid(workspace: Workspace, cells: Sequence[Tile]) -> list[tuple[tuple[str, ...], list[Tile]]]:
    """Rows of tiles: the last attribute runs across, the others down."""
    across = len(list(workspace.pools.design.levels.values())[-1])
    return [(cells[start].cell[:-1], list(cells[start : start + across])) for start in range(0, len(cells), across)]


def neighbours(cells: Sequence[Tile], number: int) -> tuple[int | None, int | None]:
    """The cells before and after this one that the filter keeps; it wraps around."""
    numbers = [tile.number for tile in cells if tile.matches]
    lower, higher = [other for other in numbers if other < number], [other for other in numbers if other > number]
    before, after = lower or higher, higher or lower
    return (before[-1] if before else None), (after[0] if after else None)


def progress(workspace: Workspace, curator: str) -> Mapping[str, int]:
    """Cells that each curator has decided; others are shown to a curator who has decided all of their own."""
    counted = Counter(name for outcome in workspace.tally.outcomes.values() for name in outcome.votes)
    done = counted[curator] == sum(bool(candidates) for candidates in workspace.pools.cells.values())
    return {name: counted[name] for name in workspace.tally.invited if done or name == curator}


_KEYS = {"frontal": "f", "focus": "o", "lighting": "l", "features": "i", "expression": "e", "upright": "p"}

routes = APIRouter()


class ActionRequest(BaseModel):
    """One action of the cell page's script."""

    model_config = ConfigDict(extra="forbid")

    cell: int
    kind: Kind
    token: str = Field(min_length=16, max_length=64)
    detail: dict[str, Json] = {}


class ActionsRequest(BaseModel):
    """All that waits in a browser, in order."""

    model_config = ConfigDict(extra="forbid")

    curator: str = Field(max_length=MAX_NAME)
    actions: list[ActionRequest] = Field(max_length=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationContext:
    """What every route needs; kept in `app.state.context`."""

    workspace: Workspace
    pages: Pages
    pictures: EncodedPictures


async def context_of(request: Request) -> CurationContext:
    """What the app serves."""
    return request.app.state.context


Context = Annotated[CurationContext, Depends(context_of)]
Curator = Annotated[Holder, Depends(holder_of)]


async def checked_form(request: Request, curator: Curator) -> Mapping[str, str]:
    """A form that one of our own pages sent; 403 for one from elsewhere."""
    form = await read_form(request)
    curator.require_csrf(form.get("csrf"))
    return form


async def numbered_cell(context: Context, number: int) -> Cell:
    """The cell of an address; 404 where there is none."""
    try:
        return context.workspace.cell(number)
    except NotAllowed as error:
        raise HTTPException(404, str(error)) from None


Form = Annotated[Mapping[str, str], Depends(checked_form)]
NumberedCell = Annotated[Cell, Depends(numbered_cell)]


@routes.get("/")
def home(request: Request, context: Context, curator: Curator) -> Response:
    """The grid of cells."""
    workspace, name = context.workspace, curator.name
    chosen = Filter.of(workspace, request.query_params)
    cells = tiles(workspace, name, chosen)
    compared = [cell for cell in workspace.cells if workspace.tally.opinion(name, cell).compared]
    return context.pages.show(
        "grid.html",
        csrf=curator.csrf,
        curator=name,
        levels=workspace.pools.design.levels,
        chosen=chosen,
        filters=FILTERS,
        rows=grid(workspace, cells),
        tiles=cells,
        first=next((tile.number for tile in cells if tile.matches), None),
        progress=progress(workspace, name),
        comparable=len(workspace.tally.comparable(name)),
        agreement=[pair for pair in workspace.tally.agreement(compared) if pair.cells],
        needed=workspace.tally.needed,
        cells=len(workspace.cells),
        decidable=sum(map(bool, workspace.pools.cells.values())),
        contested=[tile for tile in cells if tile.state == "contested"],
        page=_page(context, curator),
    )


@routes.post("/compare", dependencies=[Depends(checked_form)])
def compare(context: Context, curator: Curator) -> Response:
    """Show where curators disagree; from then on this curator's choices in these cells are final."""
    context.workspace.compare(curator.name)
    return RedirectResponse("/", status_code=303)


@routes.get("/cell/{number}")
def cell_page(request: Request, context: Context, curator: Curator, cell: NumberedCell, number: int) -> Response:
    """The candidates of one cell."""
    workspace, criteria, name = context.workspace, load_criteria(), curator.name
    chosen = Filter.of(workspace, request.query_params)
    before, after = neighbours(tiles(workspace, name, chosen), number)
    return context.pages.show(
        "cell.html",
        curator=name,
        number=number,
        names=list(workspace.pools.design.levels),
        cell=cell,
        cells=len(workspace.cells),
        per_cell=workspace.pools.design.per_cell,
        candidates=workspace.open(name, cell),
        criteria=criteria,
        keys=_KEYS,
        chosen=chosen,
        before=before,
        after=after,
        contested=workspace.tally.seen_state(name, cell) == "contested",
        page=_page(context, curator)
        | {
            "cell": number,
            "keys": {letter: criterion for criterion, letter in _KEYS.items()},
            "titles": {criterion.key: criterion.title for criterion in criteria.criteria},
            "reasons": dict(criteria.rejections),
            "perCell": workspace.pools.design.per_cell,
            "before": f"/cell/{before}{chosen.query}" if before else None,
            "after": f"/cell/{after}{chosen.query}" if after else None,
            "grid": f"/{chosen.query}",
            "state": workspace.state(name, cell),
        },
    )


@routes.post("/act")
def act(request: Request, context: Context, curator: Curator, waiting: ActionsRequest) -> Response:
    """Log actions in order; on 200 each is on disk, or refused with the reason."""
    curator.require_csrf(request.headers.get("x-csrf"))
    if waiting.curator != curator.name:
        raise HTTPException(409, f"You are not {waiting.curator} any more.")
    workspace = context.workspace
    refused: dict[str, str] = {}
    for action in waiting.actions:
        try:
            workspace.act(curator.name, workspace.cell(action.cell), action.kind, action.detail, action.token)
        except NotAllowed as error:
            refused[action.token] = str(error)
    known = {action.cell for action in waiting.actions if 1 <= action.cell <= len(workspace.cells)}
    states = {number: workspace.state(curator.name, workspace.cell(number)) for number in known}
    return JSONResponse({"refused": refused, "states": states})


@routes.get("/picture/{candidate}/{size}")
def picture(context: Context, candidate: str, size: Size) -> Response:
    """A candidate's picture without metadata."""
    if candidate not in context.workspace.pools.by_id:
        raise HTTPException(404, "There is no such picture.")
    webp = context.pictures.webp(candidate, size)
    return Response(webp, media_type="image/webp", headers={"Cache-Control": "private, max-age=86400"})


@routes.get("/settle/{number}")
def settle_page(context: Context, curator: Curator, cell: NumberedCell, number: int) -> Response:
    """What curators disagree on, for a curator who has decided the cell and compared."""
    return _settle_page(context, curator, number, cell)


@routes.post("/settle/{number}")
def settle(context: Context, form: Form, cell: NumberedCell, curator: Curator, number: int) -> Response:
    """Decide a cell for all curators, and go on to the next one."""
    candidates = [name.removeprefix("candidate-") for name in form if name.startswith("candidate-")]
    if not candidates and "none_fits" not in form:
        return _settle_page(context, curator, number, cell, "Choose a candidate, or say that no candidate fits.")
    if candidates and "none_fits" in form:
        return _settle_page(context, curator, number, cell, "Choose candidates or none, not both.")
    try:
        token = form.get("token", "") or new_token()
        context.workspace.settle(curator.name, cell, candidates, form.get("note", ""), token)
    except NotAllowed as error:
        return _settle_page(context, curator, number, cell, str(error))
    contested = _contested(context, curator)
    after = next((other for other in contested if other > number), next(iter(contested), None))
    return RedirectResponse(f"/settle/{after}" if after else "/", status_code=303)


def _settle_page(context: CurationContext, curator: Holder, number: int, cell: Cell, wrong: str = "") -> Response:
    workspace = context.workspace
    try:
        voted = workspace.votes(curator.name, cell)
    except NotAllowed as error:
        return context.pages.show("no-settling.html", 403, number=number, cell=cell, why=str(error))
    # Neither who chose whom nor how many: a curator who settles looks at the pictures.
    random.Random(digest([cell, voted])).shuffle(voted)
    contested = _contested(context, curator)
    return context.pages.show(
        "settle.html",
        422 if wrong else 200,
        csrf=curator.csrf,
        number=number,
        cell=cell,
        per_cell=workspace.pools.design.per_cell,
        candidates=[workspace.view(candidate, place) for place, candidate in enumerate(voted, start=1)],
        left=len(contested),
        token=new_token(),
        page=_page(context, curator) | {"perCell": workspace.pools.design.per_cell},
        wrong=wrong,
    )


def _contested(context: CurationContext, curator: Holder) -> list[int]:
    """The cells that this curator may settle, by number."""
    tally, cells = context.workspace.tally, enumerate(context.workspace.cells, start=1)
    return [number for number, cell in cells if tally.seen_state(curator.name, cell) == "contested"]


def _page(context: CurationContext, curator: Holder) -> dict[str, Any]:
    """What every page's script needs."""
    return {"curator": curator.name, "csrf": curator.csrf, "pools": context.workspace.pools.key}


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
        site = Site(title="Curate", package="stillme.curation", hosts=server.hosts, secure=server.secure)
        holders = KeyHolders(site, _secret(folder), people)
        app = create(workspace, site, holders)
        say(f"Curate {len(workspace.cells)} cells. Each curator has their own link; do not share them:")
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
    """What every key follows from. Kept, so that links and open pages still work after a restart."""
    file = folder / _SECRET
    try:
        if not file.is_file():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(new_token())
        return file.read_text("utf-8").strip() or new_token()
    except OSError as error:
        raise StillmeError(f"{file} cannot be used ({error.strerror}). Make the folder writable.") from None
