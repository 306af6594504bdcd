"""study.toml: what is asked, of how many people, for which pay; checked whole before anybody sees it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stillme import rubric
from stillme.audit.places import Location, Places, explain
from stillme.errors import Invalid, Problem, StillmeError, did_you_mean
from stillme.types import Json, digest

FILE = "study.toml"
PROLIFIC_FLOOR = 8.0
"""US dollars an hour below which Prolific refuses a study."""

CodeKind = Literal["completed", "failed_attention", "no_consent", "screened_out", "incompatible_device", "other"]


class InvalidStudy(Invalid):
    """A study.toml with mistakes; it is not served."""


class Section(BaseModel):
    """A table of study.toml. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Texts(Section):
    """What participants read, in Markdown."""

    consent: str = Field(min_length=40)
    """What they agree to, before anything else."""
    guide: str = Field(min_length=20)
    """How to rate, before the first item."""
    debrief: str = Field(min_length=20)
    """What it was about, at the end."""


class Pay(Section):
    """What a participant is paid for one task."""

    amount: float = Field(default=0.0, ge=0)
    """For one task, in `currency`."""
    currency: str = Field(default="USD", min_length=3, max_length=3)
    """Its three letters."""
    minutes: float = Field(default=30.0, gt=0)
    """How long a task is expected to take."""
    floor: float = Field(default=12.0, ge=0)
    """Per hour; the admin pages raise an alarm when the median falls below it."""

    @property
    def per_hour(self) -> float:
        """Pay per hour if tasks take as long as expected."""
        return 60 * self.amount / self.minutes


class Checks(Section):
    """How attention is checked. Flags are advice; people decide."""

    seconds_per_item: float = Field(default=4.0, ge=0)
    """Active time under which an item counts as too fast."""
    send_failed_code: bool = False
    """Whether somebody who fails every attention check gets Prolific's code for that instead of `completed`."""


class Codes(Section):
    """Prolific's completion codes, from the study's page there. The server gives them out, never the page."""

    completed: str = ""
    """Every item was rated."""
    failed_attention: str = ""
    """Every attention check failed; see `checks.send_failed_code`."""
    no_consent: str = ""
    """Consent was not given."""
    screened_out: str = ""
    """For your own use: the server sends nobody back with it."""
    incompatible_device: str = ""
    """The window is too narrow."""
    other: str = ""
    """The study is full, or something went wrong; also in place of a code that is empty."""


class Token(Section):
    """Prolific's signed entry tokens."""

    keys: str
    """A file with Prolific's public keys, saved from https://api.prolific.com/.well-known/study/jwks.json."""
    audience: str
    """Your address, as Prolific signs it."""


class Prolific(Section):
    """How participants from Prolific enter and leave."""

    study_id: str = ""
    """If given, entries for another study are refused."""
    codes: Codes = Codes()
    """Completion codes, from the study's page at Prolific."""
    token: Token | None = None
    """If given, only signed entries are let in."""


class RequestRates(Section):
    """How often one client may ask."""

    entries_per_minute: float = Field(default=300, gt=0)
    """Entries to the study, all together."""
    requests_per_minute: float = Field(default=600, gt=0)
    """Per participant."""


class Config(Section):
    """A whole study.toml."""

    title: str = "How well do image editors follow instructions?"
    """What participants see above every page."""
    contact: str = ""
    """Shown to participants wherever something may go wrong."""
    raters: int = Field(default=3, ge=1, le=100)
    """How many people rate each item."""
    lease_minutes: float = Field(default=60.0, gt=0, le=10_000)
    """A place without an answer for so long goes to somebody else."""
    questions: list[str] = Field(
        default=["edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy"],
        min_length=1,
    )
    """The axes that people rate; each is asked in the rubric's words."""
    can_abstain: bool = True
    """Whether "cannot tell" may be answered."""
    min_width: int = Field(default=740, ge=0)
    """Narrower windows are refused at the device check."""
    texts: Texts
    pay: Pay = Pay()
    checks: Checks = Checks()
    prolific: Prolific | None = None
    limits: RequestRates = RequestRates()

    @property
    def hash(self) -> str:
        """The hash of everything that can change an answer."""
        shown = self.model_dump(mode="json", include={"raters", "questions", "can_abstain", "texts"})
        return digest([shown, rubric.load().version])

    def code(self, kind: CodeKind) -> str:
        """Prolific's code of a kind, or the code `other` where that one is empty."""
        if self.prolific is None:
            return ""
        return getattr(self.prolific.codes, kind) or self.prolific.codes.other


def load(folder: Path) -> Config:
    """The study in `folder`; raises `InvalidStudy` with every problem at once."""
    file = folder / FILE
    if not file.is_file():
        raise StillmeError(f"{folder} has no {FILE}. `stillme study new RUN` draws a study from a run.")
    try:
        text = file.read_text("utf-8-sig")
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidStudy(str(file), [Problem(place="", message=f"is not TOML: {error}")]) from None
    places = Places(text)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise InvalidStudy(str(file), explain(error, places, (), Config, data)) from None
    problems = [
        Problem(place=places.place(where), message=message) for where, message in _problems(config, folder, data)
    ]
    if problems:
        raise InvalidStudy(str(file), problems)
    return config


def warnings(config: Config) -> Iterator[str]:
    """What a researcher should consider before starting."""
    pay = config.pay
    rate = f"Pay of {pay.per_hour:.2f} {pay.currency} per hour"
    if config.prolific and pay.currency == "USD" and pay.per_hour < PROLIFIC_FLOOR:
        yield f"{rate} is below Prolific's floor of {PROLIFIC_FLOOR:.0f}; raise `pay.amount`."
    if pay.amount and pay.per_hour < pay.floor:
        yield f"{rate} is below this study's own floor of {pay.floor:.2f}; raise `pay.amount`."
    if not config.contact:
        yield "`contact` is empty, so participants do not know whom to ask; give an e-mail address."


def _problems(config: Config, folder: Path, data: Mapping[str, Json]) -> Iterator[tuple[Location, str]]:
    known = [name for name, axis in rubric.load().axes.items() if axis.is_scale or axis.is_nominal]
    for index, name in enumerate(config.questions):
        if name not in known:
            yield (
                ("questions", index),
                f"no question {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}",
            )
    if len(set(config.questions)) < len(config.questions):
        yield ("questions",), "names a question twice; name each once"
    for word in ("withdraw", "kept"):
        if word not in config.texts.consent.lower():
            yield (
                ("texts", "consent"),
                f"does not say {word!r}: consent must name how long data is kept and how to withdraw",
            )
    if config.prolific:
        codes = config.prolific.codes
        if not (codes.completed and codes.other):
            yield (
                ("prolific", "codes"),
                "needs at least `completed` and `other`; take them from the study's page on Prolific",
            )
        for kind, code in codes.model_dump().items():
            if code and not code.isalnum():
                yield ("prolific", "codes", kind), f"{code!r} is not a code; codes are letters and digits"
        token = config.prolific.token
        if token and not (folder / token.keys).is_file():
            yield ("prolific", "token", "keys"), f"there is no file {token.keys!r} in {folder}"
    pay = cast("Mapping[str, Json]", data.get("pay") or {})
    if config.prolific and "amount" not in pay:
        yield ("pay",), "`amount` is missing; participants from Prolific are paid"
