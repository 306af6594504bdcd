"""The two files of the photograph: written one row a line, compared with a tolerance."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.made import make_all
from tests.golden.reading import photograph

NUMBERS = Path(__file__).with_name("numbers.json")
WORDS = Path(__file__).with_name("words.json")
_NEAR = 1e-5
"""Other processors round the last digits differently."""


def take() -> dict[Path, Any]:
    """What the code says now, by the file that holds what it said."""
    with tempfile.TemporaryDirectory(prefix="stillme-golden-") as folder:
        numbers, words = photograph(make_all(Path(folder)))
    return {NUMBERS: numbers, WORDS: words}


def as_text(document: Any, indent: int = 0) -> str:
    """JSON with one row a line."""
    if not isinstance(document, dict) or not any(isinstance(value, dict | list) for value in document.values()):
        return json.dumps(document, ensure_ascii=False)
    space = " " * (indent + 1)
    lines = [
        f"{space}{json.dumps(key, ensure_ascii=False)}: {as_text(item, indent + 1)}" for key, item in document.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """The places where two documents differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            place = f"{path} → {key}" if path else str(key)
            if key not in now:
                yield f"{place}: is gone"
            elif key not in before:
                yield f"{place}: is new"
            else:
                yield from differences(before[key], now[key], place)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{path} [{number}]")
    elif not _is_same(before, now):
        yield f"{path}: was {before!r}, is {now!r}"


def _is_same(before: Any, now: Any) -> bool:
    if isinstance(before, float | int) and isinstance(now, float | int):
        return math.isclose(before, now, rel_tol=_NEAR, abs_tol=1e-9)
    return before == now
