"""study.toml: what is asked, of how many people, for which pay; checked whole before participants see it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt
from pydantic import Field, ValidationError

from stillme.audit.places import Location, TomlPlaces, explain
from stillme.core import rubric
from stillme.core.errors import Invalid, Problem, StillmeError, did_you_mean
from stillme.core.protocols import Section
from stillme.core.types import digest

FILE = "study.toml"
PROLIFIC_FLOOR = 8.0
"""US dollars an hour below which Prolific refuses a study."""

UPRIGHT = 700
"""Pixels of width that an upright window needs for two pictures side by side."""

WITHDRAWAL = (
    "You can withdraw with the link on every page, and everything of yours is deleted. Once your answers have been "
    "added to the results, they can no longer be taken out."
)

CodeKind = Literal["completed", "failed_attention", "no_consent", "screened_out", "returned", "other"]


class InvalidStudy(Invalid):
    """A study.toml with mistakes; it is not served."""


class Texts(Section):
    """What participants read, in Markdown."""

    consent: str = Field(min_length=40)
    """What they agree to, before anything else."""
    guide: str = Field(min_length=20)
    """How to rate, before the first item."""
    debrief: str = Field(min_length=20)
    """What it was about, at the end."""


class Consent(Section):
    """What the consent page states below its text, each by itself."""

    retention: str = ""
    """How long what is kept, and for what."""
    withdraw_until: date | None = None
    """The last day to withdraw. `stillme study close` refuses to add answers to the run before it is over."""


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

    def __str__(self) -> str:
        if not self.amount:
            return "Nothing; you take part as a volunteer."
        return f"{self.amount:.2f} {self.currency} for the whole task."


Failing = Literal["attention", "gold", "straight-lining"]
"""Flags for which raters may be excluded as a rule: how they worked, never that they disagreed."""


class Checks(Section):
    """How attention is checked. Flags exclude no one by themselves."""

    exclude: list[Failing] = []
    """Flags whose raters `stillme study close` excludes. Fix it before the first answer; otherwise close asks."""

    seconds_per_item: float = Field(default=4.0, ge=0)
    """Active time under which an item counts as too fast."""
    training_tries: int = Field(default=0, ge=0)
    """Wrong tries at the training after which a participant is screened out; 0 is no limit."""
    send_failed_code: bool = False
    """Whether a participant who fails every attention check gets the code for that instead of `completed`."""


class Codes(Section):
    """Completion codes by outcome, as the platform knows them. The server gives them out, never the page."""

    completed: str = ""
    """Every item was rated."""
    failed_attention: str = ""
    """Every attention check failed; see `checks.send_failed_code`."""
    no_consent: str = ""
    """Consent was not given."""
    screened_out: str = ""
    """The practice failed `checks.training_tries` times."""
    returned: str = ""
    """The window is too small for the pictures, so the submission is to be returned."""
    other: str = ""
    """The study is full or was closed: paid. Also in place of a code that is empty."""


class Recruiting(Section):
    """How participants of a platform or a class enter by the study's address, and leave."""

    platform: str = Field(default="Prolific", min_length=1)
    """Its name, as participants read it."""
    participant: str = Field(default="PROLIFIC_PID", min_length=1)
    """The parameter of the address that holds a participant's id."""
    submission: str = "SESSION_ID"
    """The parameter with the id of a submission; empty if there is none."""
    study: str = "STUDY_ID"
    """The parameter with the study's id; empty if there is none."""
    study_id: str = ""
    """If given, entries for another study are refused."""
    return_url: str = "https://app.prolific.com/submissions/complete?cc={code}"
    """Where participants go at the end, `{code}` replaced; empty to show them the code only."""
    codes: Codes = Codes()
    """Completion codes by outcome."""

    @property
    def parameters(self) -> list[str]:
        """The names of the address's parameters."""
        return [name for name in (self.participant, self.study, self.submission) if name]


class RequestRates(Section):
    """How often one client may ask."""

    entries_per_minute: float = Field(default=300, gt=0)
    """Entries to the study, all together."""
    requests_per_minute: float = Field(default=600, gt=0)
    """Per participant."""


