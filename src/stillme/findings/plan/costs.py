"""What a design asks for, and what that costs."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from stillme.audit import Audit, NamedEditor, NamedJudge
from stillme.audit.audit import NamedExtractor
from stillme.core.errors import UnknownName
from stillme.core.paper import setting
from stillme.core.protocols import expected_dollars, overrides
from stillme.core.rubric import REPEATS
from stillme.core.types import Arm, Spec
from stillme.findings.plan.assumptions import Assumptions, PlanOptions

_ACCELERATED = "torch"
"""An editor that needs this runs on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The work of one editor or judge. What is not known is None, and `note` says why."""

    name: str
    calls: int
    by_arm: Mapping[str, int]
    dollars: float | None
    hours: float | None
    gpu: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bills:
    """The work of all editors, extractors and judges."""

    editors: tuple[Bill, ...]
    judges: tuple[Bill, ...]
    extractors: tuple[Bill, ...]
    """Who describes portraits for a feature prompt."""
    gpu_dollars: float | None
    control_pairs: tuple[Bill, ...] = ()
    """Judges, with the pairs of known truth that are hidden among their questions."""
    readers: tuple[Bill, ...] = ()
    """Who says what single pictures show."""

    @property
    def requests(self) -> dict[str, int]:
        """Edits by arm."""
        total: Counter[str] = Counter()
        for bill in self.editors:
            total.update(bill.by_arm)
        return dict(total)

    @property
    def edits(self) -> int:
        """Edits of all arms and editors."""
        return sum(bill.calls for bill in self.editors)

    @property
    def questions(self) -> int:
        """Calls of all judges."""
        return sum(bill.calls for bill in self.judges)

    @property
    def _all(self) -> tuple[Bill, ...]:
        return (*self.editors, *self.extractors, *self.judges, *self.control_pairs, *self.readers)

    @property
    def gpu_hours(self) -> float | None:
        """On your own GPUs; None where an editor's time is not known."""
        hours = [bill.hours for bill in self.editors if bill.gpu]
        return None if None in hours else sum(hour for hour in hours if hour is not None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Editors, extractors and judges whose cost is unknown."""
        unknown = dict.fromkeys(bill.name for bill in self._all if bill.dollars is None)
        return (*unknown, *(("GPU hours",) if self.gpu_dollars and self.gpu_hours is None else ()))

    @property
    def dollars(self) -> float:
        """The known part of the cost."""
        charged = sum(bill.dollars or 0.0 for bill in self._all)
        return charged + (self.gpu_dollars or 0.0) * (self.gpu_hours or 0.0)


def bills(audit: Audit, options: PlanOptions, assumed: Assumptions) -> Bills:
    """Count every call and price it."""
    names = [named.name for named in audit.editors]
    for name in options.seconds:
        if name and name not in names:
            raise UnknownName.among("editor", name, names, f"The audit has {', '.join(names)}.")
    stated = audit.config
    editors = tuple(
        _editor(audit, named, options, _prices(section.parameters, named.editor.spec, assumed), assumed)
        for section, named in zip(stated.editors, audit.editors, strict=True)
    )
    asked = [
        (named, _prices(section.parameters, named.judge.spec, assumed))
        for section, named in zip(stated.judges, audit.judges, strict=True)
    ]
    pictures = sum(bill.calls for bill in editors)
    return Bills(
        editors=editors,
        judges=tuple(_judge(named, pictures, prices, assumed) for named, prices in asked),
        extractors=tuple(_extractor(audit, named) for named in audit.extractors),
        gpu_dollars=options.gpu_dollars,
        control_pairs=tuple(
            _asked(named, count, prices, assumed)
            for named, prices in asked
            if (count := audit.control_pair_count(named))
        ),
        readers=tuple(
            _asked(named, _readings(audit), _prices(parameters, named.judge.spec, assumed), assumed)
            for named in audit.readers
            for parameters in [named.recipe.parameters if named.recipe else dict[str, Any]()]
        ),
    )


@dataclass(frozen=True, slots=True)
class _Prices:
    """Where the price of one call comes from: the audit, else a run, else what the plugin expects."""

    in_the_audit: bool
    measured: float | None
    run: str

    def of(self, plugin: object, calls: int) -> tuple[float | None, str]:
        """Dollars of all calls, and the source of the price."""
        if not calls:
            return 0.0, ""
        if self.measured and not self.in_the_audit:
            return calls * self.measured, f"${self.measured:.4g} each, measured in {self.run}"
        price = expected_dollars(plugin)
        if price is None:
            return None, "price unknown"
        origin = "as the audit says" if self.in_the_audit else "by the price list"
        return calls * price, f"${price:.4g} each, {origin}" if price else ""


def _prices(parameters: Mapping[str, Any], spec: Spec, assumed: Assumptions) -> _Prices:
    return _Prices("price" in parameters, assumed.dollars.get(spec.key), assumed.timed.get(spec.key, ""))


def _editor(audit: Audit, named: NamedEditor, options: PlanOptions, prices: _Prices, assumed: Assumptions) -> Bill:
    by_arm = Counter({str(arm): 0 for arm in audit.config.arms})
    by_arm.update(str(arm) for _, arm, _ in audit.cells(named))
    counts = {arm: count * len(named.seeds) for arm, count in by_arm.items()}
    calls = sum(counts.values())
    needs = named.editor.needs
    on_cpu = overrides(named.editor, "gpus") and not named.editor.gpus
    gpu = not on_cpu and (bool(needs.memory_gb) or _ACCELERATED in needs.modules)
    speed = speed_of(named, options, assumed)
    dollars, price = prices.of(named.editor, calls)
    notes = [f"GPU with about {needs.memory_gb:g} GB"] if gpu and needs.memory_gb else []
    paper = setting().named(named.editor.spec.use)
    if gpu and paper and needs.memory_gb > setting().gpu_gb:
        fitting = next(name for name in paper.plugins[1:] if name.endswith(f"-{setting().gpu_gb}gb"))
        notes.append(f"on the paper's {setting().gpu_gb} GB (A100) use {fitting!r}")
    if gpu or speed.seconds is not None:
        notes.append(_time_note(speed, calls))
    notes += [price] if price else []
    return Bill(
        name=named.name,
        calls=calls,
        by_arm=counts,
        dollars=dollars,
        hours=None if speed.seconds is None else calls * speed.seconds / 3600,
        gpu=gpu,
        note="; ".join(notes),
    )


def _time_note(speed: Speed, calls: int) -> str:
    if speed.seconds is not None:
        return f"{speed.seconds:.3g} s an edit, {speed.origin}"
    return f"{calls * speed.low / 3600:,.0f} to {calls * speed.high / 3600:,.0f} h, {speed.origin}"


def _judge(named: NamedJudge, pictures: int, prices: _Prices, assumed: Assumptions) -> Bill:
    key, given = named.judge.spec.key, named.judge.capabilities.given
    bill = _asked(named, 0 if given else pictures * named.record().asked, prices, assumed)
    notes = ["its scores are imported"] if given else [bill.note] if bill.note else []
    if bill.calls and key in assumed.seconds:
        notes.append(f"{assumed.seconds[key]:.3g} s a question, measured in {assumed.timed[key]}")
    return replace(bill, note="; ".join(notes))


def _readings(audit: Audit) -> int:
    """Pictures that a reader is shown, at most: those of the same bytes are read once."""
    readings = 0
    for named in audit.editors:
        alone = [(portraits[0].id, arm) for portraits, arm, _ in audit.cells(named) if len(portraits) == 1]
        controls = sum(arm is Arm.NOOP for _, arm in alone)
        readings += (len(alone) - controls + REPEATS * controls) * len(named.seeds)
        if Arm.NOOP not in audit.config.arms:
            readings += REPEATS * len({portrait for portrait, _ in alone})
    return readings


def _asked(named: NamedJudge, calls: int, prices: _Prices, assumed: Assumptions) -> Bill:
    dollars, price = prices.of(named.judge, calls)
    seconds = assumed.seconds.get(named.judge.spec.key)
    return Bill(
        name=named.name,
        calls=calls,
        by_arm={},
        dollars=dollars,
        hours=None if seconds is None else calls * seconds / 3600,
        gpu=False,
        note=price,
    )


def _extractor(audit: Audit, named: NamedExtractor) -> Bill:
    calls = len(audit.portraits_to_describe)
    dollars, note = _Prices(in_the_audit=False, measured=None, run="").of(named.extractor, calls)
    return Bill(name=named.name, calls=calls, by_arm={}, dollars=dollars, hours=None, gpu=False, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds of one edit. Published ones give a range and no single number."""

    seconds: float | None = None
    origin: str = ""
    low: float = 0.0
    high: float = 0.0


def speed_of(named: NamedEditor, options: PlanOptions, assumed: Assumptions) -> Speed:
    """The user's number, else a run's, else what was published of it, or of others like it."""
    spec = named.editor.spec
    told = options.seconds.get(named.name, options.seconds.get(""))
    if told is not None:
        return Speed(seconds=told, origin="as you say")
    if spec.key in assumed.seconds:
        return Speed(seconds=assumed.seconds[spec.key], origin=f"measured in {assumed.timed[spec.key]}")
    known = published()
    own = known.get(spec.use)
    times = [time for entry in ([own] if own else known.values()) for time in entry["seconds"].values()]
    origin = _told(own) if own else "; ".join(f"for scale, {name}: {_told(other)}" for name, other in known.items())
    return Speed(origin=origin, low=min(times), high=max(times))


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """By the editor's name: the `seconds` that its authors measured, by the kind of GPU, and their `source`."""
    return tomllib.loads(files("stillme.findings.plan").joinpath("published.toml").read_text("utf-8"))


def _told(entry: Mapping[str, Any]) -> str:
    times = ", ".join(f"{seconds:g} s on {gpu}" for gpu, seconds in entry["seconds"].items())
    return f"published: {times} ({entry['source']})"
