"""Write the measured numbers of all validity cards into `docs/instruments.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stillme.instruments.cards import InstrumentCard, cards

PAGE = Path(__file__).resolve().parents[2] / "docs" / "instruments.md"
START, END = "<!-- numbers -->\n", "<!-- end of numbers -->\n"
EVERYONE, COUNTS = "all", ("n", "pairs", "stranger_pairs")


def page() -> str:
    """The page with the numbers of the cards in it."""
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    after = rest.partition(END)[2]
    head = "| measured | everyone | lowest group | highest group |\n|---|---|---|---|\n"
    return before + START + head + "".join(row for card in cards() for row in rows(card)) + END + after


def rows(card: InstrumentCard) -> Iterator[str]:
    """Each number of a card for everyone, and of the groups the lowest and the highest."""
    groups = {group: row for group, row in card.table.items() if group != EVERYONE}
    everyone = card.table[EVERYONE]
    for name, title in card.columns.items():
        if name not in COUNTS:
            low, high = (pick(groups, key=lambda group: groups[group][name]) for pick in (min, max))
            ends = (f"{groups[group][name]:g} ({group})" for group in (low, high))
            same = groups[low][name] == groups[high][name]
            cells = (f"{card.title}: {title}", f"{everyone[name]:g}", *(("", "") if same else ends))
            yield f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
