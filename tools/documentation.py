"""Build the documentation site: README, docs/ and pages made from the code, for a browser without a network.

The pages in docs/ are written to be read on GitHub too, so they link to files of the repository. Here every such link
becomes a link to a page of the site that shows the file.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live_examples

import stillme
from stillme.audit.config import audit_schema, schema_of
from stillme.study.config import StudyConfig

ROOT = Path(__file__).parent.parent
ASSETS = Path(__file__).parent / "site"
SHIM = "https://unpkg.com/iframe-worker/shim"
"""The one script that Zensical's offline plugin loads from the network: workers where a page is opened as a file."""

MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/decisions": "decisions/index.md",
    "src/stillme/portraits/data/CARD.md": "data-statement.md",
}
"""Where files that are not in docs/ stand on the site; all others are shown under files/."""

LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".json": "json"}
PICTURES = {".png", ".svg", ".jpg", ".webp"}


def build(out: Path, picture: Path | None = None, demo: Path | None = None) -> str:
    """Build the site into `out`, and return what the builder said; any issue that it finds is an error.

    `picture` is written again from the example's report, which is that of `demo` or of one that is made.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        live_examples.make(folder / "docs" / "example", folder / "scratch", picture, demo)
        stage(folder / "docs")
        settings = (ROOT / "zensical.toml").read_text("utf-8")
        _write(folder / "zensical.toml", settings.replace('"stillme"', f'"stillme {stillme.__version__}"', 1))
        builder = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        made = subprocess.run(
            builder, cwd=folder, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}, check=False
        )
        said = made.stdout + made.stderr
        if made.returncode or not (folder / "site" / "index.html").exists():
            raise SystemExit(f"Zensical could not build the site:\n{said}")
        _unplug(folder / "site")
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(folder / "site", out)
    return said


def stage(docs: Path) -> None:
    """Write every page of the site, with links that lead to pages of the site."""
    waiting = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "src/stillme/portraits/data/CARD.md"]
    waiting += [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "docs").rglob("*.md"))]
    written: set[str] = set()
    while waiting:
        source = waiting.pop()
        if source in written:
            continue
        written.add(source)
        if source.endswith(".md"):
            text, linked = _relinked(source)
            waiting += linked
        elif Path(source).suffix in PICTURES:
            _copy(ROOT / source, docs / _place(source))
            continue
        elif source in MOVED:
            text = _decisions()
        else:
            text = _shown(source)
        _write(docs / _place(source), text)
    for name, text in _generated().items():
        _write(docs / name, text)
    for name in ("site.css", "iframe-worker.js"):
        _copy(ASSETS / name, docs / "assets" / name)


def _place(source: str) -> str:
    """Where a file of the repository stands on the site."""
    if source in MOVED:
        return MOVED[source]
    if Path(source).suffix in PICTURES:
        return source.removeprefix("docs/")
    if source.startswith("docs/") and source.endswith(".md"):
        return source.removeprefix("docs/")
    return f"files/{source.removesuffix('.md')}.md"


def _relinked(source: str) -> tuple[str, list[str]]:
    """A page with its links changed, and the files that it links to."""
    linked: list[str] = []
    here = posixpath.dirname(_place(source))

    def change(match: re.Match[str]) -> str:
        target, hash_sign, anchor = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (ROOT / file).exists():
            raise SystemExit(f"{source} links to {target}, which is not there.")
        linked.append(file)
        return f"]({posixpath.relpath(_place(file), here or '.')}{hash_sign}{anchor})"

    # Code is left alone: what looks like a link there is none.
    parts = re.split(
        r"(^```.*?^```$|`[^`\n]+`(?!\]))", (ROOT / source).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    changed = [_code(part) if part.startswith("`") else re.sub(r"\]\(([^)\s]+)\)", change, part) for part in parts]
    # Unlike GitHub, Python-Markdown wants an empty line between a paragraph and its list.
    return re.sub(
        r"^((?![|#>]|[-*] |\d+\. )\S.*)\n(?=(?:-|\d+\.) )", r"\1\n\n", "".join(changed), flags=re.MULTILINE
    ), linked


def _code(text: str) -> str:
    """Code as it stands; only GitHub wants a bar escaped in the code of a table's cell."""
    return text if text.startswith("```") else text.replace("\\|", "|")


def _shown(source: str) -> str:
    """A page that shows a file, or every file of a folder."""
    path = ROOT / source
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*.*") if "__pycache__" not in file.parts)
    lines = [f"# {source}"]
    for file in files:
        if file.is_file():
            name = [] if file == path else ["", f"## {file.relative_to(path).as_posix()}"]
            code = file.read_text("utf-8").rstrip()
            lines += [*name, "", f"~~~~{LANGUAGES.get(file.suffix, 'text')}", code, "~~~~"]
    return "\n".join(lines)


def _decisions() -> str:
    lines = ["# Decisions", "", "Half a page each: what was decided, why, and what was not done.", ""]
    for file in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = file.read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({file.name})")
    return "\n".join(lines)


