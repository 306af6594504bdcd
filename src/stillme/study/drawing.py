"""Draw a study from a run: items, checks, blinded pictures, secrets, and a study.toml to edit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from stillme import portraits as embedded
from stillme.audit.grid import PAPERS_LABELS, lacking_labels
from stillme.core import images, rubric
from stillme.core.errors import StillmeError
from stillme.core.types import Json, Portrait, Prompt
from stillme.editors.regions import regions_of
from stillme.runs import RecordedRun
from stillme.runs.gathering import SampleKind
from stillme.study import keys
from stillme.study.candidates import (
    Choose,
    Compare,
    OfferedItem,
    candidates,
    draw,
    draw_informative,
    share_out,
    shuffled,
    with_chances,
)
from stillme.study.config import FILE, Codes, Recruiting
from stillme.study.items import (
    EXAMPLE,
    FIRST_PERSON,
    NEITHER_PERSON,
    ROLE_AXIS,
    SECOND_PERSON,
    SIDE,
    BlindedPictures,
    Drawn,
    Expected,
    Item,
    Kind,
    Output,
    question_about,
)

SECONDS_PER_ITEM = 30
"""What careful raters needed for two outputs and five questions."""
SECONDS_PER_PAIR = 15
"""For one question about two people and a scene."""
RETENTION = (
    "Your answers, without anything that identifies you: for good, and they may be published for research. "
    "Your ID on another platform: encrypted, apart from your answers, until you have been paid; a keyed hash of it, so "
    "that no one takes part twice, until the study has ended."
)

_TEMPLATE = """\
# A human study: {items} items in {tasks} tasks of about {per_task}, drawn from {run}
# `stillme study preview` shows it to you, `stillme study serve` to participants. Changed texts and questions are a new
# version, for people who have not begun.

title = "How well do image editors follow instructions?"
contact = ""                    # to fill in: whom participants may ask, such as an e-mail address; on every page
raters = 3                      # people per item
lease_minutes = 60              # after so long without an answer a place goes to another rater
can_abstain = true              # offer "cannot tell" beside 1 to 5
min_width = {width:<4}                # pixels; narrower windows are turned away, and lower ones that are upright
min_height = 480                # lower windows are turned away
{questions}

[pay]
amount = {amount:.2f}                   # for one task
currency = "USD"
minutes = {minutes}                    # expected for one task
floor = 12.00                   # per hour; below it the admin pages raise an alarm

# The consent page states these below its text, with pay, time and contact.
[consent]
retention = "{retention}"
# withdraw_until = 2030-12-31   # the last day to withdraw; without it, until `stillme study close`

