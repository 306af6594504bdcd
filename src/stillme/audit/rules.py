"""The rules of a gate, such as `race_changed.disparity@race <= 0.05`: read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from stillme.core.errors import StillmeError, did_you_mean

Statistic = Literal["mean", "group", "disparity", "contrast"]
Sign = Literal["<=", ">="]
Field = Literal["editor", "judge", "arm"]

STATISTICS: Mapping[str, Statistic] = {**{name: name for name in get_args(Statistic)}, "rate": "mean"}
FIELDS: tuple[Field, ...] = get_args(Field)

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_WORD = rf"(?:{_QUOTED}|[^\s.@#=<>\"]+)"
_VALUE = rf"(?:{_QUOTED}|[^\s=<>\"]+)"
_RULE = re.compile(
    rf"\s*(?P<quantity>{_WORD})(?:\.(?P<statistic>[^\s.@#=<>\"]+))?(?:\s*@(?P<factor>{_WORD}))?(?:\s*\#(?P<group>{_VALUE}))?"
    rf"(?P<where>(?:\s+\w+\s*=\s*{_VALUE})*)\s*(?P<sign><=|>=)\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"\s*(?P<percent>%)?\s*",
    re.DOTALL,
)
_WHERE = re.compile(rf"(\w+)\s*=\s*({_VALUE})", re.DOTALL)
_PLAIN = re.compile(r"[^\s.@#=<>\"\\]+")
_FORM = "QUANTITY[.STATISTIC][@FACTOR][#GROUP][ editor=NAME][ judge=NAME][ arm=NAME] <= NUMBER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One limit on one quantity. What is not specified is checked wherever it applies."""

    quantity: str
    statistic: Statistic = "mean"
    factor: str = ""
    group: str = ""
    editor: str = ""
    judge: str = ""
    arm: str = ""
    sign: Sign = "<="
    limit: float
    percent: bool = field(default=False, compare=False)
    """Whether the limit was written in percent."""
    written: str = field(default="", compare=False)
    """The rule as it was written."""

    def __str__(self) -> str:
        return "".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield _written(self.quantity)
        if self.statistic != "mean":
            yield f".{self.statistic}"
        if self.factor:
            yield f"@{_written(self.factor)}"
        if self.group:
            yield f"#{_written(self.group)}"
        for name in FIELDS:
            if value := getattr(self, name):
                yield f" {name}={_written(value)}"
        yield f" {self.sign} {100 * self.limit:.12g}%" if self.percent else f" {self.sign} {self.limit!r}"


def parse_rule(text: str) -> Rule:
    """Read a rule, or raise an error that says what is wrong with it."""
    parts = _RULE.fullmatch(text)
    if parts is None:
        raise StillmeError(f"{text!r} is not a rule. Write {_FORM}, with quotes around names that have spaces.")
    statistic = parts["statistic"] or ("group" if parts["group"] or parts["factor"] else "mean")
    if statistic not in STATISTICS:
        raise StillmeError(
            f"{text!r}: there is no statistic {statistic!r}.{did_you_mean(statistic, STATISTICS)} "
            f"Known: {', '.join(STATISTICS)}."
        )
    rule = Rule(
        quantity=_read(parts["quantity"]),
        statistic=STATISTICS[statistic],
        factor=_read(parts["factor"] or ""),
        group=_read(parts["group"] or ""),
        sign=cast("Sign", parts["sign"]),
        limit=_limit(parts["number"], percent=parts["percent"] is not None),
        percent=parts["percent"] is not None,
        written=text,
        **_where(text, parts["where"]),
    )
    if rule.statistic == "mean" and (rule.factor or rule.group):
        raise StillmeError(
            f"{text!r}: mean and rate are over everyone. For groups write .group, .disparity or .contrast."
        )
    if rule.statistic == "disparity" and rule.group:
        raise StillmeError(f"{text!r}: a disparity is between all groups. Remove #{rule.group}, or write .contrast.")
    return rule


def _limit(number: str, *, percent: bool) -> float:
    limit = float(f"{number}e-2") if percent and "e" not in number.lower() else float(number) / (100 if percent else 1)
    # A negative zero is a zero.
    return limit + 0.0


def _where(text: str, conditions: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in _WHERE.findall(conditions):
        if name not in FIELDS:
            raise StillmeError(f"{text!r}: {name!r} is unknown.{did_you_mean(name, FIELDS)} Use editor, judge or arm.")
        if name in given:
            raise StillmeError(f"{text!r}: {name} is given twice. Write a second rule.")
        given[name] = _read(value)
    return given


def _read(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL) if word.startswith('"') else word


def _written(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    escaped = re.sub(r'(["\\])', r"\\\1", word)
    return f'"{escaped}"'
