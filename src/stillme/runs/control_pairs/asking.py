"""Put pairs of known truth among a judge's questions, and take their answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stillme.audit import Audit, NamedJudge
from stillme.core.types import Assessment, Attributes, Json, Pair, Portrait, Prompt, digest
from stillme.runs.control_pairs import pictures
from stillme.runs.control_pairs.pairs import KnownPair, drawn, generator
from stillme.runs.control_pairs.reading import KnownAnswers, known_answers
from stillme.runs.control_pairs.scoring import Charts, Expectations, answers_of, trials
from stillme.runs.store import SentinelRow, Store
from stillme.runs.store.pictures import Pictures

_GENDERS = {"m": "masculine", "f": "feminine", "w": "feminine"}
"""The first letter of a gender label, and the presentation of an embedded portrait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
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
class SentinelTask:
    """A sentinel that a judge has to rate. Its pictures are made in the form of a real pair, before its turn comes."""

    sentinel: Sentinel
    model: Pair
    """The real pair whose file formats and pixel sizes it shares."""
    pictures: Pictures
    answered_before: int = 0
    """How many real questions were sent before it."""
    sent: bool = False

    @property
    def key(self) -> str:
        """What its rows are kept under."""
        return self.sentinel.key

    @cached_property
    def pair(self) -> Pair:
        """What the judge is shown: nothing in it tells that the truth is known."""
        known = self.sentinel.known
        return Pair(
            edit=self.key,
            sources=(pictures.source_of(known, self.model.sources[0], self.pictures),),
            edited=pictures.edited_of(known, self.model.edited, self.pictures),
            prompt=self.sentinel.prompt,
            labels=self.sentinel.labels,
            epoch=self.sentinel.epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a judge said to a sentinel, and what that took."""

    task: SentinelTask
    assessment: Assessment
    attempts: int
    seconds: float
    cost: float


def planned(named: NamedJudge, audit: Audit) -> Iterator[Sentinel]:
    """All sentinels of a judge in their order; the same in every run, and more of them do not change the first."""
    judge, section, count = named.judge, named.sentinel, audit.sentinel_count(named)
    questions = max(1, round(count / section.share)) if count else 1
    rng = generator(section.seed, judge.spec.key, "places")
    # One in each stretch of equal length, at any place in it, and never before the first question.
    stretch = questions / max(1, count)
    places = [max(1, round((number + rng.random()) * stretch)) for number in range(count)]
    pairs = drawn(judge.capabilities.axes, section.seed, judge.spec.key)
    for number, known in enumerate(itertools.islice(pairs, count)):
        rng = generator(section.seed, judge.spec.key, f"words {number}")
        yield Sentinel(
            key=digest(["sentinel", judge.spec.key, section.seed, number]),
            number=number,
            place=places[number],
            known=known,
            prompt=audit.sentinel_prompts[rng.integers(len(audit.sentinel_prompts))],
            labels=_labels(known.subject, audit.portraits, rng.random()) if judge.capabilities.labels else None,
            epoch=int(rng.integers(named.record().asked)),
        )


def _labels(subject: Portrait, portraits: Sequence[Portrait], chance: float) -> Attributes:
    """Labels in the audit's own words: those of one of its portraits, with the subject's gender presentation."""
    gender = subject.attributes.get("gender_presentation")
    alike = [p for p in portraits if _GENDERS.get(p.attributes.get("gender", "")[:1].lower()) == gender] or portraits
    return alike[int(chance * len(alike))].attributes


class Sentinels:
    """The sentinels of one judge in one run."""

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
        self.count = audit.sentinel_count(named)
        self.stopped = ""
        """Why the judge must not go on; empty while it may."""
        if self.count:
            self._begin()

    def _begin(self) -> None:
        axes = self._named.judge.capabilities.axes
        self._charts = Charts.planned((sentinel.known for sentinel in self.planned()), axes, self._expected)
        answered = self._store.sentinels(self._named.judge.spec.key)
        if answered:
            self._charts.levels.update({name: answered[-1].chart[name][0] for name in self._charts.limits})
        if any(sentinel.alarms for sentinel in answered):
            self._alarm(again=True)

    def due_after(self, questions: int) -> int:
        """How many are asked among so many real questions."""
        return sum(sentinel.place <= questions for sentinel in self.planned())

    def planned(self) -> Iterator[Sentinel]:
        """All of them, whether or not they were asked."""
        return planned(self._named, self._audit)

    def save(self, answers: Sequence[Answer]) -> None:
        """Keep the answers, and raise an alarm if they are worse than the judge's calibration explains."""
        rows: list[SentinelRow] = []
        before = bool(self._charts.alarms)
        for answer in answers:
            sentinel, pair = answer.task.sentinel, answer.task.pair
            said = answers_of(sentinel.known, answer.assessment)
            for trial in trials(said, self._expected):
                self._charts.add(trial)
            rows.append(
                SentinelRow(
                    key=sentinel.key,
                    judge=self._named.judge.spec,
                    number=sentinel.number,
                    pair=sentinel.known.name,
                    subject=sentinel.known.subject.id,
                    tone=sentinel.known.tone,
                    prompt=sentinel.prompt.id,
                    source=pair.sources[0].sha256,
                    edited=pair.edited.sha256,
                    assessment=answer.assessment,
                    answers=said,
                    chart=self._charts.as_json(),
                    answered_before=answer.task.answered_before,
                    attempts=answer.attempts,
                    seconds=answer.seconds,
                    cost=answer.cost,
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
        if self._named.sentinel.stop:
            self.stopped = f"{alarm} Check the judge; to go on nevertheless, write stop = false in [judges.sentinel]"

    def answers(self) -> KnownAnswers:
        """What is known of the judge so far."""
        return known_answers(
            self._store, self._named.name, self._named.judge.spec.key, self._expected.calibration, self.count
        )
