"""What the rating and training pages are told: pictures, instruction, questions. Nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from stillme import rubric
from stillme.study import schema as t
from stillme.study.answers import Place
from stillme.study.assignment import Held
from stillme.study.checks import is_right
from stillme.study.items import Expected
from stillme.study.opening import Study
from stillme.types import digest


def rating_data(study: Study, connection: sa.Connection, held: Held, shown: Sequence[Place]) -> dict[str, Any]:
    """The rating page's data: items in the participant's own order, and what is answered already."""
    pictures = _pictures(connection, [place.item for place in shown])
    answers = connection.execute(sa.select(t.answer).where(t.answer.c.slot == held.slot)).all()
    return {
        "queue": digest(["queue", held.slot]),
        "epoch": held.epoch,
        "seq": max((row.seq for row in answers), default=0),
        "questions": _questions(study),
        "abstain": study.config.can_abstain,
        "items": [_item(place, pictures[place.item]) for place in shown],
        "answers": [[row.position, row.side, row.question, row.value] for row in answers],
    }


def training_places(study: Study, connection: sa.Connection) -> list[Place]:
    """The practice items, the same for everybody."""
    rows = connection.execute(
        sa.select(t.item).where(t.item.c.study == study.id, t.item.c.kind == "training").order_by(t.item.c.drawn)
    )
    return [
        Place(
            item=row.id,
            kind=row.kind,
            prompt=row.prompt,
            questions=tuple(json.loads(row.questions)),
            sides=row.sides,
            swapped=False,
        )
        for row in rows
    ]


def training_data(study: Study, connection: sa.Connection) -> dict[str, Any]:
    """The training page's data."""
    shown = training_places(study, connection)
    pictures = _pictures(connection, [place.item for place in shown])
    return {
        "questions": _questions(study),
        "abstain": study.config.can_abstain,
        "items": [_item(place, pictures[place.item]) for place in shown],
        "answers": [],
    }


def feedback(connection: sa.Connection, place: Place, answers: Sequence[Sequence[int | None]]) -> list[list[str]]:
    """For each side and question nothing if the answer is right, else what we would have answered."""
    said: list[list[str]] = []
    for expected, given in zip(expectations(connection, place), answers, strict=True):
        wrong = [
            _hint(question, expected) if is_right(expected, question, value) is False or value is None else ""
            for question, value in zip(place.questions, given, strict=True)
        ]
        said.append(wrong)
    return said


def expectations(connection: sa.Connection, place: Place) -> list[Expected]:
    """The right answers by side as shown; empty where none is known."""
    rows = connection.execute(
        sa.select(t.image.c.expected_json)
        .where(t.image.c.item == place.item, t.image.c.role > 0)
        .order_by(t.image.c.role)
    ).scalars()
    found: list[Expected] = [json.loads(text) if text else {} for text in rows]
    return found[::-1] if place.swapped else found


def _hint(question: str, expected: Expected) -> str:
    axis = rubric.load().axes[question]
    if question not in expected:
        return "Please answer this question."
    low, high = expected[question]
    wanted = " or ".join(f"{value} ({axis.scale[value - 1]})" for value in sorted({low, high}))
    return f"Look again: here we would answer {wanted}."


def _questions(study: Study) -> dict[str, Mapping[str, Any]]:
    """The rubric's wording, exactly as the models get it."""
    axes = rubric.load().axes
    return {
        name: {"title": axes[name].title, "question": axes[name].question, "scale": list(axes[name].scale)}
        for name in study.config.questions
    }


def _item(place: Place, pictures: Sequence[str]) -> dict[str, Any]:
    source, *outputs = pictures
    return {
        "prompt": place.prompt,
        "pictures": [source, *(outputs[::-1] if place.swapped else outputs)],
        "questions": list(place.questions),
    }


def _pictures(connection: sa.Connection, items: Sequence[str]) -> dict[str, list[str]]:
    rows = connection.execute(
        sa.select(t.image.c.item, t.image.c.id).where(t.image.c.item.in_(items)).order_by(t.image.c.role)
    )
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.item, []).append(row.id)
    return found
