"""The dataset card in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from stillme.curation.card import Card, Curation
from stillme.curation.criteria import hints, load_criteria


def markdown(card: Card) -> str:
    """The whole card."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Card) -> Iterator[str]:
    about = card.about
    yield f"# {about.title}, {about.version}"
    yield ""
    yield f"{len(card.portraits)} portraits from {about.source}, made {about.made} with stillme {about.stillme}."
    yield "Labels are what somebody said of a picture, never what a person is."
    if about.curation:
        yield from _curation(card, about.curation)
    else:
        yield ""
        yield "Brought by the user as they are: nobody compared candidates or ticked criteria."
    yield from _instrument_doubts(card)
    yield from _alike(card)
    yield from _terms_table(card)
    yield from ("", "## How the pictures were made", "")
    scales = [portrait.enlarged for portrait in card.portraits]
    faceless = sum(portrait.crop == "centre" for portrait in card.portraits) if "face" in about.method else 0
    yield f"{about.method} Metadata is gone; a colour profile was applied before."
    if scales:
        yield f"Enlarged by {min(scales):.2f} to {max(scales):.2f}; above 1 no detail was added."
    if faceless:
        yield f"In {faceless} pictures no face was found; they were cropped in the middle."


def _curation(card: Card, curation: Curation) -> Iterator[str]:
    yield from ("", "## Cells", "")
    *rest, last = curation.levels
    counted = Counter(
        tuple(portrait.selected.attributes.get(name, "") for name in curation.levels) for portrait in card.portraits
    )
    yield _row([*rest, *curation.levels[last]] if rest else ["", *curation.levels[last]])
    yield _row(["---"] * (max(len(rest), 1) + len(curation.levels[last])))
    for head in product(*(curation.levels[name] for name in rest)):
        cells = [str(counted[(*head, level)]) for level in curation.levels[last]]
        yield _row([*(head or [last]), *cells])
    if curation.missing:
        yield from ("", "Without a portrait:", "")
        yield from (f"- {', '.join(cell)}: {why}" for cell, why in curation.missing)
    if curation.shortfalls:
        yield from ("", "Fewer candidates than asked for:", "")
        yield from (f"- {shortfall}" for shortfall in curation.shortfalls)
    if curation.passed_over:
        yield from ("", "Passed over when the pools were drawn:", "")
        yield from (f"- {reason}" for reason in curation.passed_over)
    yield from ("", "## Pools", "", "Curators see no pools, and everybody has an order of their own.", "")
    pools = sorted(curation.pools)
    yield _row(["pool", *map(str, pools)])
    yield _row(["---"] * (len(pools) + 1))
    yield _row(["chosen", *(str(curation.pools[pool]) for pool in pools)])
    yield from ("", "## Curators", "")
    yield _row(["curator", "cells decided"])
    yield _row(["---"] * 2)
    yield from (_row([name, str(count)]) for name, count in curation.curators.items())
    yield ""
    if curation.actions:
        first, last = curation.actions[0].at[:16], curation.actions[-1].at[:16]
        yield f"{len(curation.actions)} actions from {first} to {last} UTC, all in `curation.jsonl`."
    yield "Outcomes: " + ", ".join(f"{count} {state}" for state, count in curation.states.items()) + "."
    for who, cells, alike, kappa in curation.agreement:
        beyond = "" if kappa is None else f", κ = {kappa:.2f} beyond chance"
        yield f"{who}: chose alike in {alike:.0%} of {cells} cells{beyond}."
    yield from ("", "## Criteria", "", "Ticked by those who chose the portrait; nothing is ticked beforehand.", "")
    yield _row(["criterion", "all of them", "some", "none"])
    yield _row(["---"] * 4)
    titles = {criterion.key: criterion.title for criterion in load_criteria().all}
    for name, counts in card.criteria().items():
        yield _row([titles[name], *map(str, counts)])


def _instrument_doubts(card: Card) -> Iterator[str]:
    yield from ("", "## What instruments doubt", "")
    yield "Measured on the finished pictures; a doubt is a reason to look, not a verdict."
    yield ""
    for place, criterion in enumerate(load_criteria().all):
        doubted = [
            portrait.selected.id
            for portrait in card.portraits
            if hints(portrait.measured.values)[place].state != "fine"
        ]
        shown = ", ".join(doubted[:12]) + (f" and {len(doubted) - 12} more" if len(doubted) > 12 else "")
        yield f"- {criterion.title}: {shown or 'none'}"


def _alike(card: Card) -> Iterator[str]:
    if card.alike:
        yield from ("", "Look alike:", "")
        yield from (f"- {pair.first} and {pair.second} show {pair.words} ({pair.distance:g})" for pair in card.alike)


def _terms_table(card: Card) -> Iterator[str]:
    yield from ("", "## Labels and terms", "", "Per picture in `portraits.csv` and `manifest.json`.", "")
    yield _row(["licence", "labels by", "consent", "portraits"])
    yield _row(["---"] * 4)
    for (licence, origin, consent), count in card.terms().most_common():
        yield _row([licence, origin, consent, str(count)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