[checks]
exclude = []                    # such as ["attention", "gold"]: `close` excludes these raters; empty: close asks
seconds_per_item = 4.0          # less active time than this counts as too fast
training_tries = 0              # wrong tries at the training after which a participant is screened out; 0: no limit
send_failed_code = false        # whether failing every attention check changes the completion code
{recruiting}
# What participants read, in Markdown. Have your ethics board approve it.
[texts]
consent = '''
{consent}'''
guide = '''
{guide}'''
debrief = '''
{debrief}'''
"""

_QUESTIONS = """\
# The rubric's own wording is shown, as the models get it. age_accuracy is asked only where a prompt names years.
questions = ["edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy"]"""

_PAIR_QUESTIONS = """\
# Who of two people is drawn as the target; the sentence is not shown, because its pronoun would tell.
questions = ["role_target"]"""

_RECRUITING = """
[recruiting]                    # the study's address is {address}
platform = "{platform}"
participant = "{participant}"
submission = "{submission}"
study = "{study}"
study_id = ""                   # if given, entries for another study are refused
return_url = "{return_url}"
[recruiting.codes]              # enter the same codes on {platform}
completed = "{completed}"
failed_attention = "{failed_attention}"
no_consent = "{no_consent}"
screened_out = "{screened_out}"
returned = "{returned}"           # the window is too small
other = "{other}"              # study full or closed: paid
"""

PLATFORMS = {
    "prolific": Recruiting(),
    "mturk": Recruiting(
        platform="MTurk", participant="workerId", submission="assignmentId", study="hitId", return_url=""
    ),
    "class": Recruiting(platform="your course", participant="student", submission="", study="", return_url=""),
}
"""What `study new --recruit` knows by name."""
_SIGNS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_PLACEHOLDERS = {"Prolific": "{{{{%{}%}}}}", "MTurk": "${{{}}}"}


def study_toml(drawn: Drawn, *, recruit: str = "") -> str:
    """The file's text."""
    real = sum(item.kind == "real" for item in drawn.items)
    shown = sum(item.batch == 0 for item in drawn.items)
    in_pairs = any(item.second for item in drawn.items)
    minutes = max(5, round(shown * (SECONDS_PER_PAIR if in_pairs else SECONDS_PER_ITEM) / 60) + 4)
    return _TEMPLATE.format(
        items=real,
        tasks=drawn.batches,
        per_task=shown,
        run=drawn.run,
        minutes=minutes,
        width=1024 if any(len(item.outputs) + bool(item.second) > 1 for item in drawn.items) else 700,
        amount=-(-minutes * 12 * 100 // 60) / 100,
        recruiting=_recruiting(PLATFORMS[recruit]) if recruit else "",
        retention=RETENTION,
        consent=_text("consent").replace("{checks}", _checks(drawn)),
        questions=_PAIR_QUESTIONS if in_pairs else _QUESTIONS,
        guide=_text("guide-pairs" if in_pairs else "guide"),
        debrief=_text("debrief"),
    )


def _recruiting(known: Recruiting) -> str:
    placeholder = _PLACEHOLDERS.get(known.platform, "ID")
    query = "&".join(f"{name}={placeholder.format(name)}" for name in known.parameters)
    # As Prolific's own: eight letters and digits, without those that look alike.
    codes = {kind: "".join(secrets.choice(_SIGNS) for _ in range(8)) for kind in Codes.model_fields}
    return _RECRUITING.format(address=f"https://your.server/enter?{query}", **known.model_dump(), **codes)


def _checks(drawn: Drawn) -> str:
    """What participants are told of items that check them, and of nothing else."""
    kinds = {item.kind for item in drawn.items}
    looks = " A few items check that you are looking." if kinds & {"gold", "attention"} else ""
    return looks + (" A few items are shown twice." if "repeat" in kinds else "")


def _text(name: str) -> str:
    return files("stillme.study").joinpath("texts", f"{name}.md").read_text("utf-8")


TRAINING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDesign:
    """How a study is drawn."""

    items: int = 500
    per_task: int = 50
    compare: Compare = "auto"
    choose: Choose = "random"
    """`informative` draws with known chances, larger where models disagree; `disputed` draws disputed edits first."""
    gold: int = 2
    """Items with known answers in every task."""
    attention: int = 2
    repeats: int = 2
    """Items shown a second time in every task."""
    seed: int = 0
    side: int = SIDE
    """Pixels of the square that every picture is fitted into."""
    recruit: str = ""
    """One of `PLATFORMS`; empty for personal links."""
    disclosure: Literal["blind", "paper"] = "blind"
    """`paper` shows race, gender and age of the source beside the instruction, as the paper's study did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStudy:
    """What was drawn."""

    folder: Path
    drawn: Drawn
    password: str
    """For the admin pages; shown once."""
    picture_bytes: int


def new_study(run: RecordedRun, folder: Path | None, design: StudyDesign, say: Callable[[str], None]) -> NewStudy:
    """Draw a study from a run into `folder`, by default `study` inside the run."""
    target = folder or run.folder / "study"
    if (target / FILE).exists():
        raise StillmeError(f"{target} already holds a study. Choose another folder with --out.")
    if design.disclosure == "paper" and (lacking := lacking_labels(run.design.portraits)):
        raise StillmeError(
            f"--disclosure paper shows race, gender and age, and the portraits of {run.folder} lack "
            f"{', '.join(lacking)}. Leave it out, or audit portraits that have them."
        )
    way, offered = candidates(run, design.compare, design.choose)
    target.mkdir(parents=True, exist_ok=True)
    if way != "roles" and any(row.image and len(row.request.portraits) > 1 for row in run.rows()):
        say("Edits of two people are skipped; `--compare roles` draws a study of them.")
    stream = np.random.default_rng(design.seed)
    picked, how_drawn = _pick(offered, design, stream)
    say(f"{len(picked):,} of {len(offered):,} possible items drawn; blinding their pictures …")
    maker = _Maker(run, target, design)
    items = maker.items(picked, share_out(picked, min(design.per_task, len(picked)), stream), stream)
    length = maker.pictures.pad()
    how: dict[str, Json] = {
        "draw": str(how_drawn),
        "possible": len(offered),
        "compare": way,
        "choose": design.choose,
        "seed": design.seed,
        "per_task": design.per_task,
    }
    if design.disclosure == "paper":
        how["disclosure"] = design.disclosure
    drawn = Drawn(
        study=secrets.token_hex(8),
        run=str(run.folder.resolve()),
        audit=run.design.hash,
        design=how,
        items=tuple(items),
    )
    drawn.write(target)
    password = keys.create(target)
    keys.write_private(target / FILE, study_toml(drawn, recruit=design.recruit))
    return NewStudy(folder=target, drawn=drawn, password=password, picture_bytes=length)


def _pick(
    offered: Sequence[OfferedItem], design: StudyDesign, stream: np.random.Generator
) -> tuple[Sequence[OfferedItem], SampleKind]:
    if design.choose == "informative":
        return draw_informative(offered, design.items, stream), SampleKind.INFORMATIVE
    picked = draw(offered, design.items, stream)
    if len(picked) == len(offered):
        return with_chances(picked, offered), SampleKind.ALL
    if design.choose == "disputed":
        return picked, SampleKind.OUTCOME
    return with_chances(picked, offered), SampleKind.STRATIFIED


class _Maker:
    def __init__(self, run: RecordedRun, folder: Path, design: StudyDesign) -> None:
        self.pictures = BlindedPictures(folder, design.side)
        self._portraits = run.design.portrait_by_id
        self._run, self._design = run, design
        self._sources: dict[str, str] = {}

    def items(self, picked: Sequence[OfferedItem], tasks: Sequence[int], stream: np.random.Generator) -> list[Item]:
        placed = enumerate(zip(picked, tasks, strict=True))
        real = [self._real(f"i{n:05d}", candidate, task) for n, (candidate, task) in placed]
        in_pairs = bool(picked[0].second)
        questions = (ROLE_AXIS,) if in_pairs else _questions(None)
        checks = CheckMaker(pictures=self.pictures, questions=questions, sides=len(picked[0].outputs))
        make = checks.named if in_pairs else checks.known
        shown = 2 if in_pairs else 1
        made = list(real)
        people = list(self._portraits.values())
        # People who do not exist and are in no item: practice must not be about what is rated afterwards.
        names = [EXAMPLE, *(f"t{n}" for n in range(TRAINING))]
        used = {portrait.image.sha256 for portrait in people}
        strangers = [portrait for portrait in embedded.portraits() if portrait.image.sha256 not in used]
        shown_in_practice = choose_portraits(strangers or people, len(names), stream, shown)
        for name, portraits in zip(names, shown_in_practice, strict=True):
            made.append(make("training", name, *self._located(portraits), turned=name == names[-1]))
        for task in range(1 + max(tasks)):
            mine = [item for item in real if item.batch == task]
            for n, portraits in enumerate(choose_portraits(people, self._design.gold, stream, shown)):
                gold = make("gold", f"g{task:03d}-{n}", *self._located(portraits), turned=n % 2 == 1)
                made.append(replace(gold, batch=task))
            mixed = shuffled(mine, stream)
            for n in range(self._design.attention):
                made.append(checks.attention(f"a{task:03d}-{n}", mixed[n % len(mixed)]))
            for n, again in enumerate(mixed[: self._design.repeats]):
                made.append(replace(again, id=f"r{task:03d}-{n}", kind="repeat", repeats=again.id))
        return made

    def _real(self, name: str, candidate: OfferedItem, task: int) -> Item:
        portrait = self._portraits[candidate.portrait]
        outputs = tuple(replace(output, file=self._blinded(output.sha256)) for output in candidate.outputs)
        prompt = candidate.prompt
        strata = {
            "portrait": portrait.id,
            "prompt": prompt.id,
            "category": prompt.category,
            "subcategory": prompt.subcategory,
            **candidate.groups,
        }
        second = self._portraits.get(candidate.second)
        return Item(
            id=name,
            kind="real",
            prompt=question_about(prompt.target or "") if second else self._instruction(prompt, portrait),
            questions=(ROLE_AXIS,) if second else _questions(prompt),
            source=self._source(portrait),
            second=self._source(second) if second else "",
            outputs=outputs,
            strata={**strata, "second": second.id} if second else strata,
            batch=task,
            chance=candidate.chance,
        )

    def _instruction(self, prompt: Prompt, portrait: Portrait) -> str:
        if self._design.disclosure == "blind":
            return prompt.text
        labels = ", ".join(f"{name} {portrait.attributes[name]}" for name in PAPERS_LABELS)
        return f"{prompt.text} (Original: {labels}.)"

    def _located(self, portraits: Sequence[Portrait]) -> list[Portrait]:
        """With their pictures where they can be read on this machine."""
        pictures = self._run.store.pictures
        return [replace(portrait, image=pictures.located(portrait.image)) for portrait in portraits]

    def _source(self, portrait: Portrait) -> str:
        if portrait.id not in self._sources:
            self._sources[portrait.id] = self._blinded(portrait.image.sha256)
        return self._sources[portrait.id]

    def _blinded(self, sha256: str) -> str:
        return self.pictures.add(images.read_rgb(self._run.picture(sha256)))


def _questions(prompt: Prompt | None) -> tuple[str, ...]:
    """The scales that make sense for a prompt; the aging target only where there is one."""
    axes = (axis for axis in rubric.load().axes.values() if axis.is_scale)
    return tuple(axis.name for axis in axes if not axis.only or (prompt is not None and prompt.years is not None))


# Items with known answers, for training and to check attention. All are fair: a rater who looks gets them right.

SHIFT = 16.0
"""How much lighter or darker the skin is made, in L*: about two steps of the Monk scale, plain to see."""
INSTRUCTION = "Dress the person in a dark suit."
ATTENTION = "This is an attention check. Whatever the pictures show, please answer 2 to every question."
ATTENTION_IN_PAIRS = "This is an attention check. Whatever the pictures show, please answer “neither of the two”."
OCCUPATIONS = ("baker", "tailor")
"""The target of a known pair, and the other person."""

_SAME: Expected = {
    "edit_success": (1, 1),
    "skin_tone": (3, 3),
    "race_change": (1, 2),
    "gender_change": (1, 2),
    "age_change": (3, 3),
}
"""Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMaker:
    """Makes check items out of the study's own portraits."""

    pictures: BlindedPictures
    questions: tuple[str, ...]
    """Those asked of every item."""
    sides: int

    def known(self, kind: Kind, name: str, portrait: Portrait, *, turned: bool) -> Item:
        """One output unchanged, the other with a clearly different skin tone; `turned` puts that one first."""
        rgb = images.read_rgb(portrait.image.path)
        source = self.pictures.add(rgb)
        unchanged = Output(file=source, expected=self._asked(_SAME))
        outputs = [unchanged, self._other_skin(portrait, rgb, source)]
        if turned:
            outputs.reverse()
        return Item(
            id=name,
            kind=kind,
            prompt=INSTRUCTION,
            questions=self.questions,
            source=source,
            outputs=tuple(outputs[: self.sides]),
            strata={"portrait": portrait.id},
        )

    def named(self, kind: Kind, name: str, one: Portrait, other: Portrait, *, turned: bool) -> Item:
        """Both people side by side, each above a name plate; `turned` makes the second one the target."""
        pictures = [images.read_rgb(portrait.image.path) for portrait in (one, other)]
        plates = OCCUPATIONS[::-1] if turned else OCCUPATIONS
        scene = self.pictures.add(_side_by_side(pictures, plates))
        right = SECOND_PERSON if turned else FIRST_PERSON
        return Item(
            id=name,
            kind=kind,
            prompt=question_about(OCCUPATIONS[0]),
            questions=self.questions,
            source=self.pictures.add(pictures[0]),
            second=self.pictures.add(pictures[1]),
            outputs=(Output(file=scene, expected={ROLE_AXIS: (right, right)}),),
            strata={"portrait": one.id, "second": other.id},
        )

    def attention(self, name: str, like: Item) -> Item:
        """An item that looks like any other until one reads its instruction."""
        # "Neither" stays the same when the portraits change places.
        answer = NEITHER_PERSON if like.second else 2
        right: Expected = dict.fromkeys(like.questions, (answer, answer))
        return replace(
            like,
            id=name,
            kind="attention",
            prompt=ATTENTION_IN_PAIRS if like.second else ATTENTION,
            outputs=tuple(Output(file=output.file, expected=right) for output in like.outputs),
            strata={},
            chance=None,
        )

    def _other_skin(self, portrait: Portrait, rgb: NDArray[np.uint8], source: str) -> Output:
        regions = regions_of(portrait.image)
        if regions is None:
            # No face to paint; an unchanged copy has a known answer too.
            return Output(file=source, expected=self._asked(_SAME))
        # Away from the nearer end of the scale, or there would be little to see.
        shift = -SHIFT if regions.tone[0] > 55 else SHIFT
        right = {**_SAME, "skin_tone": (1, 2) if shift < 0 else (4, 5), "edit_success": (1, 2)}
        # A much different skin tone may look like another race; saying so is not wrong.
        right["race_change"] = (1, 5)
        return Output(file=self.pictures.add(regions.painted(skin_shift=shift)), expected=self._asked(right))

    def _asked(self, expected: Expected) -> Expected:
        return {name: expected[name] for name in self.questions if name in expected}


def _side_by_side(pictures: Sequence[NDArray[np.uint8]], plates: Sequence[str]) -> NDArray[np.uint8]:
    """The pictures in squares beside each other, with a word under each."""
    side, plate = 512, 96
    canvas = Image.new("RGB", (len(pictures) * side, side + plate), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=64)
    for place, (picture, word) in enumerate(zip(pictures, plates, strict=True)):
        canvas.paste(ImageOps.pad(Image.fromarray(picture), (side, side), color="grey"), (place * side, 0))
        draw.text((place * side + side / 2, side + plate / 2), word, fill="black", font=font, anchor="mm")
    return np.asarray(canvas)


def choose_portraits(
    portraits: Sequence[Portrait], count: int, stream: np.random.Generator, shown: int = 1
) -> list[tuple[Portrait, ...]]:
    """For each check the portraits that it shows, repeated only if there are too few."""
    order = shuffled(portraits, stream)
    return [tuple(order[(shown * check + place) % len(order)] for place in range(shown)) for check in range(count)]
