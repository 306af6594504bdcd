"""The dataset card in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stillme.curation.card import Card, Curation
from stillme.curation.confounds import FLAG, Compared
from stillme.curation.criteria import hints, load_criteria
from stillme.curation.evenness import Spread


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
    yield from _light(card)
    yield from _terms_table(card)
    yield from ("", "## How the pictures were made", "")
    large = [each.enlarged for each in card.portraits]
    turned = sum(each.crop == "centre" for each in card.portraits) if "face" in about.method else 0
    yield f"{about.method} Metadata is gone; a colour profile was applied before."
    if large:
        yield f"Enlarged by {min(large):.2f} to {max(large):.2f}; above 1 no detail was added."
    if turned:
        yield f"In {turned} pictures no face was found; they were cut in the middle."


def _curation(card: Card, told: Curation) -> Iterator[str]:
    yield from ("", "## Cells", "")
    *rest, last = told.levels
    counted = Counter(tuple(each.selected.attributes.get(name, "") for name in told.levels) for each in card.portraits)
    yield _row([*rest, *told.levels[last]] if rest else ["", *told.levels[last]])
    yield _row(["---"] * (max(len(rest), 1) + len(told.levels[last])))
    for head in _combinations([told.levels[name] for name in rest]):
        cells = [str(counted[(*head, level)]) for level in told.levels[last]]
        yield _row([*(head or [last]), *cells])
    if told.missing:
        yield from ("", "Without a portrait:", "")
        yield from (f"- {', '.join(cell)}: {why}" for cell, why in told.missing)
    if told.shortfalls:
        yield from ("", "Fewer candidates than asked for:", "")
        yield from (f"- {each}" for each in told.shortfalls)
    if told.passed_over:
        yield from ("", f"{len(told.passed_over)} pictures were passed over when the pools were drawn:", "")
        yield from (f"- {each}" for each in told.passed_over)
    yield from ("", "## Pools and places", "", "Curators see no pools, and everybody has an order of their own.", "")
    yield from _spread("pool", told.pools)
    yield ""
    yield from _spread("place on the screen", told.places)
    yield from ("", "## Curators", "")
    yield _row(["curator", "cells decided"])
    yield _row(["---"] * 2)
    yield from (_row([name, str(count)]) for name, count in told.curators.items())
    yield ""
    if told.actions:
        first, last = told.actions[0].at[:16], told.actions[-1].at[:16]
        yield f"{len(told.actions)} actions from {first} to {last} UTC, all in `curation.jsonl`."
    yield "Outcomes: " + ", ".join(f"{count} {state}" for state, count in told.states.items()) + "."
    for who, cells, alike, kappa in told.agreement:
        beyond = "" if kappa is None else f", κ = {kappa:.2f} beyond chance"
        yield f"{who}: chose alike in {alike:.0%} of {cells} cells{beyond}."
    yield from ("", "## Criteria", "", "Ticked by those who chose the portrait; nothing is ticked beforehand.", "")
    yield _row(["criterion", "all of them", "some", "none"])
    yield _row(["---"] * 4)
    titles = {criterion.key: criterion.title for criterion in load_criteria().all}
    for name, counts in card.criteria().items():
        yield _row([titles[name], *map(str, counts)])


def _spread(name: str, spread: Spread) -> Iterator[str]:
    yield _row([name, *map(str, spread.chosen)])
    yield _row(["---"] * (len(spread.chosen) + 1))
    yield _row(["chosen", *map(str, spread.chosen.values())])
    yield _row(["by blind choosing", *(f"{count:g}" for count in spread.expected.values())])
    if spread.chance is not None:
        yield ""
        yield f"Blind choosing is at least as uneven with p {_sign(_probability(spread.chance))}."


def _instrument_doubts(card: Card) -> Iterator[str]:
    yield from ("", "## What instruments doubt", "")
    yield "Measured on the finished pictures; a doubt is a reason to look, not a verdict."
    yield ""
    for place, criterion in enumerate(load_criteria().all):
        doubted = [each.selected.id for each in card.portraits if hints(each.measured.values)[place].state != "fine"]
        shown = ", ".join(doubted[:12]) + (f" and {len(doubted) - 12} more" if len(doubted) > 12 else "")
        yield f"- {criterion.title}: {shown or 'none'}"


def _alike(card: Card) -> Iterator[str]:
    if card.alike:
        yield from ("", "Look alike:", "")
        yield from (f"- {pair.first} and {pair.second} show {pair.words} ({pair.distance:g})" for pair in card.alike)


def _light(card: Card) -> Iterator[str]:
    yield from ("", "## Light, skin and framing by group", "")
    yield "Means. Skin may differ between groups, and does with the light too; background, side light, exposure,"
    yield "detail, framing and pose should not: what an editor does to dark pictures is not what it does to people."
    for name, compared in card.groups.items():
        groups = list(compared[0].means)
        yield from ("", f"### By {name}", "")
        yield _row(["", "n", *(_head(each) for each in compared)])
        yield _row(["---"] * (len(compared) + 2))
        for group in groups:
            count = max(each.counts[group] for each in compared)
            yield _row([group, str(count), *(each.text(group) for each in compared)])
        yield _row(["explained (η²)", "", *(_share(each) for each in compared)])
        yield _row(["by chance (p)", "", *(_chance(each) for each in compared)])
        yield ""
        flagged = [each for each in compared if each.flagged]
        tests = sum(not each.shown.expected and each.chance is not None for each in compared)
        if flagged:
            words = ", ".join(
                f"{each.shown.title} (η² {each.explained:.2f}, p {_sign(_chance(each))})" for each in flagged
            )
            yield f"**Confounded with {name}: {words}.** A gap by {name} may be due to this alone."
        else:
            yield f"None of {tests} properties differs by {name} with p < {FLAG}; small sets can hide differences."


def _terms_table(card: Card) -> Iterator[str]:
    yield from ("", "## Labels and terms", "", "Per picture in `portraits.csv` and `manifest.json`.", "")
    yield _row(["licence", "labels by", "consent", "portraits"])
    yield _row(["---"] * 4)
    for (licence, origin, consent), count in card.terms().most_common():
        yield _row([licence, origin, consent, str(count)])


def _combinations(levels: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for each in levels:
        found = [(*head, level) for head in found for level in each]
    return found


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _head(compared: Compared) -> str:
    unit = f" ({compared.shown.unit})" if compared.shown.unit else ""
    return f"{compared.shown.title}{unit}"


def _share(compared: Compared) -> str:
    return "–" if compared.explained is None else f"{compared.explained:.2f}"


def _chance(compared: Compared) -> str:
    return "–" if compared.chance is None else _probability(compared.chance)


def _sign(probability: str) -> str:
    return probability if probability.startswith("<") else f"= {probability}"


def _probability(chance: float) -> str:
    return "< .001" if chance < 0.001 else f"{chance:.3f}".removeprefix("0")
