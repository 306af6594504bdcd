"""Tables of TOML files: checked when they are read, and documented by the string that follows each field."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler


class Section(BaseModel):
    """A table of a TOML file. Unknown keys are mistakes."""

    # A command imports many of them and reads few: what checks a value is made with the first one.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # Not pydantic's `use_attribute_docstrings`: it reads the source of every section whenever one is imported.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in documented_fields(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


@cache
def documented_fields(record: type) -> dict[str, str]:
    """Docstrings of a record's fields, inherited ones included; none of a class without source."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        # Classes that were made at run time, or in C, have no source.
        with suppress(OSError, TypeError):
            found |= documented(textwrap.dedent(inspect.getsource(base)))
    return found


def documented(source: str) -> dict[str, str]:
    """Names that are assigned or annotated, with the string that follows them."""
    found: dict[str, str] = {}
    tree: Sequence[ast.stmt] = ast.parse(source).body
    for body in (tree, *(node.body for node in tree if isinstance(node, ast.ClassDef))):
        for statement, after in itertools.pairwise(body):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
                case _:
                    pass
    return found
