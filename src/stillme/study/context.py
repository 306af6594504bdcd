"""What every route needs: the study, its pages, cookies and limits, and who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stillme.study.answers import Answers
from stillme.study.entry import Visitor, recognise
from stillme.study.opening import Study
from stillme.web.forms import read_form
from stillme.web.pages import Pages
from stillme.web.request_limits import RequestLimit
from stillme.web.sessions import Cookie, csrf_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyContext:
    """One study as it is served; kept in `app.state.context`."""

    study: Study
    preview: bool
    pages: Pages
    answers: Answers
    cookie: Cookie
    admin_cookie: Cookie
    entries: RequestLimit
    requests: RequestLimit
    logins: RequestLimit

    def page(self, name: str, visitor: Visitor | None = None, status: int = 200, /, **values: object) -> Response:
        """A participant's page."""
        csrf = csrf_of(visitor.token) if visitor else ""
        config = self.study.config_of(visitor.version if visitor else None)
        shown = {"config": config, "visitor": visitor, "csrf": csrf, "preview": self.preview}
        return self.pages.show(name, status, **shown, **values)

    def visitor(self, request: Request) -> Visitor | None:
        """Whose session the request carries, if anybody's."""
        with self.study.database.reading() as connection:
            return recognise(self.study, connection, self.cookie.read(request))


async def context_of(request: Request) -> StudyContext:
    """The study that the app serves. Not blocking, so it needs no thread of its own."""
    return request.app.state.context


Context = Annotated[StudyContext, Depends(context_of)]
Form = Annotated[Mapping[str, str], Depends(read_form)]


def participant_of(request: Request, context: Context) -> Visitor:
    """Whose session the request carries; 401 without one, 429 for too many requests."""
    visitor = context.visitor(request)
    if visitor is None:
        raise HTTPException(401, "You are not signed in. Please open the link you were given once more.")
    context.requests.require(visitor.participant)
    return visitor


Participant = Annotated[Visitor, Depends(participant_of)]


def client(request: Request) -> str:
    """The address that a request came from."""
    return request.client.host if request.client else ""
