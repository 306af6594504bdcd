"""Put pairs of known truth among a judge's questions, in the form of the audit's own, and take their answers.

The changes are those of calibration, mixed and balanced over skin tones.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from stillme.audit import Audit, NamedJudge
from stillme.core import images
from stillme.core.rubric import AxisLimits, Truth, load_limits
from stillme.core.types import Assessment, Attributes, ImageFile, Json, Pair, Portrait, Prompt, digest
from stillme.editors import known, rendered
from stillme.editors.known import CHANGES, Known, KnownParameters
from stillme.portraits import embedded_renders, portraits
from stillme.portraits import load as load_folder
from stillme.runs.control_pairs.reading import (
    Charts,
    ControlPairAnswers,
    Expectations,
    answers_of,
    control_pair_answers,
)
from stillme.runs.store import ControlPairRow, Store
from stillme.runs.store.pictures import Pictures
from stillme.runs.store.rows import Done

NOT_SCORED = frozenset({"edit_success"})
"""The instruction comes from the audit: whether an unchanged picture fulfils it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPair:
    """A portrait, and a change of known kind and size."""

    subject: Portrait
    tone: str
    kind: str
    amount: float
    render: Path | None = None
    """The changed picture; None where it is computed from the portrait."""

    @property
    def name(self) -> str:
        """As in `skin+8` or `jpeg`."""
        return f"{self.kind}{self.amount:+g}" if self.amount else self.kind

    def truths(self, axes: Sequence[str]) -> dict[str, Truth]:
        """What is known, by axis."""
        return {
            axis: truth
            for axis, limits in scored(axes).items()
            if (truth := limits.truth(self.kind, self.amount)) is not None
        }


def scored(axes: Sequence[str]) -> Mapping[str, AxisLimits]:
    """The axes whose answers can be compared with the truth."""
    limits = load_limits().axes
    return {axis: limits[axis] for axis in axes if axis in limits and axis not in NOT_SCORED}


def drawn(axes: Sequence[str], seed: int, judge: str) -> Iterator[KnownPair]:
    """The pairs in their order, without end: any three in a row have three skin tones, and all families recur."""
    pools = _pools(tuple(sorted(scored(axes))))
    tones = sorted({tone for tone, _ in pools})
    families = sorted({family for _, family in pools})
    block = 0
    while pools:
        rng = generator(seed, judge, f"pairs {block}")
        orders = {tone: rng.permutation(families) for tone in tones}
        for place in range(len(families)):
            for tone in map(str, rng.permutation(tones)):
                pool = pools[tone, str(orders[tone][place])]
                yield pool[int(rng.integers(len(pool)))]
        block += 1


def generator(seed: int, judge: str, purpose: str) -> np.random.Generator:
    """Random numbers that another seed, judge or purpose does not share."""
    return np.random.default_rng(int(digest([seed, judge, purpose]), 16))


@cache
def _pools(axes: tuple[str, ...]) -> Mapping[tuple[str, str], Sequence[KnownPair]]:
    """By skin tone and family: the pairs of which something is known on these axes."""
    pools: dict[tuple[str, str], list[KnownPair]] = {}
    for pair in _shipped():
        truths = pair.truths(axes)
        # A change too small to be asked for, or one that no axis is about, says nothing.
        if family := _family(pair) if truths else "":
            pools.setdefault((pair.tone, family), []).append(pair)
    return pools


def _family(pair: KnownPair) -> str:
    match pair.kind:
        case "jpeg" | "resized":
            return "unchanged"
        case "exposure" | "light_colour":
            return "light"
        case "background" | "clothes":
            return "surroundings"
        case "skin" | "age":
            return f"{pair.kind} {'up' if pair.amount > 0 else 'down'}"
        case "gender" | "features" | "swapped":
            return pair.kind
        case _:
            # The identical picture would be recognised by its bytes, a black one at a glance.
            return ""


