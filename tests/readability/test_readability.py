"""A reader's test: the field's words in README and docs, and every term of `--help` and report in the glossary."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from stillme.cli import cli
from stillme.core import rubric
from stillme.core.images import encode_png
from stillme.core.types import Arm
from stillme.estimates import Settings
from stillme.estimates.quantities import EDIT_RATES
from stillme.findings.gate.verdicts import Verdict
from stillme.findings.tables.analyses import ANALYSES
from stillme.judges.ensemble import RULES
from stillme.report import render
from tests.command_lines import commands
from tests.report.columns import paper_like
from tests.report.planted import planted

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
GENERATED = {"commands.md", "reference.md"}
"""Pages whose words stand in the code."""
WRITTEN = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED)]
PLAIN_CHOICES = {
    *("csv", "jsonl", "parquet", "md", "tex", "pdf", "png", "svg", "bash", "zsh", "fish"),
    *("editors", "judges", "prompts", "portraits", "nothing"),
}
"""Values of options that need no glossary: formats, shells, and words that mean what they say."""
BLOCKS = {
    *("p", "h1", "h2", "h3", "ul", "li", "tr", "td", "th", "dt", "dd"),
    *("summary", "caption", "figcaption", "article", "section", "div"),
}
SILENT = {"svg", "script", "style", "template"}

FIELD_TERMS = (Path(__file__).parent / "field_terms.txt").read_text("utf-8").split()
"""Terms of the field, as patterns; a dot stands for the space. One that is used must be in the glossary."""
SELF_EXPLAINING = ("subcategor",)
"""Words of the list that the prompts explain themselves."""


def help_texts() -> Iterator[tuple[str, str]]:
    """Every paragraph, list line and option's help of every command, with the command's name."""
    for name, command in commands(cli):
        for paragraph in re.split(r"\n\s*\n", command.help or ""):
            if "\b" in paragraph:
                yield from ((name, line.strip()) for line in paragraph.replace("\b", "").splitlines())
            else:
                yield name, " ".join(paragraph.split())
        yield from ((name, text) for option in command.params if (text := getattr(option, "help", None)))


def private_words() -> dict[str, str]:
    """Patterns of words that readers do not know in our sense, with the words to write instead."""
    lines = (Path(__file__).parent / "private_words.txt").read_text("utf-8").splitlines()
    return dict(line.split(" => ") for line in lines if not line.startswith("#"))


def found_words(text: str) -> list[str]:
    """Every private word of a page's prose, with its line; code, output and addresses are not prose."""
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "`", prose)
    return [
        f"{number}: {match[0]!r}; write {instead}"
        for number, line in enumerate(prose.splitlines(), 1)
        for pattern, instead in private_words().items()
        for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", line, flags=re.IGNORECASE)
    ]


