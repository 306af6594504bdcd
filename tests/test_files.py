"""Words of others reach a terminal without its commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.cli.terminal import printable

DANGEROUS = {
    "an escape": "\x1b[2Jgone",
    "a C1 escape": "\x9b31mred",
    "a carriage return": "score 5\rscore 1",
    "a bell": "\a",
    "a reversed word": "\u202e5 erocs",
    "an isolate": "\u2067x\u2069",
    "half a character": "\ud83d",
}


@pytest.mark.parametrize("text", DANGEROUS.values(), ids=DANGEROUS)
def test_what_a_terminal_would_obey_is_replaced(text: str):
    shown = printable(text)
    assert "\N{REPLACEMENT CHARACTER}" in shown
    assert printable(shown) == shown
    shown.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_plain_text_in_any_script_stays_as_it_is(text: str):
    assert printable(f"{text}\n\t") == f"{text}\n\t"
