# SPDX-License-Identifier: GPL-3.0-or-later
"""Contact sheets of a rendered set: one PNG, and one HTML page that needs no other file."""

import base64
import csv
import html
import io
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_GAP, _CAPTION, _MARGIN = 6, 18, 84


def _rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "portraits.csv", newline="") as file:
        return list(csv.DictReader(file))


def _thumbnail(path: Path, size: int) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)


def _grid(rows: list[dict[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Cells (with their identity) down, presets across."""
    lines = list(dict.fromkeys((row["cell"], row["identity_seed"]) for row in rows))
    lines.sort(key=lambda line: (line[0][0], int(line[0][1:]), int(line[1])))
    return lines, sorted({row["preset"] for row in rows})


def write_sheet(folder: Path, thumbnail: int) -> None:
    rows = _rows(folder)
    lines, presets = _grid(rows)
    step_x, step_y = thumbnail + _GAP, thumbnail + _CAPTION + _GAP
    sheet = Image.new("RGB", (_MARGIN + step_x * len(presets), 28 + step_y * len(lines)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for column, preset in enumerate(presets):
        draw.text((_MARGIN + column * step_x + thumbnail // 2, 8), preset, "black", font=font)
    for line, (cell, _) in enumerate(lines):
        presentation = "feminine" if cell[0] == "f" else "masculine"
        draw.text((6, 28 + line * step_y + thumbnail // 2 - 8), f"{presentation}\n{cell[1:]}", "black", font=font)
    for row in rows:
        x = _MARGIN + presets.index(row["preset"]) * step_x
        y = 28 + lines.index((row["cell"], row["identity_seed"])) * step_y
        sheet.paste(_thumbnail(folder / row["file"], thumbnail), (x, y))
        caption = f"L* {float(row['L']):.0f}  ITA {float(row['ita']):.0f}°"
        draw.text((x + 2, y + thumbnail + 1), caption, "#555555", font=font)
    sheet.save(folder / "contact_sheet.png", optimize=True)
    (folder / "contact_sheet.html").write_text(_page(folder, rows, thumbnail))


def _page(folder: Path, rows: list[dict[str, str]], thumbnail: int) -> str:
    lines, presets = _grid(rows)
    by_place = {(row["cell"], row["identity_seed"], row["preset"]): row for row in rows}
    body = []
    for cell, seed in lines:
        cells = []
        for preset in presets:
            row = by_place.get((cell, seed, preset))
            cells.append(f"<td>{_figure(folder, row, thumbnail) if row else 'missing'}</td>")
        presentation = "feminine" if cell[0] == "f" else "masculine"
        body.append(f"<tr><th scope=row>{presentation}<br>{cell[1:]}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th scope=col>{preset}</th>" for preset in presets)
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><title>Synthetic portraits: contact sheet</title>
<meta name=viewport content="width=device-width, initial-scale=1">
<style>body{{font:14px system-ui,sans-serif;margin:1.5rem;color:#222}}table{{border-collapse:collapse}}
td,th{{padding:3px;text-align:center;font-weight:500}}figure{{margin:0}}figcaption{{font-size:11px;color:#666}}
img{{display:block;border-radius:4px}}thead th{{position:sticky;top:0;background:#fff}}</style>
<h1>Synthetic portraits</h1>
<p>{len(rows)} renders, CC0-1.0. Columns are appearance presets, rows are gender presentation and age parameter.
Within a row only the preset changes. Nobody here exists; presets are rendering parameters, not races.</p>
<table><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></html>
"""


def _figure(folder: Path, row: dict[str, str], thumbnail: int) -> str:
    buffer = io.BytesIO()
    _thumbnail(folder / row["file"], thumbnail).save(buffer, "WEBP", quality=72, method=6)
    data = base64.b64encode(buffer.getvalue()).decode()
    label = (
        f"Rendered portrait {row['id']}: preset {row['preset']}, "
        f"{row['gender_presentation']}, age parameter {row['age_parameter']}"
    )
    caption = f"L* {float(row['L']):.0f} · ITA {float(row['ita']):.0f}° · Monk {row['monk_nearest']}"
    return (
        f'<figure><img src="data:image/webp;base64,{data}" width={thumbnail} height={thumbnail} '
        f'loading=lazy alt="{html.escape(label)}"><figcaption>{html.escape(caption)}</figcaption></figure>'
    )