def first_screen(page: str) -> list[str]:
    """The visible text from the page's title to the end of its first section, one line for every block."""
    body = page.partition("<body")[2]
    shown = body[max(body.find("<header"), 0) : body.index("</section>")]
    inner = rf"<({'|'.join(SILENT)})\b(?:(?!<\1\b).)*?</\1>"
    while re.search(inner, shown, flags=re.DOTALL):
        shown = re.sub(inner, "", shown, flags=re.DOTALL)
    blocks = re.split(rf"</?(?:{'|'.join(BLOCKS)})\b[^>]*>", shown)
    return [line for text in blocks if (line := " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split()))]


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    picture = tmp_path_factory.mktemp("pictures") / "face.png"
    picture.write_bytes(encode_png(np.full((32, 32, 3), 128, dtype=np.uint8)))
    settings = Settings(factors=("race", "gender"))
    data = paper_like([picture], prompt_count=3, arms=("baseline", "feature"), settings=settings)
    return [*first_screen(render(data)), *first_screen(render(planted(unedited={"E": 0.7}, lightened={"A": 1.0})))]


@pytest.fixture(scope="module")
def glossary() -> list[str]:
    """Every defined term, in lower case: the first cells of the tables."""
    rows = [line.split("|") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("|")]
    terms = [cell[1].strip().lower() for cell in rows]
    return [term for term in terms if term not in ("term", "---")]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_the_words_of_the_field(page: Path):
    assert not (found := found_words(page.read_text("utf-8"))), "\n".join(found)


def test_the_help_has_the_words_of_the_field():
    found = [f"{name}: {word}" for name, text in help_texts() for word in found_words(text)]
    assert not found, "\n".join(found)


SPOKEN = {"echo", "say", "_say", "_problem", "Problem", "among", "option", "argument", "note", "warn"}
"""Calls whose texts a user reads, besides those of errors."""


def spoken_texts() -> Iterator[tuple[str, str]]:
    """Every text of an error, a message and a problem in the source, with its place."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            calls = [node.exc] if isinstance(node, ast.Raise) else [node] if isinstance(node, ast.Call) else []
            for call in calls:
                if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or _name(call) in SPOKEN):
                    parts = [part for part in ast.walk(call) if isinstance(part, ast.Constant)]
                    yield f"{file.name}:{call.lineno}", " ".join(str(part.value) for part in parts)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def test_errors_and_messages_have_the_words_of_the_field():
    found = [f"{place}: {word}" for place, text in spoken_texts() for word in found_words(text)]
    assert not found, "\n".join(dict.fromkeys(found))


def test_a_private_word_is_found_in_prose_and_not_in_code():
    assert found_words("Fine.\nNobody is told.") == ["2: 'Nobody'; write no one, or name who"]
    assert found_words("There is no face. It is no longer so.\n```text\nnobody\n```\nThe name `nobody` is code.") == []
    assert [line.partition(";")[0] for line in found_words("```\n\n```\nThis is no editor.")] == ["4: 'is no editor'"]


def test_every_term_of_the_field_is_in_the_glossary(screen: list[str], glossary: list[str]):
    text = "\n".join([*(text for _, text in help_texts()), *screen]).lower()
    used = [term for term in FIELD_TERMS if re.search(rf"(?<!\w){_spaced(term)}", text)]
    assert len(used) > 40, "the list and the texts have drifted apart"
    missing = [term for term in used if term not in SELF_EXPLAINING and not _defined(term, glossary)]
    assert not missing, f"define in {GLOSSARY.name}: {missing}"


def test_every_name_of_a_quantity_arm_verdict_rule_or_analysis_is_in_the_glossary(glossary: list[str]):
    definitions = GLOSSARY.read_text("utf-8").lower()
    loaded = rubric.load()
    titled = {**loaded.axes, **loaded.rates}
    for name, quantity in titled.items():
        assert f"`{name}`" in definitions, name
        assert quantity.title.lower() in definitions, quantity.title
    for name in (*EDIT_RATES, *(str(arm) for arm in Arm), *RULES):
        assert f"`{name}`" in definitions, name
    for verdict in Verdict:
        assert _defined(str(verdict), glossary), verdict
    explained = dict(commands(cli))["stillme tables"].help or ""
    for analysis in ANALYSES:
        assert analysis in explained, f"stillme tables --help does not say what {analysis} is"


def test_every_value_of_an_option_is_plain_or_in_the_glossary():
    definitions = GLOSSARY.read_text("utf-8").lower()
    for name, command in commands(cli):
        for option in command.params:
            if isinstance(option.type, click.Choice):
                for value in map(str, option.type.choices):
                    known = value in PLAIN_CHOICES or re.search(rf"(?<!\w){re.escape(value)}(?!\w)", definitions)
                    assert known, f"{name} {option.opts[0]} {value}: define it in {GLOSSARY.name}"


def test_the_first_screen_ends_with_the_first_section():
    page = "<body><nav>Skip</nav><header><h1>T</h1></header><section><p>A <b>b</b>.</p><svg><text>no</text></svg>"
    assert first_screen(f"{page}<p>C</p></section><section><p>Later</p></section></body>") == ["T", "A b.", "C"]


def _spaced(term: str) -> str:
    return term.replace(".", r"[ _-]")


def _defined(term: str, glossary: list[str]) -> bool:
    return any(re.search(rf"(?<!\w){_spaced(term)}", entry) for entry in glossary)
