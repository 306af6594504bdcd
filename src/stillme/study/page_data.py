"""The data of the rating and training pages: pictures, instruction, questions. Nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from stillme import rubric
from stillme.study import pairs
from stillme.study import schema as t
from stillme.study.answers import PresentedItem, pictures_of
from stillme.study.assignment import Held
from stillme.study.blinding import format_of
from stillme.study.checks import is_right
from stillme.study.config import Config
from stillme.study.items import EXAMPLE, Expected
from stillme.study.opening import Study
from stillme.types import digest


def rating_data(
    study: Study, connection: sa.Connection, config: Config, held: Held, shown: Sequence[PresentedItem]
) -> dict[str, Any]:
    """The rating page's data: items in the participant's own order, and what is answered already."""
    pictures = _pictures(connection, [item.item for item in shown])
    answers = connection.execute(sa.select(t.answer).where(t.answer.c.slot == held.slot)).all()
    comments = connection.execute(sa.select(t.comment).where(t.comment.c.slot == held.slot)).all()
    return {
        "queue": digest(["queue", held.slot]),
        "epoch": held.epoch,
        "seq": max((row.seq for row in (*answers, *comments)), default=0),
        "picture": asdict(format_of(study.pictures)),
        "questions": _questions(config),
        "abstain": config.can_abstain,
        "items": [_item_data(item, pictures[item.item]) for item in shown],
        "answers": [[row.position, row.side, row.question, row.value] for row in answers],
        "comments": [[row.position, row.text] for row in comments],
    }


def training_items(study: Study, connection: sa.Connection, version: int | None) -> list[PresentedItem]:
    """The practice items, the same for everybody of a version."""
    rows = connection.execute(
        sa.select(t.item).where(t.item.c.study == study.id, t.item.c.kind == "training").order_by(t.item.c.drawn)
    )
    return [_training_item(study, row, version) for row in rows if row.drawn != EXAMPLE]


def example_pictures(study: Study, connection: sa.Connection) -> list[str]:
    """The pictures of the guide's example; none in studies that were drawn without one."""
    row = connection.execute(
        sa.select(t.item.c.id).where(t.item.c.study == study.id, t.item.c.drawn == EXAMPLE)
    ).scalar()
    return _pictures(connection, [row])[row] if row else []


def _training_item(study: Study, row: sa.Row[Any], version: int | None) -> PresentedItem:
    return PresentedItem(
        item=row.id,
        kind=row.kind,
        prompt=row.prompt,
        questions=study.asked(row.questions, version),
        sides=row.sides,
        swapped=False,
        pictures=pictures_of(row.questions, row.sides),
    )


def training_data(study: Study, connection: sa.Connection, version: int | None) -> dict[str, Any]:
    """The training page's data."""
    config = study.config_of(version)
    shown = training_items(study, connection, version)
    pictures = _pictures(connection, [item.item for item in shown])
    return {
        "questions": _questions(config),
        "abstain": config.can_abstain,
        "items": [_item_data(item, pictures[item.item]) for item in shown],
        "picture": asdict(format_of(study.pictures)),
        "answers": [],
    }


def feedback(
    connection: sa.Connection, item: PresentedItem, answers: Sequence[Sequence[int | None]]
) -> list[list[str]]:
    """For each side and question an empty text if the answer is right, else a hint."""
    return [
        [
            _hint(question, expected) if is_right(expected, question, value) is False or value is None else ""
            for question, value in zip(item.questions, given, strict=True)
        ]
        for expected, given in zip(expectations(connection, item), answers, strict=True)
    ]


def expectations(connection: sa.Connection, item: PresentedItem) -> list[Expected]:
    """The right answers by side as shown; empty where none is known."""
    rows = connection.execute(
        sa.select(t.image.c.expected_json)
        .where(t.image.c.item == item.item, t.image.c.role > 0)
        .order_by(t.image.c.role)
    ).scalars()
    expected: list[Expected] = [json.loads(text) if text else {} for text in rows]
    if item.swapped and pairs.is_pair(item.questions):
        return [{name: (pairs.turned(low), pairs.turned(high)) for name, (low, high) in expected[0].items()}]
    return expected[::-1] if item.swapped else expected


def _hint(question: str, expected: Expected) -> str:
    if question not in expected:
        return "Please answer this question."
    low, high = expected[question]
    right = " or ".join(f"{value} ({pairs.anchors(question)[value - 1]})" for value in sorted({low, high}))
    return f"Look again: here we would answer {right}."


def _questions(config: Config) -> dict[str, Mapping[str, Any]]:
    """The rubric's wording, exactly as the models get it."""
    axes = rubric.load().axes
    return {
        name: {"title": axes[name].title, "question": axes[name].question, "scale": list(pairs.anchors(name))}
        for name in config.questions
    }


def _item_data(item: PresentedItem, pictures: Sequence[str]) -> dict[str, Any]:
    sources, outputs = list(pictures[: -item.sides]), list(pictures[-item.sides :])
    if item.swapped:
        (sources if pairs.is_pair(item.questions) else outputs).reverse()
    return {
        "prompt": item.prompt,
        "pictures": [*sources, *outputs],
        "sources": len(sources),
        "questions": list(item.questions),
    }


def _pictures(connection: sa.Connection, items: Sequence[str]) -> dict[str, list[str]]:
    rows = connection.execute(
        sa.select(t.image.c.item, t.image.c.id)
        .where(t.image.c.item.in_(items))
        # People in the order of the request, then the outputs.
        .order_by(t.image.c.role > 0, sa.func.abs(t.image.c.role))
    )
    pictures: dict[str, list[str]] = {}
    for row in rows:
        pictures.setdefault(row.item, []).append(row.id)
    return pictures
