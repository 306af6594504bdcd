"""How large stillme is, held by a ratchet: `python tools/size.py`, and `--set` after something was taken out.

A number may rise by at most 1 % above the one in `size.json`. Where a feature needs more, raise it there by hand and
give the reason in the commit. The goals are shown, not enforced.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import json
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
RATCHET = Path(__file__).with_name("size.json")
SLACK = 1.01

GOALS = {
    "src lines": 48_000,
    "src files": 270,
    "src rooms": 18,
    "class names that stand twice": 0,
    "tools and bench lines": 8_000,
    "tests lines": 34_000,
    "docs words": 45_000,
    "commands": 21,
}
"""Of the second edition; tokens have none of their own: they fall with the lines."""

_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def python_files(*folders: str) -> list[Path]:
    """All Python files below some folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def count_lines(files: Iterable[Path]) -> int:
    """Physical lines."""
    return sum(len(path.read_bytes().splitlines()) for path in files)


def count_tokens(files: Iterable[Path]) -> int:
    """Tokens without comments, docstrings and layout: what denser lines cannot hide."""
    return sum(_tokens_of(path.read_text("utf-8")) for path in files)


def _tokens_of(source: str) -> int:
    docstrings = _docstring_places(source)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in _LAYOUT and token.start not in docstrings for token in tokens)


def _docstring_places(source: str) -> set[tuple[int, int]]:
    """Where strings stand that are statements: docstrings, those of attributes too."""
    return {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def rooms() -> list[str]:
    """Packages and modules directly below `stillme`."""
    below = (ROOT / "src" / "stillme").iterdir()
    found = (path for path in below if path.suffix == ".py" or (path / "__init__.py").exists())
    return sorted(path.stem for path in found if not path.stem.startswith("__"))


def repeated_class_names() -> dict[str, list[str]]:
    """Public classes of one name in several modules."""
    places: dict[str, list[str]] = collections.defaultdict(list)
    for path in python_files("src"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT / "src")))
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def count_commands() -> int:
    """Commands that `stillme --help` shows."""
    import click

    from stillme.cli import cli

    context = click.Context(cli)
    commands = (cli.get_command(context, name) for name in cli.list_commands(context))
    return sum(command is not None and not command.hidden for command in commands)


def count_words() -> int:
    """Words of the documentation, decisions included."""
    return sum(len(path.read_text("utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))


def measure() -> dict[str, int]:
    """Every number that the ratchet holds."""
    src, tools, tests = python_files("src"), python_files("tools", "bench"), python_files("tests")
    return {
        "src lines": count_lines(src),
        "src tokens": count_tokens(src),
        "src files": len(src),
        "src rooms": len(rooms()),
        "class names that stand twice": len(repeated_class_names()),
        "tools and bench lines": count_lines(tools),
        "tools and bench tokens": count_tokens(tools),
        "tests lines": count_lines(tests),
        "tests tokens": count_tokens(tests),
        "docs words": count_words(),
        "commands": count_commands(),
    }


def main() -> int:
    """Print the numbers; fail where one rose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="store_true", help="commit to today's numbers where they fell")
    parser.add_argument("--twice", action="store_true", help="list class names that stand twice, with their modules")
    options = parser.parse_args()
    if options.twice:
        for name, where in repeated_class_names().items():
            print(f"{name}: {', '.join(where)}")
        return 0
    held: dict[str, int] = json.loads(RATCHET.read_text("utf-8"))
    now = measure()
    print(f"{'':30} {'now':>9} {'held':>9} {'goal':>9}")
    for name, number in now.items():
        goal = f"{GOALS[name]:,}" if name in GOALS else ""
        print(f"{name:30} {number:>9,} {held[name]:>9,} {goal:>9}")
    if options.set:
        RATCHET.write_text(json.dumps({name: min(number, held[name]) for name, number in now.items()}, indent=1) + "\n")
    risen = [name for name, number in now.items() if number > held[name] * SLACK]
    for name in risen:
        print(
            f"{name} rose from {held[name]:,} to {now[name]:,}. Take something out, or raise it in "
            f"{RATCHET.relative_to(ROOT)} and give the reason in the commit.",
            file=sys.stderr,
        )
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
