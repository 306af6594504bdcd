"""A reader's test: short sentences in `--help` and on the report's first screen, and every term in the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
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

LONGEST = 26
"""Words of a sentence that a release engineer reads once."""
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
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


def sentences(text: str) -> list[str]:
    """Split where a sentence ends; `audit.toml` and `12.5` do not end one."""
    return re.split(r"(?<=[.!?])[)”\"]?\s+(?=[^\W_]|[“`†(])", text)


def words(sentence: str) -> list[str]:
    return [word for word in sentence.split() if re.search(r"[^\W_]", word)]


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(words(sentence)) > LONGEST]


class _Blocks(HTMLParser):
    """The visible text, one line for every block."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in SILENT
        if tag in BLOCKS:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in SILENT
        if tag in BLOCKS:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.lines[-1] += data


def first_screen(page: str) -> list[str]:
    """From the page's title to the end of its first section."""
    body = page.partition("<body")[2]
    start = body.find("<header")
    blocks = _Blocks()
    blocks.feed(body[max(start, 0) : body.index("</section>")])
    return [line for text in blocks.lines if (line := " ".join(text.split()))]


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


def test_no_sentence_of_the_help_is_too_long():
    long = [f"{name}: {sentence}" for name, text in help_texts() for sentence in too_long(text)]
    assert not long, "\n".join(long)


def test_no_sentence_of_the_first_screen_is_too_long(screen: list[str]):
    long = [sentence for line in screen for sentence in too_long(line)]
    assert not long, "\n".join(long)


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


def test_a_sentence_does_not_end_inside_a_name_or_a_number():
    text = "See audit.toml for 12.5 %. Rules in the file count too (5 %). Done."
    assert sentences(text) == ["See audit.toml for 12.5 %.", "Rules in the file count too (5 %).", "Done."]
    assert len(words("12.5 % (8.0 % to 17.2 %) – × †")) == 4


def test_the_first_screen_ends_with_the_first_section():
    page = "<body><nav>Skip</nav><header><h1>T</h1></header><section><p>A <b>b</b>.</p><svg><text>no</text></svg>"
    assert first_screen(f"{page}<p>C</p></section><section><p>Later</p></section></body>") == ["T", "A b.", "C"]


def _spaced(term: str) -> str:
    return term.replace(".", r"[ _-]")


def _defined(term: str, glossary: list[str]) -> bool:
    return any(re.search(rf"(?<!\w){_spaced(term)}", entry) for entry in glossary)
