"""Find the edit that a row means, and gather what is said of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillme import rubric
from stillme.design import RecordedRequest
from stillme.errors import Problem, did_you_mean
from stillme.exchange.columns import Answer
from stillme.results import Run
from stillme.store import StoredEdit
from stillme.types import Arm, Rating


@dataclass(frozen=True, slots=True)
class Target:
    """An edit that can be rated."""

    request: RecordedRequest
    stored: StoredEdit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Everything that one answerer said of one edit."""

    target: Target
    epoch: int
    places: tuple[str, ...]
    ratings: Mapping[str, Rating]


class Matching:
    """Finds the edit that a row means, and gathers rows about one edit."""

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
            whose = "+".join(request.portraits)
            self._by_name[request.editor, whose, request.prompt, request.arm, request.seed] = target

    def assessments(self, answers: Sequence[Answer], problems: list[Problem]) -> list[Told]:
        """One entry per edit and repeat, in the file's order."""
        raters: defaultdict[str, list[str]] = defaultdict(list)
        gathered: dict[tuple[str, int], dict[str, Answer]] = {}
        for answer in answers:
            found = self._target(answer)
            if isinstance(found, str):
                problems.append(Problem(place=answer.place, message=found))
                continue
            key = found.request.key
            seen = raters[key]
            if answer.rater and answer.rater not in seen:
                seen.append(answer.rater)
            epoch = seen.index(answer.rater) if answer.rater else answer.epoch or 0
            others = gathered.setdefault((key, epoch), {})
            if answer.axis in others:
                before = others[answer.axis].place
                how = "name the raters in a column `rater`, or number the answers in `epoch`"
                problems.append(
                    Problem(place=answer.place, message=f"{answer.axis} of this edit stands already in {before}; {how}")
                )
                continue
            others[answer.axis] = answer
        return [
            Told(
                target=self._by_key[key],
                epoch=epoch,
                places=tuple(dict.fromkeys(each.place for each in said.values())),
                ratings={axis: each.rating for axis, each in said.items()},
            )
            for (key, epoch), said in gathered.items()
        ]

    def _target(self, answer: Answer) -> Target | str:
        which = answer.which
        if key := which.get("edit"):
            found = self._by_key.get(key)
            if found is None:
                return f"no edit {key!r} in this audit; `stillme export` lists the keys of a run"
        else:
            found = self._named(which)
        if isinstance(found, str):
            return found
        only = rubric.load().axes[answer.axis].only
        if only and self._design.prompt_by_id[found.request.prompt].subcategory != only:
            return f"{answer.axis} is asked only of {only} prompts, and {found.request.prompt} is none"
        if found.stored is None:
            return "this edit was never made; `stillme edit` makes it"
        if not found.stored.image:
            return f"this edit was {found.stored.outcome}, so there is no picture to rate"
        return found

    def _named(self, which: Mapping[str, str]) -> Target | str:
        design = self._design
        for name in ("portrait", "prompt"):
            if name not in which:
                return f"no {name}; name its column with --map {name}=COLUMN, or give the edit's key"
        editors = {named.name: named for named in design.editors}
        editor = which.get("editor") or (next(iter(editors)) if len(editors) == 1 else "")
        if editor not in editors:
            asked = f"no editor {editor!r} in this audit.{did_you_mean(editor, editors)}" if editor else "no editor."
            return f"{asked} Known: {', '.join(editors)}"
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
            ("portrait", {whose for _, whose, _, _, _ in self._by_name}),
            ("prompt", {prompt for _, _, prompt, _, _ in self._by_name}),
        ):
            if which[name] not in known:
                return f"no {name} {which[name]!r} in this audit.{did_you_mean(which[name], known)}"
        return f"{which['portrait']} × {which['prompt']} is not asked of {editor} in the {arm} arm"
