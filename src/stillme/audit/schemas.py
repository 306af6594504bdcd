"""JSON Schemas of audit.toml and study.toml, for editors that complete and check them while one types."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel

from stillme.audit.config import Config as AuditConfig
from stillme.core import registry
from stillme.core.errors import StillmeError

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The one that TOML language servers read."""

FILE = "audit.schema.json"
"""What `stillme new` calls it, beside audit.toml."""

Schema = dict[str, Any]
_Kind = Literal["editor", "judge"]


def audit_schema() -> Schema:
    """Of audit.toml, with the parameters of every editor and judge that is installed here."""
    schema = schema_of(AuditConfig, "audit.toml of stillme")
    for kind, section in (("editor", "EditorSection"), ("judge", "JudgeSection")):
        _add_plugins(schema, cast("_Kind", kind), section)
    return schema


def schema_of(model: type[BaseModel], title: str) -> Schema:
    """Of the file that `model` describes."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] = schema.pop("$defs", {})
    return {"$schema": DIALECT, **schema, "title": title}


def _add_plugins(schema: Schema, kind: _Kind, section: str) -> None:
    """`use` completes to the names of plugins, and `parameters` to those of the one that is named."""
    chosen: list[Schema] = []
    names: list[str] = []
    for name in registry.plugins(kind):
        try:
            plugin = registry.editor_class(name) if kind == "editor" else registry.judge_class(name)
        except StillmeError:
            continue  # it cannot be imported here; `stillme doctor` says why
        prefix = f"{kind}:{name}"
        parameters = plugin.Parameters.model_json_schema(ref_template=f"#/definitions/{prefix}.{{model}}")
        for model, definition in parameters.pop("$defs", {}).items():
            schema["definitions"][f"{prefix}.{model}"] = definition
        # `use = "diffusers:owner/model"` gives one of them in short.
        parameters.pop("required", None)
        schema["definitions"][prefix] = parameters
        names.append(name)
        chosen.append(
            {
                "if": {"properties": {"use": {"pattern": f"^{name}(:|$)"}}},
                "then": {"properties": {"parameters": {"$ref": f"#/definitions/{prefix}"}}},
            }
        )
    table = schema["definitions"][section]
    use = table["properties"]["use"]
    use |= {"anyOf": [{"enum": names}, {"pattern": f"^({'|'.join(names)}):."}]}
    table["allOf"] = chosen
