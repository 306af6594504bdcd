"""Find the edit that a row is about, and gather the ratings of each edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stillme import rubric
from stillme.design import RecordedRequest
from stillme.errors import Problem, did_you_mean
from stillme.exchange.columns import Answer
from stillme.results import Run
from stillme.store import StoredEdit
from stillme.types import Arm, Rating, digest


@dataclass(frozen=True, slots=True)
class Target:
    """An edit that can be rated."""

    request: RecordedRequest
    stored: StoredEdit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedAssessment:
    """All ratings of one edit by one rater, or in one epoch."""

    target: Target
    epoch: int
    places: tuple[str, ...]
    ratings: Mapping[str, Rating]
    rater: str = ""
    """A name of the rater that leads back to nobody; the same in every row of a rater."""

    @property
    def said_by(self) -> dict[str, str]:
        """What the ledger keeps of the rater."""
        return {"rater": self.rater} if self.rater else {}


def pseudonym(rater: str) -> str:
    """A rater's name for ledgers and exports: the same for the same person, and no participant id."""
    return f"R{digest(['rater', rater])[:8]}" if rater else ""


class Matching:
    """Finds the edit that a row is about, and gathers rows about one edit."""

    def __init__(self, run: Run) -> None:
        self._design = run.design
        self._by_key: dict[str, Target] = {}
        self._by_name: dict[tuple[str, str, str, str, int], Target] = {}
        for row in run.rows():
            request = row.request
            if request.withheld:
                continue
            target = Target(request, row.edit)
            self._by_key[request.key] = target
            portraits = "+".join(request.portraits)
            self._by_name[request.editor, portraits, request.prompt, request.arm, request.seed] = target

    def assessments(self, answers: Iterable[Answer], problems: list[Problem]) -> list[MatchedAssessment]:
        """One entry per edit and repeat, in the file's order."""
        raters: defaultdict[str, list[str]] = defaultdict(list)
        gathered: dict[tuple[str, int], dict[str, Answer]] = {}
        for answer in answers:
            target = self._target(answer)
            if isinstance(target, str):
                problems.append(Problem(place=answer.place, message=target))
                continue
            key = target.request.key
            seen = raters[key]
            if answer.rater and answer.rater not in seen:
                seen.append(answer.rater)
            epoch = seen.index(answer.rater) if answer.rater else answer.epoch or 0
            by_axis = gathered.setdefault((key, epoch), {})
            if answer.axis in by_axis:
                before = by_axis[answer.axis].place
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                problems.append(
                    Problem(place=answer.place, message=f"{answer.axis} of this edit is already in {before}; {how}")
                )
                continue
            by_axis[answer.axis] = answer
        return [
            MatchedAssessment(
                target=self._by_key[key],
                epoch=epoch,
                places=tuple(dict.fromkeys(answer.place for answer in by_axis.values())),
                ratings={axis: answer.rating for axis, answer in by_axis.items()},
                rater=pseudonym(next(iter(by_axis.values())).rater),
            )
            for (key, epoch), by_axis in gathered.items()
        ]

    def _target(self, answer: Answer) -> Target | str:
        """The edit that an answer is about, or what is wrong."""
        if key := answer.which.get("edit"):
            target = self._by_key.get(key, f"no edit {key!r} in this audit; `stillme export` lists the keys of a run")
        else:
            target = self._named(answer.which)
        if isinstance(target, str):
            return target
        only = rubric.load().axes[answer.axis].only
        if only and self._design.prompt_by_id[target.request.prompt].subcategory != only:
            return (
                f"{answer.axis} is asked only of {only} prompts, and {target.request.prompt} is none; remove the score"
            )
        if target.stored is None:
            return "this edit was never made; `stillme run` makes it"
        if not target.stored.image:
            return f"this edit was {target.stored.outcome}, so there is no picture to rate; remove the row"
        return target

    def _named(self, which: Mapping[str, str]) -> Target | str:
        design = self._design
        for name in ("portrait", "prompt"):
            if name not in which:
                return f"no {name}; name its column with --map {name}=COLUMN, or give the edit's key"
        editors = {named.name: named for named in design.editors}
        editor = which.get("editor") or (next(iter(editors)) if len(editors) == 1 else "")
        if editor not in editors:
            unknown = f"no editor {editor!r} in this audit.{did_you_mean(editor, editors)}" if editor else "no editor."
            return f"{unknown} Known: {', '.join(editors)}"
        arm = which.get("arm", Arm.BASELINE.value)
        if arm not in design.arms:
            return f"no arm {arm!r} in this audit; it has {', '.join(design.arms)}"
        seeds = editors[editor].seeds
        seed = which.get("seed", str(seeds[0]) if len(seeds) == 1 else "")
        if seed not in map(str, seeds):
            return f"{f'no seed {seed!r}' if seed else 'no seed'}; {editor} has {', '.join(map(str, seeds))}"
        target = self._by_name.get((editor, which["portrait"], which["prompt"], arm, int(seed)))
        if target is not None:
            return target
        for name, known in (
            ("portrait", {portraits for _, portraits, _, _, _ in self._by_name}),
            ("prompt", {prompt for _, _, prompt, _, _ in self._by_name}),
        ):
            if which[name] not in known:
                return f"no {name} {which[name]!r} in this audit.{did_you_mean(which[name], known)}"
        return f"{which['portrait']} × {which['prompt']} is no request to {editor} in the {arm} arm"
