"""The lines of audit.toml that make imported scores part of an audit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import tomli_w

from stillme.audit import load
from stillme.core.errors import Invalid, StillmeError
from stillme.core.files import whole
from stillme.judges.imported import ImportedParameters


def judge_table(name: str, parameters: ImportedParameters, epochs: int) -> str:
    """A `[[judges]]` table for these scores."""
    head = {"use": "imported", "name": name} | ({"epochs": epochs} if epochs > 1 else {})
    return tomli_w.dumps({"judges": [head | {"parameters": parameters.model_dump(mode="json")}]})


def append_table(file: Path, table: str) -> None:
    """Append the table to audit.toml, if the file is then still a valid audit."""
    extended = file.read_text("utf-8-sig").rstrip("\n") + "\n\n" + table
    try:
        with whole(file) as draft:
            draft.write_text(extended, "utf-8")
            tomllib.loads(extended)
            load(draft, ready=False)
    except (tomllib.TOMLDecodeError, Invalid) as error:
        raise StillmeError(f"{file} is not valid with these lines; add them by hand:\n\n{table}\n{error}") from None
