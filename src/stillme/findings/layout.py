"""Markdown and pages in which a user's text is shown, never interpreted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stillme.core.files import write_whole

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;"}
"""`@` and `#` would call people and link issues in a pull request."""


def plain(text: str) -> str:
    """Any text as text: no markup, no link, no mention, no second line."""
    one_line = re.sub(r"\s+", " ", text)
    entities = "".join(_ENTITIES.get(letter, letter) for letter in one_line)
    # A bare address becomes a link by itself.
    unlinked = entities.replace("://", ":&#8203;//").replace("www.", "www&#8203;.")
    return re.sub(r"([\\`*_{}\[\]()|~!+=])", r"\\\1", unlinked)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], escape: Callable[[str], str] = plain) -> list[str]:
    """Lines of a table; heads are ours, cells are escaped."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return [*lines, *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows)]


def page(title: str, text: str, pictures: str = "") -> str:
    """The same as one self-contained HTML page; `pictures` is HTML to stand below the summary."""
    from html import escape

    from markdown_it import MarkdownIt

    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    summary, heading, rest = rendered.partition("<h2>")
    body = f"{summary}{pictures}{heading}{rest}"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n{body}</main></body></html>\n"
    )


def save(file: Path, text: str) -> None:
    """Write a file, and its folder if there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0}"
    "main{max-width:70rem;margin:auto;padding:1.5rem;overflow-x:auto}"
    "table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.3rem .8rem;border-bottom:1px solid #8886;white-space:nowrap}"
    ".pairs{display:grid;grid-template-columns:repeat(auto-fill,minmax(20rem,1fr));gap:1.2rem}"
    ".pairs figure{margin:0}.pairs div{display:grid;grid-template-columns:repeat(3,1fr);gap:3px;font-size:.8rem}"
    ".pairs img{width:100%;aspect-ratio:1;object-fit:cover;border-radius:6px}figcaption{font-size:.9rem}"
)
