"""What every route needs: the study, its pages, its cookies and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from stillme.study.answers import Answers
from stillme.study.entry import Visitor, recognise
from stillme.study.opening import Study
from stillme.web.limits import Limit
from stillme.web.pages import Pages
from stillme.web.sessions import Cookie


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One study as it is served."""

    study: Study
    pages: Pages
    answers: Answers
    cookie: Cookie
    admin_cookie: Cookie
    entries: Limit
    requests: Limit
    logins: Limit

    def visitor(self, request: Request) -> Visitor | None:
        """Whose session the request carries, if anybody's."""
        with self.study.database.reading() as connection:
            return recognise(self.study, connection, self.cookie.read(request))

    def participant(self, request: Request) -> Visitor:
        """Whose session the request carries; 401 for strangers, 429 for the hasty."""
        visitor = self.visitor(request)
        if visitor is None:
            raise HTTPException(401, "You are not signed in. Please open the link you were given once more.")
        self.requests.require(visitor.participant)
        return visitor


def client(request: Request) -> str:
    """The address that a request came from."""
    return request.client.host if request.client else ""


def markdown(text: str) -> Markup:
    """A researcher's Markdown as HTML; raw HTML in it is shown, not obeyed."""
    return Markup(MarkdownIt("commonmark", {"html": False}).render(text))
