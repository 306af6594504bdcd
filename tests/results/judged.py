"""Runs whose every answer of every model is chosen: by judge, edit and time asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from stillme import audit as audits
from stillme.audit.design import JudgeRecord
from stillme.core.types import Assessment, Rated, Request
from stillme.runs.store import Store
from stillme.work.recording import record
from tests import runs
from tests.records import answers, edit_row

Say = Callable[[str, Request, int], Assessment]
"""The judge's name, the request and the epoch to what the judge says."""

SERVED = {"provider": "openai-chat", "base_url": "http://127.0.0.1:1/v1", "key_variable": ""}
"""A model that is never asked."""


def judge(name: str, *, model: str = "gpt-5.2", epochs: int = 1, **parameters: str) -> dict[str, Any]:
    """One entry of `[[judges]]`."""
    return {"use": "vlm", "name": name, "epochs": epochs, "parameters": {**SERVED, "model": model, **parameters}}


def write_audit(folder: Path, *judges: Mapping[str, Any], per_group: int = 12, **sections: Any) -> Path:
    """An audit of one editor, two groups of portraits and four prompts by these judges."""
    people = runs.people(folder / "people", per_group=per_group)
    audit = {
        "portraits": {"source": str(people)},
        "prompts": {"only": ["O-01", "O-02", "V-01", "V-02"]},
        "editors": [{"use": "noop"}],
        "judges": list(judges),
        "estimates": {"factors": ["group"]},
        **sections,
    }
    (folder / "audit.toml").write_text(tomli_w.dumps(audit))
    return folder


def _said(say: Say, request: Request, judge: JudgeRecord, epoch: int) -> Assessment:
    return say(judge.name, request, epoch)


def fill(folder: Path, say: Say) -> Path:
    """Write every edit and every answer."""
    loaded = audits.load(folder, ready=False)
    with Store.writing(folder) as store:
        record(loaded, store)
        judges = [named.record() for named in loaded.judges]
        for named in loaded.editors:
            for request in loaded.requests(named):
                image = store.pictures.add(request.portraits[0].image.read())
                said = partial(_said, say, request)
                store.add([edit_row(request, image=image, cost=0.25), *answers(judges, request.key, image, said)])
    return folder


def rated(model: str = "gpt-5.2", **scores: float) -> Assessment:
    """Scores by axis, from a model that gives its name."""
    return Assessment(ratings={axis: Rated(score=score) for axis, score in scores.items()}, effective={"model": model})
