"""Draw a study from a run: items, checks, blinded pictures, secrets, and a study.toml to edit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np

from stillme.audit.labels import PAPERS_LABELS, lacking_labels
from stillme.core import images, rubric
from stillme.core.errors import StillmeError
from stillme.core.types import Json, Portrait, Prompt
from stillme.portraits import synthetic
from stillme.runs import Run
from stillme.runs.gathering import SampleKind
from stillme.study import keys
from stillme.study.candidates import (
    Candidate,
    Choose,
    Compare,
    First,
    candidates,
    draw,
    draw_informative,
    share_out,
    shuffled,
    with_chances,
)
from stillme.study.checks import CheckMaker, choose_portraits
from stillme.study.config import FILE, Codes, Recruiting
from stillme.study.items import EXAMPLE, ROLE_AXIS, SIDE, BlindedPictures, Drawn, Item, Output, question_about

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
lease_minutes = 60              # after so long without an answer a place goes to somebody else
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
    codes = {kind: _new_code() for kind in Codes.model_fields}
    return _RECRUITING.format(address=f"https://your.server/enter?{query}", **known.model_dump(), **codes)


def _checks(drawn: Drawn) -> str:
    """What participants are told of items that check them, and of nothing else."""
    kinds = {item.kind for item in drawn.items}
    looks = " A few items check that you are looking." if kinds & {"gold", "attention"} else ""
    return looks + (" A few items are shown twice." if "repeat" in kinds else "")


def _text(name: str) -> str:
    return files("stillme.study").joinpath("texts", f"{name}.md").read_text("utf-8")


def _new_code() -> str:
    """As Prolific's own: eight letters and digits, without those that look alike."""
    return "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(8))


TRAINING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a study is drawn."""

    items: int = 500
    per_task: int = 50
    compare: Compare = "auto"
    first: First = "nothing"
    choose: Choose = "random"
    """`informative` draws with known chances, larger where models disagree."""
    gold: int = 2
    """Items with known answers in every task."""
    attention: int = 2
    repeats: int = 2
    """Items shown a second time in every task."""
    seed: int = 0
    side: int = SIDE
    """Pixels of the square that every picture is fitted into."""
    recruit: str = ""
    """One of `template.PLATFORMS`; empty for personal links."""
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


def new_study(run: Run, folder: Path | None, design: Design, say: Callable[[str], None]) -> NewStudy:
    """Draw a study from a run into `folder`, by default `study` inside the run."""
    target = folder or run.folder / "study"
    if (target / FILE).exists():
        raise StillmeError(f"{target} already holds a study. Choose another folder with --out.")
    if design.disclosure == "paper" and (lacking := lacking_labels(run.design.portraits)):
        raise StillmeError(
            f"--disclosure paper shows race, gender and age, and the portraits of {run.folder} lack "
            f"{', '.join(lacking)}. Leave it out, or audit portraits that have them."
        )
    if design.choose == "informative" and design.first != "nothing":
        raise StillmeError(
            f"--first {design.first} leaves the others no chance, and --choose informative needs one for each edit. "
            "Give one of the two."
        )
    way, offered = candidates(run, design.compare, design.first, design.choose)
    target.mkdir(parents=True, exist_ok=True)
    if way != "roles" and any(row.image and len(row.request.portraits) > 1 for row in run.rows()):
        say("Edits of two people are left out; `--compare roles` draws a study of them.")
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
        "first": design.first,
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
    offered: Sequence[Candidate], design: Design, stream: np.random.Generator
) -> tuple[Sequence[Candidate], SampleKind]:
    if design.choose == "informative":
        return draw_informative(offered, design.items, stream), SampleKind.INFORMATIVE
    picked = draw(offered, design.items, stream)
    if len(picked) == len(offered):
        return with_chances(picked, offered), SampleKind.ALL
    if design.first != "nothing":
        return picked, SampleKind.OUTCOME
    return with_chances(picked, offered), SampleKind.STRATIFIED


class _Maker:
    def __init__(self, run: Run, folder: Path, design: Design) -> None:
        self.pictures = BlindedPictures(folder, design.side)
        self._portraits = run.design.portrait_by_id
        self._run, self._design = run, design
        self._sources: dict[str, str] = {}

    def items(self, picked: Sequence[Candidate], tasks: Sequence[int], stream: np.random.Generator) -> list[Item]:
        real = [self._real(f"i{n:05d}", c).placed(task) for n, (c, task) in enumerate(zip(picked, tasks, strict=True))]
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
        strangers = [portrait for portrait in synthetic.portraits() if portrait.image.sha256 not in used]
        shown_in_practice = choose_portraits(strangers or people, len(names), stream, shown)
        for name, portraits in zip(names, shown_in_practice, strict=True):
            made.append(make("training", name, *self._located(portraits), turned=name == names[-1]))
        for task in range(1 + max(tasks)):
            mine = [item for item in real if item.batch == task]
            for n, portraits in enumerate(choose_portraits(people, self._design.gold, stream, shown)):
                made.append(make("gold", f"g{task:03d}-{n}", *self._located(portraits), turned=n % 2 == 1).placed(task))
            mixed = shuffled(mine, stream)
            for n in range(self._design.attention):
                like = mixed[n % len(mixed)]
                made.append(checks.attention(f"a{task:03d}-{n}", like).placed(task))
            for n, again in enumerate(mixed[: self._design.repeats]):
                made.append(replace(again, id=f"r{task:03d}-{n}", kind="repeat", repeats=again.id))
        return made

    def _real(self, name: str, candidate: Candidate) -> Item:
        portrait = self._portraits[candidate.portrait]
        outputs = tuple(
            Output(
                file=self._blinded(made.image),
                edit=made.edit,
                sha256=made.image,
                strata={"editor": made.editor, "arm": made.arm},
            )
            for made in candidate.outputs
        )
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
