"""Which of a run's editors and groups are the paper's, and why its numbers are not the same measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stillme import numbers, prompts, rubric
from stillme.design import Design
from stillme.paper import Published, published, setting
from stillme.types import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperNames:
    """A run in the paper's words."""

    editors: Mapping[str, str]
    """By the run's name: the paper's editor."""
    differences: tuple[str, ...]
    """Why the two are not the same measurement, a sentence for each reason."""

    def number(self, place: str, editor: str, quantity: str, *, group: str = "", **wanted: str) -> Published | None:
        """The number that the paper prints at this place for the run's editor and group; None where it prints none."""
        asked = {"editor": self.editors.get(editor), "quantity": quantity, **wanted}
        asked["group"] = setting().group(group) if group else ""
        if group and not asked["group"]:
            return None
        for known in published():
            if known.place == place and all(getattr(known, name) == value for name, value in asked.items()):
                return known
        return None


def paper_names(design: Design) -> PaperNames | None:
    """None where nothing can be compared: no editor of the paper, or prompts that the paper does not have."""
    known = {prompt.text for prompt in (*prompts.diagnostic(), *prompts.roles())}
    # A planted editor does what its parameters say, so the paper's numbers are no measure for it.
    editors = {
        editor.name: paper.name
        for editor in design.editors
        if editor.answers is None and (paper := setting().editor(editor.name, editor.spec.use))
    }
    if not editors or any(prompt.text not in known for prompt in design.prompts):
        return None
    return PaperNames(editors=editors, differences=tuple(_differences(design, editors)))


def _differences(design: Design, editors: Mapping[str, str]) -> Iterator[str]:
    paper = setting()
    yield "The paper gives no intervals: a difference carries your uncertainty alone."
    count = len(design.portraits)
    yours = f"{count:,} rendered people" if design.synthetic else f"{count:,} portraits of your choice"
    yield f"You edit {yours}; the paper edits {paper.portraits} {paper.portrait_source}."
    for asked, what in ((prompts.diagnostic(), "diagnostic prompts"), (prompts.roles(), "role sentences")):
        shared = sum(prompt in asked for prompt in design.prompts)
        if 0 < shared < len(asked):
            yield f"Your audit has {shared} of the paper's {len(asked)} {what}."
    for editor in design.editors:
        known = paper.editor(editor.name, editor.spec.use) if editor.name in editors else None
        if known and editor.spec.use != known.plugins[0]:
            yield f"{editor.name} is `{editor.spec.use}`, which is not the paper's configuration of {known.name}."
        if known and editor.seeds != (known.seed,):
            yield f"{editor.name} runs with seed {', '.join(map(str, editor.seeds))}; the paper's is {known.seed}."
    models = [str(judge.spec.parameters.get("model", "")) or judge.name for judge in design.judges]
    if sorted(models) != sorted(judge.model for judge in paper.judges):
        yield f"Your scores are by {', '.join(models)}; the paper's by {' and '.join(j.name for j in paper.judges)}."
    if not all(judge.told for judge in design.judges if judge.capabilities.kind == "model"):
        yield "Your judges do not all see the labels; the paper's judges were told race, gender and age."
    if Arm.FEATURE in design.arms:
        yield "The paper re-runs cases with observed drift (Appendix D.2), and such cases improve by themselves."
    cut = design.analysis.race_cut or rubric.load().rates["race_changed"].at_least or 0
    yield f"A race counts as changed from {cut:g} on; the paper says 2 in the caption of its Table 4, and nowhere else."


def published_text(number: Published) -> str:
    """The paper's number with the decimals that it prints."""
    scale, decimals, unit = 1, number.decimals, ""
    if number.unit == "share":
        scale, decimals = 100, max(0, number.decimals - 2)
        unit = " points" if number.statistic == "max - min" else " %"
    ends = [
        numbers.decimal(scale * end, decimals, plus=number.unit == "1-5 points")
        for end in (number.value, number.high)
        if end is not None
    ]
    return f"{'–'.join(ends)}{unit}"
