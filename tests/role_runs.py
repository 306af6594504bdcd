"""Role runs with two people a request, whose every answer of every judge is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import tomli_w

from stillme.core.types import Abstained, Assessment, Rated, Request
from tests.results import judged

Answer = Callable[[str, Request, int], int | None]
"""The judge's name, the request and the epoch to the person who is drawn as the target, 1 or 2; None for neither."""


def write(folder: Path, judges: Mapping[str, int], answer: Answer, *, rule: str = "paper", prompts: int = 50) -> Path:
    """A run of the paper's role sentences; `judges` gives how often each is asked, and `people` are people."""
    folder.mkdir(parents=True, exist_ok=True)
    models = [
        judged.judge(name, model=f"model-{name}", epochs=epochs) for name, epochs in judges.items() if name != "people"
    ]
    people = [{"use": "people", "epochs": judges["people"]}] if "people" in judges else []
    audit = {
        "portraits": {"source": "synthetic"},
        "prompts": {"sets": ["roles"], "only": [f"W-{number:02}" for number in range(1, prompts + 1)]},
        "roles": {},
        "editors": [{"use": "planted"}],
        "judges": [*models, *people],
        "estimates": {"factors": ["preset"]},
    }
    if len(models) > 1:
        audit["ensemble"] = {"rule": rule}
    (folder / "audit.toml").write_text(tomli_w.dumps(audit))
    return judged.fill(folder, lambda judge, request, epoch: _said(answer(judge, request, epoch)))


def _said(person: int | None) -> Assessment:
    rating = Abstained(reason="neither person is drawn as the target") if person is None else Rated(score=person)
    return Assessment(ratings={"role_target": rating}, effective={"model": "gpt-5.2"})
