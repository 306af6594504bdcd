"""The lines of audit.toml that make imported scores part of an audit."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal

import tomli_w

from stillme.audit import load
from stillme.errors import Invalid, StillmeError
from stillme.judges.imported import ImportedParameters

Kind = Literal["model", "instrument", "person"]


def lines(name: str, parameters: ImportedParameters, epochs: int) -> str:
    """A `[[judges]]` table for these scores."""
    head = {"use": "imported", "name": name} | ({"epochs": epochs} if epochs > 1 else {})
    return tomli_w.dumps({"judges": [head | {"parameters": parameters.model_dump(mode="json")}]})


def add(file: Path, table: str) -> None:
    """Append the table to audit.toml, if the file is then still an audit."""
    before = file.read_text("utf-8-sig")
    after = before.rstrip("\n") + "\n\n" + table
    draft = file.with_name(f".{file.name}.{os.getpid()}.toml")
    try:
        tomllib.loads(after)
        draft.write_text(after, "utf-8")
        load(draft, ready=False)
    except (tomllib.TOMLDecodeError, Invalid) as error:
        raise StillmeError(f"{file} cannot take these lines; add them by hand:\n\n{table}\n{error}") from None
    else:
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
