from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stillme.core.types import Prompt
from stillme.estimates import Edits, RatingState, Scores
from tests.records import edits_of, portrait


@pytest.fixture(scope="session")
def simulate() -> Callable[..., tuple[Edits, list[Scores]]]:
    """Portraits that differ by a random effect, in equal groups, with soft erasure as the outcome."""

    def build(
        seed: int,
        *,
        levels: int = 4,
        per_level: int = 12,
        prompts: int = 10,
        portrait_sd: float = 0.75,
        planted: float = 0.0,
    ) -> tuple[Edits, list[Scores]]:
        stream = np.random.default_rng(seed)
        people = [
            portrait(f"{level}{number:02d}", race=level) for level in "ABCDEFG"[:levels] for number in range(per_level)
        ]
        effect = -1.0 + stream.normal(0, portrait_sd, len(people))
        effect[:per_level] += planted
        erased = stream.random((len(people), prompts)) < 1 / (1 + np.exp(-effect))[:, None]
        zeros = np.zeros(erased.size, dtype=np.int32)
        who, what = (index.ravel().astype(np.int32) for index in np.indices(erased.shape))
        asked = [Prompt(id=f"P{n}", text="Do.", category="c", subcategory="s") for n in range(prompts)]
        edits = edits_of(people, asked, who, what)
        value = np.where(erased, 1.0, 5.0).ravel()
        return edits, [Scores(judge="judge", axis="edit_success", value=value, state=zeros + RatingState.RATED)]

    return build
