"""The plan of an audit, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import audit as audits
from stillme import numbers
from stillme.audit import Audit
from stillme.planning.answers import Alternative, Leaning, Sight, Wish
from stillme.planning.assumptions import Asked, Assumed, assume
from stillme.planning.costs import Bill, Bills, bills
from stillme.planning.power import Terms
from stillme.planning.sight import PowerAnalysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an audit will do, cost and see."""

    title: str
    file: Path
    portraits: int
    prompts: int
    bills: Bills
    assumed: Assumed
    terms: Terms
    sights: tuple[Sight, ...]
    leanings: tuple[Leaning, ...]
    wishes: tuple[Wish, ...]
    alternatives: tuple[Alternative, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "title": self.title,
            "file": str(self.file),
            "portraits": self.portraits,
            "prompts": self.prompts,
            "requests": self.bills.requests,
            "edits": self.bills.edits,
            "judge_calls": self.bills.questions,
            "dollars": self.bills.dollars,
            "dollars_unknown": list(self.bills.unpriced),
            "gpu_hours": self.bills.gpu_hours,
            "editors": [bill.as_json() for bill in self.bills.editors],
            "judges": [bill.as_json() for bill in self.bills.judges],
            "extractors": [bill.as_json() for bill in self.bills.extractors],
            "assumed": self.assumed.as_json() | {"power": self.terms.power, "confidence": self.terms.confidence},
            "detectable": [sight.as_json() for sight in self.sights],
            "roles": [each.as_json() for each in self.leanings],
            "wished": [wish.as_json() for wish in self.wishes],
            "designs": [each.as_json() for each in self.alternatives],
        }

    def as_text(self) -> str:
        """For people."""
        return "\n".join(
            [
                self.title,
                *self._work(),
                *self._seen(),
                *self._wished(),
                *self._designs(),
            ]
        )

    def _work(self) -> Iterator[str]:
        work = self.bills
        by_arm = ", ".join(f"{arm} {count:,}" for arm, count in work.requests.items())
        yield f"  {self.portraits:,} portraits, {self.prompts:,} prompts, {len(work.editors)} editors"
        yield f"  {work.edits:>9,} edits ({by_arm})"
        yield from (_billed(bill) for bill in work.editors)
        if work.extractors:
            yield f"  {sum(bill.calls for bill in work.extractors):>9,} descriptions of portraits"
            yield from (_billed(bill) for bill in work.extractors)
        yield f"  {work.questions:>9,} judge calls"
        yield from (_billed(bill) for bill in work.judges)
        besides = f", besides {', '.join(work.unpriced)}, whose price is unknown" if work.unpriced else ""
        yield f"  {f'${work.dollars:,.2f}':>9} {'with' if work.gpu_dollars else 'without'} GPU time{besides}"
        if any(bill.gpu for bill in work.editors):
            hours = work.gpu_hours
            yield f"  {'unknown' if hours is None else f'{hours:,.1f}':>9} GPU hours"

    def _seen(self) -> Iterator[str]:
        if self.leanings:
            yield ""
            yield f"Smallest distance of role adherence from 50% that is found in {self.terms.power:.0%} of audits"
            head = ("editor", "requests", "portraits", "distance")
            yield from _table(head, [_leaning_row(each) for each in self.leanings])
        if not self.sights:
            return
        yield ""
        yield f"Smallest gap between two groups that is found in {self.terms.power:.0%} of audits"
        likely = self.assumed.rates[0]
        spread = "" if likely.low == likely.high else f" ({likely.low:.2f} to {likely.high:.2f})"
        assumed = f"ICC {likely.icc:.2f}{spread}, SD of single scores {self.assumed.sd:.2f}"
        yield f"  assumed ({self.assumed.origin}): {assumed}"
        yield from _table(
            ("factor", "groups", "portraits each", "of", "gap", "range", "by Holm"),
            [_seen_row(sight) for sight in self.sights if sight.against == "another group"],
        )

    def _wished(self) -> Iterator[str]:
        if self.wishes:
            yield ""
            yield f"To find {100 * self.wishes[0].gap:g} points between two groups"
            head = ("factor", "of", "portraits a group", "in all", "edits", "judge calls", "known dollars")
            yield from _table(head, [_wished_row(wish) for wish in self.wishes])

    def _designs(self) -> Iterator[str]:
        if not self.alternatives:
            return
        yield ""
        rate = self.assumed.rates[0].rate
        yield f"What a thinner grid keeps, and what its edits would buy (rate {rate:.0%}, first factor)"
        head = ("edits each", "[sample] size", "of edits", "of information", "gap", "same edits buy", "gap then")
        yield from _table(head, [_design_row(each) for each in self.alternatives])


def plan_audit(path: Path, asked: Asked | None = None) -> Plan:
    """Plan the audit at `path`; nothing is run, and neither keys nor extras are needed."""
    asked = asked or Asked()
    loaded: Audit = audits.load(path, ready=False)
    assumed = assume(asked)
    terms = Terms(confidence=loaded.config.estimates.confidence, power=asked.power)
    analysis = PowerAnalysis(loaded, assumed, terms)
    work = bills(loaded, asked, assumed)
    return Plan(
        title=loaded.config.title,
        file=loaded.file,
        portraits=len(loaded.portraits),
        prompts=len(loaded.prompts),
        bills=work,
        assumed=assumed,
        terms=terms,
        sights=tuple(analysis.sights()),
        leanings=tuple(analysis.leanings()),
        wishes=tuple(analysis.wishes(asked.detect, work)) if asked.detect else (),
        alternatives=tuple(analysis.alternatives()),
    )


def _billed(bill: Bill) -> str:
    parts = [f"{'':>4}{bill.name:<24}{bill.calls:>9,}"]
    if bill.dollars:
        parts.append(f"about ${bill.dollars:,.2f}")
    if bill.hours:
        parts.append(f"{bill.hours:,.1f} h")
    return "   ".join([*parts, *([bill.note] if bill.note else [])])


def _wished_row(wish: Wish) -> tuple[str, ...]:
    head = (wish.factor, f"rate {wish.base:.0%}")
    if wish.per_group is None:
        return (*head, "no number", "", "", "", "")
    return (
        *head,
        f"{wish.per_group:,}",
        f"{wish.portraits:,}",
        f"{wish.edits:,}",
        f"{wish.judge_calls:,}",
        f"${wish.dollars:,.2f}",
    )


def _leaning_row(each: Leaning) -> tuple[str, ...]:
    return (each.editor, f"{each.requests:,}", f"{each.portraits:,}", _size(each.departure, rate=True))


def _seen_row(sight: Sight) -> tuple[str, ...]:
    gap, rate = sight.gap, sight.quantity == "rate"
    return (
        sight.factor,
        str(sight.groups),
        str(sight.portraits),
        f"rate {sight.base:.0%}" if sight.base is not None else "mean",
        _size(gap.value, rate=rate),
        f"{_size(gap.low, rate=rate)} to {_size(gap.high, rate=rate)}",
        _size(gap.corrected, rate=rate),
    )


def _design_row(each: Alternative) -> tuple[str, ...]:
    return (
        f"{each.edits_each:.4g}" + (" (now)" if each.chosen else ""),
        f"{each.size:,}",
        f"{each.share:.0%}",
        f"{each.information:.0%}",
        _size(each.gap, rate=True),
        f"{each.portraits:,} portraits",
        _size(each.wider_gap, rate=True),
    )


def _size(gap: float | None, *, rate: bool) -> str:
    return "none" if gap is None else numbers.points(gap) if rate else numbers.decimal(gap, 2)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
