"""Portraits for role prompts: two people who differ in gender presentation, in one request or in one each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.audit.config import RolesSection
from stillme.audit.sampling import spread
from stillme.core.types import Portrait, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A role prompt with the people of its request, in the order in which the editor gets their pictures."""

    prompt: Prompt
    portraits: tuple[Portrait, ...]


def couples(
    portraits: Sequence[Portrait], section: RolesSection, factors: Sequence[str]
) -> tuple[tuple[Portrait, Portrait], ...]:
    """Pairs of a man's and a woman's portrait, by label, that agree in the attributes to match on."""
    random = np.random.default_rng(section.seed)
    match = section.match if section.match is not None else [name for name in factors if name != section.gender]
    alike: dict[tuple[str, ...], list[Portrait]] = defaultdict(list)
    for portrait in spread(portraits, match, random):
        alike[tuple(portrait.attributes.get(name, "") for name in match)].append(portrait)
    paired: list[tuple[Portrait, Portrait]] = []
    for group in alike.values():
        men = [portrait for portrait in group if portrait.attributes.get(section.gender) == section.male]
        women = [portrait for portrait in group if portrait.attributes.get(section.gender) == section.female]
        paired += zip(men, women, strict=False)
    return tuple(paired)


def casts(
    prompts: Sequence[Prompt], paired: Sequence[tuple[Portrait, Portrait]], section: RolesSection
) -> Iterator[Cast]:
    """Every role prompt with its people. Variants of one sentence have the same two."""
    sentences = list(dict.fromkeys(sentence_of(prompt) for prompt in prompts))
    place = {sentence: index for index, sentence in enumerate(sentences)}
    for prompt in prompts:
        man, woman = paired[place[sentence_of(prompt)] % len(paired)]
        # As in the paper, the person whom the stereotype expects comes first.
        people = (man, woman) if prompt.stereotype == "male" else (woman, man)
        if "role_pair" in section.layouts:
            yield Cast(prompt=prompt, portraits=people)
            if section.counterbalance:
                yield Cast(prompt=prompt, portraits=people[::-1])
        if "role_single" in section.layouts:
            yield from (Cast(prompt=prompt, portraits=(person,)) for person in people)


def sentence_of(prompt: Prompt) -> str:
    """What variants of one sentence share: `W-01`, `W-01-anti` and `W-01-none` are one."""
    return prompt.id.removesuffix(f"-{prompt.pronoun}") if prompt.pronoun else prompt.id


def expected_place(prompt: Prompt, portraits: Sequence[Portrait], section: RolesSection) -> int:
    """Of two people, whether the first (1) or the second (2) has the gender that the stereotype expects; else 0."""
    if len(portraits) != 2 or prompt.stereotype is None:
        return 0
    wanted = section.male if prompt.stereotype == "male" else section.female
    fits = [portrait.attributes.get(section.gender) == wanted for portrait in portraits]
    return fits.index(True) + 1 if sum(fits) == 1 else 0
