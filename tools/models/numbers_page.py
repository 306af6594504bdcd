"""Write the measured numbers of all validity cards into `docs/instruments.md`."""

from __future__ import annotations

from pathlib import Path

from stillme.instruments.cards import InstrumentCard, cards

PAGE = Path(__file__).resolve().parents[2] / "docs" / "instruments.md"
START, END = "<!-- numbers -->\n", "<!-- end of numbers -->\n"


def page() -> str:
    """The page with the numbers of the cards in it."""
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    after = rest.partition(END)[2]
    return before + START + "\n" + "\n".join(table(card) for card in cards()) + END + after


def table(card: InstrumentCard) -> str:
    """One card as a table, groups down and numbers across."""
    lines = [
        f"**{card.title}.** {card.noise_floor}\n",
        "| " + " | ".join(["group", *card.columns.values()]) + " |",
        "|" + "---|" * (len(card.columns) + 1),
    ]
    for group, row in card.table.items():
        lines.append("| " + " | ".join([group, *(f"{row[name]:g}" for name in card.columns)]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
