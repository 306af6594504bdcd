"""Draw a study from a run: items, checks, blinded pictures, secrets, and a study.toml to edit."""

from __future__ import annotations

import secrets as random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from stillme import images, rubric
from stillme.audit.labels import PAPERS_LABELS, lacking_labels
from stillme.errors import StillmeError
from stillme.portraits import synthetic
from stillme.results import Run
from stillme.study import keys, pairs, template
from stillme.study.blinding import SIDE, BlindedPictures
from stillme.study.candidates import Choose, Compare, First, candidates
from stillme.study.checks import CheckMaker, choose_portraits
from stillme.study.config import FILE
from stillme.study.items import EXAMPLE, Drawn, Item, Output
from stillme.study.sampling import Candidate, draw, draw_informative, share_out, shuffled
from stillme.types import Portrait, Prompt

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
    prolific: bool = False
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
    pick = draw_informative if design.choose == "informative" else draw
    picked = pick(offered, design.items, stream)
    say(f"{len(picked):,} of {len(offered):,} possible items drawn; blinding their pictures …")
    maker = _Maker(run, target, design)
    items = maker.items(picked, share_out(picked, min(design.per_task, len(picked)), stream), stream)
    length = maker.pictures.pad()
    how = {
        "compare": way,
        "first": design.first,
        "choose": design.choose,
        "seed": design.seed,
        "per_task": design.per_task,
    }
    if design.disclosure == "paper":
        how["disclosure"] = design.disclosure
    drawn = Drawn(
        study=random.token_hex(8),
        run=str(run.folder.resolve()),
        audit=run.design.hash,
        design=how,
        items=tuple(items),
    )
    drawn.write(target)
    password = keys.create(target)
    (target / FILE).write_text(template.study_toml(drawn, prolific=design.prolific), "utf-8")
    return NewStudy(folder=target, drawn=drawn, password=password, picture_bytes=length)


class _Maker:
    def __init__(self, run: Run, folder: Path, design: Design) -> None:
        self.pictures = BlindedPictures(folder, design.side)
        self._portraits = run.design.portrait_by_id
        self._run, self._design = run, design
        self._sources: dict[str, str] = {}

    def items(self, picked: Sequence[Candidate], tasks: Sequence[int], stream: np.random.Generator) -> list[Item]:
        real = [self._real(f"i{n:05d}", c).placed(task) for n, (c, task) in enumerate(zip(picked, tasks, strict=True))]
        in_pairs = bool(picked[0].second)
        questions = (pairs.AXIS,) if in_pairs else _questions(None)
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
            prompt=pairs.question_about(prompt.target or "") if second else self._instruction(prompt, portrait),
            questions=(pairs.AXIS,) if second else _questions(prompt),
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