class StudyConfig(Section):
    """A whole study.toml."""

    title: str = "How well do image editors follow instructions?"
    """What participants see above every page."""
    contact: str = ""
    """Shown to participants wherever something may go wrong."""
    raters: int = Field(default=3, ge=1, le=100)
    """How many people rate each item."""
    lease_minutes: float = Field(default=60.0, gt=0, le=10_000)
    """A place without an answer for so long goes to another participant."""
    questions: list[str] = Field(
        default=["edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy"],
        min_length=1,
    )
    """The axes that people rate; each is asked in the rubric's words."""
    can_abstain: bool = True
    """Whether "cannot tell" may be answered."""
    min_width: int = Field(default=1024, ge=0)
    """Pixels; narrower windows, and lower ones that are upright, are refused at the device check."""
    min_height: int = Field(default=480, ge=0)
    """Pixels; lower windows are refused."""
    texts: Texts
    consent: Consent = Consent()
    pay: Pay = Pay()
    checks: Checks = Checks()
    recruiting: Recruiting | None = None
    limits: RequestRates = RequestRates()

    @property
    def hash(self) -> str:
        """The hash of everything that a participant reads or is asked: the version."""
        shown = self.model_dump(
            mode="json", include={"title", "contact", "questions", "can_abstain", "texts", "consent"}
        )
        return digest([shown, str(self.pay), self.pay.minutes, rubric.load().version])

    @property
    def consent_facts(self) -> Mapping[str, str]:
        """What every consent must name, as the consent page shows it."""
        until = self.consent.withdraw_until
        last = f"Until the end of {until:%-d %B %Y}." if until else "Until the study is closed."
        return {
            "Time": f"About {self.pay.minutes:.0f} minutes.",
            "Pay": str(self.pay),
            "Kept": self.consent.retention,
            "Withdrawing": f"{last} {WITHDRAWAL}",
            "Contact": self.contact,
        }

    @property
    def consent_shown(self) -> str:
        """The consent page's text and facts."""
        facts = "\n".join(f"- {name}: {fact}" for name, fact in self.consent_facts.items())
        return f"{self.texts.consent.strip()}\n\n{facts}\n"

    def with_settings_of(self, newer: StudyConfig) -> StudyConfig:
        """What a participant of this version is shown, with the newer settings of how the study is run."""
        settings = ("contact", "lease_minutes", "checks", "recruiting", "limits")
        current = {name: getattr(newer, name) for name in settings}
        return self.model_copy(update=current)

    def fits(self, width: int, height: int) -> bool:
        """Whether pictures of 320 pixels and the questions can be in sight together in such a window."""
        if width >= height:
            return width >= self.min_width and height >= self.min_height
        return width >= UPRIGHT and height >= self.min_width

    def code(self, kind: CodeKind) -> str:
        """The code of an outcome, or the code `other` where that one is empty."""
        if self.recruiting is None:
            return ""
        return getattr(self.recruiting.codes, kind) or self.recruiting.codes.other


def load(folder: Path) -> StudyConfig:
    """The study in `folder`; raises `InvalidStudy` with every problem at once."""
    file = folder / FILE
    if not file.is_file():
        raise StillmeError(f"{folder} has no {FILE}. `stillme study new RUN` draws a study from a run.")
    try:
        text = file.read_text("utf-8-sig")
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidStudy(str(file), [Problem(place="", message=f"is not TOML: {error}")]) from None
    places = TomlPlaces(text)
    try:
        config = StudyConfig.model_validate(data)
    except ValidationError as error:
        raise InvalidStudy(str(file), explain(error, places, (), StudyConfig, data)) from None
    problems = [Problem(place=places.place(where), message=message) for where, message in _problems(config)]
    if problems:
        raise InvalidStudy(str(file), problems)
    return config


def warnings(config: StudyConfig) -> Iterator[str]:
    """What a researcher should consider before starting."""
    pay = config.pay
    rate = f"Pay of {pay.per_hour:.2f} {pay.currency} per hour"
    on_prolific = config.recruiting is not None and config.recruiting.platform == "Prolific"
    if on_prolific and pay.currency == "USD" and pay.per_hour < PROLIFIC_FLOOR:
        yield f"{rate} is below Prolific's floor of {PROLIFIC_FLOOR:.0f}; raise `pay.amount`."
    if pay.amount and pay.per_hour < pay.floor:
        yield f"{rate} is below this study's own floor of {pay.floor:.2f}; raise `pay.amount`."


def lacking_for_people(config: StudyConfig, file: Path) -> list[Problem]:
    """What a study must state before real people enter it."""
    places = TomlPlaces(file.read_text("utf-8-sig"))
    needed: tuple[tuple[Location, str, str], ...] = (
        (("contact",), config.contact, "is empty; name whom participants may ask, such as an e-mail address"),
        (("consent", "retention"), config.consent.retention, "is empty; say how long answers and ids are kept"),
    )
    return [
        Problem(place=places.place(where), message=message) for where, given, message in needed if not given.strip()
    ]


def _problems(config: StudyConfig) -> Iterator[tuple[Location, str]]:
    known = [name for name, axis in rubric.load().axes.items() if axis.is_asked]
    for index, name in enumerate(config.questions):
        if name not in known:
            yield (
                ("questions", index),
                f"no question {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}",
            )
    if len(set(config.questions)) < len(config.questions):
        yield ("questions",), "names a question twice; name each once"
    for name, text in config.texts:
        for token in MarkdownIt("commonmark", {"html": False}).parse(text):
            for part in token.children or ():
                if part.type == "image":
                    yield (
                        ("texts", name),
                        f"shows the image {part.attrs.get('src')!r}, which browsers are not allowed to load; remove it",
                    )
    recruiting = config.recruiting
    if recruiting:
        if not (recruiting.codes.completed and recruiting.codes.other):
            yield (
                ("recruiting", "codes"),
                f"needs at least `completed` and `other`; enter the same codes on {recruiting.platform}",
            )
        for kind, code in recruiting.codes.model_dump().items():
            if code and not code.isalnum():
                yield ("recruiting", "codes", kind), f"{code!r} is not a code; codes are letters and digits"
        if recruiting.return_url and not re.fullmatch(r"https://[^\s{}]*\{code\}[^\s{}]*", recruiting.return_url):
            yield (
                ("recruiting", "return_url"),
                "is not an https address with {code} in it; correct it, or empty it",
            )
        if recruiting.study_id and not recruiting.study:
            yield ("recruiting", "study"), "is empty, so `study_id` cannot be checked; name the parameter"
        if recruiting.platform == "Prolific" and "amount" not in config.pay.model_fields_set:
            yield ("pay",), "`amount` is missing; participants from Prolific are paid"
