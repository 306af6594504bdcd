"""Draw docs/img/architecture.svg, and the table of rooms in docs/architecture.md, from the real imports."""

from __future__ import annotations

import ast
import html
import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "img" / "architecture.svg"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: made by tools/architecture.py -->", "<!-- end of rooms -->"

EVERYBODY = frozenset({"core"})
"""Used everywhere: lines to it would hide the others."""
WIDTH, ROW, BOX, MARGIN = 1180, 74, 30, 16
LETTER = 7.4


def layers() -> list[list[str]]:
    """The rooms of each layer, the highest first, as import-linter holds them."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = next(c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"] if layer != "__main__"]


def imports() -> set[tuple[str, str]]:
    """Which room imports which, directly."""
    graph = grimp.build_graph("stillme", exclude_type_checking_imports=True)
    rooms = [room for layer in layers() for room in layer]
    pairs: set[tuple[str, str]] = set()
    for importer in rooms:
        modules = {f"stillme.{importer}", *graph.find_descendants(f"stillme.{importer}")}
        for module in modules:
            for imported in graph.find_modules_directly_imported_by(module):
                room = imported.removeprefix("stillme.").partition(".")[0]
                if room in rooms and room != importer:
                    pairs.add((importer, room))
    return pairs


def summary(room: str) -> str:
    """The first sentence of a room's documentation."""
    folder = ROOT / "src" / "stillme" / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]


def picture() -> str:
    """The layers as rows of boxes; a line for every direct import between rooms."""
    places: dict[str, tuple[float, float, float]] = {}
    rows = layers()
    for depth, rooms in enumerate(rows):
        widths = [len(room) * LETTER + 22 for room in rooms]
        gap = min(90.0, (WIDTH - 2 * MARGIN - sum(widths)) / max(1, len(rooms) - 1))
        left = (WIDTH - sum(widths) - gap * (len(rooms) - 1)) / 2
        for room, width in zip(rooms, widths, strict=True):
            places[room] = (left, MARGIN + depth * ROW, width)
            left += width + gap
    height = 2 * MARGIN + (len(rows) - 1) * ROW + BOX
    lines: list[str] = []
    for importer, imported in sorted(imports()):
        if imported in EVERYBODY:
            continue
        (x1, y1, w1), (x2, y2, w2) = places[importer], places[imported]
        lines.append(f'<path d="M{x1 + w1 / 2:.0f} {y1 + BOX:.0f}L{x2 + w2 / 2:.0f} {y2:.0f}"/>')
    boxes = [
        f'<g><rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{x + w / 2:.0f}" y="{y + BOX / 2 + 4.5:.1f}">{html.escape(room)}</text></g>'
        for room, (x, y, w) in places.items()
    ]
    style = (
        "path{stroke:#7a8ba5;stroke-width:.7;opacity:.38;fill:none}rect{fill:#f4f7fb;stroke:#34507a}"
        "text{font:13px ui-monospace,monospace;text-anchor:middle;fill:#14233b}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="Rooms of stillme by layer; lines are imports, which point downwards only">'
        f'<style>{style}</style><rect width="{WIDTH}" height="{height:.0f}" style="fill:#fff;stroke:none"/>'
        f"{''.join(lines)}{''.join(boxes)}</svg>\n"
    )


def table() -> str:
    """Every room with its first sentence, the highest layer first."""
    rows = [f"| `{room}` | {summary(room)} |" for rooms in layers() for room in rooms]
    return "\n".join([BEGIN, "", "| room | what it is |", "|---|---|", *rows, "", END])


def page(text: str) -> str:
    """The page with its table of rooms as it should be."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: table(), text, flags=re.DOTALL)


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