@cache
def _shipped() -> Sequence[KnownPair]:
    pairs = [
        KnownPair(subject=portrait, tone=_tone(portrait), kind=kind, amount=float(prompt.id.removeprefix(kind) or 0))
        for portrait in portraits()
        for prompt in known.prompts()
        if (kind := prompt.subcategory) in ("jpeg", "resized", "exposure", "skin")
    ]
    folder = embedded_renders()[0]
    subjects = {portrait.id: portrait for portrait in load_folder(folder)}
    pairs += [
        KnownPair(
            subject=subjects[change.subject],
            tone=_tone(subjects[change.subject]),
            kind=change.kind,
            amount=change.amount,
            render=folder / change.file,
        )
        for change in rendered.changes(folder)
    ]
    return pairs


def _tone(portrait: Portrait) -> str:
    return load_limits().group_of(float(portrait.attributes["skin_l"]))


_GENDERS = {"m": "masculine", "f": "feminine", "w": "feminine"}
"""The first letter of a gender label, and the presentation of an embedded portrait."""
_SAVING: dict[str, dict[str, Any]] = {
    "PNG": {"compress_level": 1},
    "JPEG": {"quality": 95, "subsampling": 0},
    "WEBP": {"quality": 95},
}
"""Formats that we write, and how; any other becomes PNG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPair:
    """A pair of known truth, and where it belongs among the questions."""

    key: str
    number: int
    place: int
    """How many real questions come before it."""
    known: KnownPair
    prompt: Prompt
    labels: Attributes | None
    epoch: int


@dataclass(kw_only=True, eq=False)
class ControlTask:
    """A control pair that a judge has to rate. Its pictures are made in the form of a real pair, before its turn."""

    control_pair: ControlPair
    model: Pair
    """The real pair whose file formats and pixel sizes it shares."""
    pictures: Pictures
    answered_before: int = 0
    """How many real questions were sent before it."""
    sent: bool = False

    @property
    def key(self) -> str:
        """What its rows are kept under."""
        return self.control_pair.key

    @cached_property
    def pair(self) -> Pair:
        """What the judge is shown: nothing in it tells that the truth is known."""
        known = self.control_pair.known
        return Pair(
            edit=self.key,
            sources=(_as(self.model.sources[0], images.read_picture(known.subject.image.path), self.pictures),),
            edited=_as(self.model.edited, _changed(known), self.pictures),
            prompt=self.control_pair.prompt,
            labels=self.control_pair.labels,
            epoch=self.control_pair.epoch,
        )


def _changed(known: KnownPair) -> Image.Image:
    if known.render:
        return images.read_picture(known.render)
    changed = CHANGES[known.kind](Known(KnownParameters()), known.subject, known.amount)
    return images.read_picture(changed) if isinstance(changed, bytes) else Image.fromarray(changed)


def _as(model: ImageFile, picture: Image.Image, pictures: Pictures) -> ImageFile:
    """The picture in the file format and pixel size of `model`."""
    data = pictures.located(model).read()
    with Image.open(io.BytesIO(data)) as header:
        format_ = header.format if header.format in _SAVING else "PNG"
    like = images.read_picture(data)
    buffer = io.BytesIO()
    # Cut at the edges rather than squeezed: a face of another shape would be a change.
    ImageOps.fit(picture, like.size, Image.Resampling.LANCZOS).save(buffer, format_, **_SAVING[format_])
    sha256 = pictures.add(buffer.getvalue())
    return ImageFile(path=pictures.where(sha256), sha256=sha256)


def planned(named: NamedJudge, audit: Audit) -> Iterator[ControlPair]:
    """All control pairs of a judge in their order; the same in every run, and more of them do not change the first."""
    judge, section, count = named.judge, named.control_pairs, audit.control_pair_count(named)
    questions = max(1, round(count / section.share)) if count else 1
    rng = generator(section.seed, judge.spec.key, "places")
    # One in each stretch of equal length, at any place in it, and never before the first question.
    stretch = questions / max(1, count)
    places = [max(1, round((number + rng.random()) * stretch)) for number in range(count)]
    pairs = drawn(judge.capabilities.axes, section.seed, judge.spec.key)
    for number, pair in enumerate(itertools.islice(pairs, count)):
        rng = generator(section.seed, judge.spec.key, f"words {number}")
        yield ControlPair(
            key=digest(["control_pair", judge.spec.key, section.seed, number]),
            number=number,
            place=places[number],
            known=pair,
            prompt=audit.control_prompts[rng.integers(len(audit.control_prompts))],
            labels=_labels(pair.subject, audit.portraits, rng.random()) if judge.capabilities.labels else None,
            epoch=int(rng.integers(named.record().asked)),
        )


def _labels(subject: Portrait, portraits: Sequence[Portrait], chance: float) -> Attributes:
    """Labels in the audit's own words: those of one of its portraits, with the subject's gender presentation."""
    gender = subject.attributes.get("gender_presentation")
    alike = [p for p in portraits if _GENDERS.get(p.attributes.get("gender", "")[:1].lower()) == gender] or portraits
    return alike[int(chance * len(alike))].attributes


class ControlPairs:
    """The control pairs of one judge in one run."""

    def __init__(
        self,
        named: NamedJudge,
        audit: Audit,
        store: Store,
        say: Callable[[str], None],
        calibration: Mapping[str, Json] | None = None,
    ) -> None:
        self._named, self._audit, self._store, self._say = named, audit, store, say
        self._expected = Expectations(calibration)
        self.count = audit.control_pair_count(named)
        self.stopped = ""
        """Why the judge must not go on; empty while it may."""
        if self.count:
            self._begin()

    def _begin(self) -> None:
        axes = self._named.judge.capabilities.axes
        self._charts = Charts.planned((control_pair.known for control_pair in self.planned()), axes, self._expected)
        answered = self._store.control_pairs(self._named.judge.spec.key)
        if answered:
            self._charts.levels.update({name: answered[-1].chart[name][0] for name in self._charts.limits})
        if any(control_pair.alarms for control_pair in answered):
            self._alarm(again=True)

    def due_after(self, questions: int) -> int:
        """How many are asked among so many real questions."""
        return sum(control_pair.place <= questions for control_pair in self.planned())

    def planned(self) -> Iterator[ControlPair]:
        """All of them, whether or not they were asked."""
        return planned(self._named, self._audit)

    def save(self, finished: Sequence[Done[ControlTask, Assessment]]) -> None:
        """Keep the answers, and raise an alarm if they are worse than the judge's calibration explains."""
        rows: list[ControlPairRow] = []
        before = bool(self._charts.alarms)
        for done in finished:
            control_pair, pair = done.task.control_pair, done.task.pair
            said = answers_of(control_pair.known, done.result)
            self._charts.take(said, self._expected)
            rows.append(
                ControlPairRow(
                    key=control_pair.key,
                    judge=self._named.judge.spec,
                    number=control_pair.number,
                    pair=control_pair.known.name,
                    subject=control_pair.known.subject.id,
                    tone=control_pair.known.tone,
                    prompt=control_pair.prompt.id,
                    source=pair.sources[0].sha256,
                    edited=pair.edited.sha256,
                    assessment=done.result,
                    answers=said,
                    chart=self._charts.as_json(),
                    answered_before=done.task.answered_before,
                    attempts=done.attempts,
                    seconds=done.seconds,
                    cost=done.cost,
                )
            )
        if rows:
            self._store.add(rows)
        if not before and self._charts.alarms:
            self._alarm()

    def _alarm(self, *, again: bool = False) -> None:
        alarm = self.answers().alarm
        if not again:
            self._say(f"{alarm} `stillme status` shows more.")
        if self._named.control_pairs.stop:
            self.stopped = f"{alarm} Check the judge; to continue anyway, write stop = false in [judges.control_pairs]"

    def answers(self) -> ControlPairAnswers:
        """What is known of the judge so far."""
        return control_pair_answers(
            self._store, self._named.name, self._named.judge.spec.key, self._expected.calibration, self.count
        )