# -- pages made from the code --------------------------------------------------------------------------------------


def _generated() -> dict[str, str]:
    audit = audit_schema()
    return {
        "reference/audit-keys.md": _keys(
            "Keys of audit.toml",
            "Made from the JSON Schema that `stillme schema` prints. [audit.toml](../audit.md) shows them in use.",
            audit,
        ),
        "reference/study-keys.md": _keys(
            "Keys of study.toml",
            "Made from the JSON Schema that `stillme schema study` prints. [The study](../study.md) uses them.",
            schema_of(StudyConfig, "study.toml of stillme"),
        ),
        "reference/parameters.md": _parameters(audit),
        "reference/python-api.md": _python(),
    }


def _keys(title: str, introduction: str, schema: dict[str, Any]) -> str:
    lines = [f"# {title}", "", introduction, "", "## At the top", "", *_table(schema, schema)]
    for name, value in schema["properties"].items():
        section = _definition(value, schema)
        if "properties" in section:
            brackets = f"[[{name}]]" if value.get("type") == "array" else f"[{name}]"
            lines += ["", f"## {brackets}", "", section.get("description", ""), "", *_table(section, schema)]
    return "\n".join(lines)


def _parameters(schema: dict[str, Any]) -> str:
    lines = ["# Parameters of editors and judges", "", "`parameters` of each, made from its class.", ""]
    for kind in ("editor", "judge"):
        lines += [f"## {kind.capitalize()}s", ""]
        for name, definition in schema["definitions"].items():
            plugin = name.removeprefix(f"{kind}:")
            if plugin == name or "." in plugin:
                continue
            lines += [f"### {plugin}", ""]
            lines += _table(definition, schema) if definition.get("properties") else ["It has no parameters."]
            lines.append("")
    return "\n".join(lines)


def _table(section: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    return ["| key | type | default | meaning |", "|---|---|---|---|", *_rows(section, schema)]


def _rows(section: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in section["properties"].items():
        inner = _definition(value, schema)
        if "properties" in inner and section is schema:
            continue  # has a section of its own
        default = "needed" if name in section.get("required", ()) else _default(value)
        meaning = " ".join(value.get("description", "").split())
        yield f"| `{prefix}{name}` | {_type(value, schema)} | {default} | {meaning} |"
        if "properties" in inner:
            yield from _rows(inner, schema, f"{prefix}{name}.")


def _definition(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The definition that a key's value refers to, alone, in a list, or where it may also be absent."""
    for each in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in each:
            return schema["definitions"][each["$ref"].removeprefix("#/definitions/")]
    return {}


def _default(value: dict[str, Any]) -> str:
    if value.get("default") is None:
        return ""
    return f"`{json.dumps(value['default'], ensure_ascii=False)}`"


def _type(value: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in value:
        return _type(_definition(value, schema), schema)
    if "anyOf" in value and "type" not in value:
        kinds = (_type(each, schema) for each in value["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        return f"list of {_type(value['items'], schema)}" if value.get("items") else "list"
    return {"object": "table", "string": "text", "": "any"}.get(value.get("type", ""), value.get("type", ""))


def _python() -> str:
    lines = ["# Python API", "", "Made from the code. [Python](../python.md) has examples.", ""]
    for name in sorted(stillme.__all__, key=str.lower):
        value = getattr(stillme, name)
        lines += [f"## stillme.{name}", ""]
        if inspect.isfunction(value):
            lines += ["~~~~python", f"{name}{inspect.signature(value)}", "~~~~", ""]
        lines += [inspect.getdoc(value) or "", ""]
        if inspect.isclass(value):
            lines += _members(value)
    return "\n".join(lines)


def _members(kind: type) -> list[str]:
    fields = getattr(kind, "__annotations__", {})
    rows = [f"| `{name}` | `{fields[name]}` |" for name in fields if not name.startswith("_")]
    lines = ["| field | type |", "|---|---|", *rows, ""] if rows else []
    for name, method in vars(kind).items():
        function = method.fget if isinstance(method, property) else method
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        shown = name if isinstance(method, property) else f"{name}{inspect.signature(function)}"
        first, *_ = (inspect.getdoc(function) or "").split("\n\n")
        lines += [f"- `{shown}`: {' '.join(first.split())}" if first else f"- `{shown}`"]
    return [*lines, ""]


# -- files ---------------------------------------------------------------------------------------------------------


def _unplug(site: Path) -> None:
    """Load the worker shim from the site itself."""
    for page in site.rglob("*.html"):
        local = posixpath.relpath("assets/iframe-worker.js", page.parent.relative_to(site).as_posix())
        page.write_text(page.read_text("utf-8").replace(SHIM, local), "utf-8")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site")
    parser.add_argument("--picture", type=Path, help="also write README's picture of a report")
    parser.add_argument("--demo", type=Path, help="a finished demo to show, instead of a new one")
    options = parser.parse_args()
    out = options.out
    build(out, options.picture, options.demo)
    print(f"Open {out / 'index.html'}: it needs no server and no network.")


if __name__ == "__main__":
    main()
