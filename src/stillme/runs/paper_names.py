"""Which of a run's editors and groups are the paper's, and why its numbers are not the same measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stillme.audit.design import Design, EditorRecord
from stillme.core import prompts, rubric
from stillme.core.paper import PaperEditor, Published, published, setting
from stillme.core.types import Arm, Json
from stillme.estimates import numbers

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperNames:
    """A run in the paper's words."""

    editors: Mapping[str, str]
    """By the run's name: the paper's editor."""
    differences: tuple[str, ...]
    """Why the two are not the same measurement, a sentence for each reason."""

    def number(self, place: str, editor: str, quantity: str, *, group: str = "", **wanted: str) -> Published | None:
        """The number that the paper prints at this place for the run's editor and group; None where it prints none."""
        # The paper's pooled numbers are of its three editors.
        pooled = editor == "all" and len(set(self.editors.values())) == len(setting().editors)
        asked = {"editor": "all" if pooled else self.editors.get(editor), "quantity": quantity, **wanted}
        asked["group"] = setting().group(group) if group else ""
        if group and not asked["group"]:
            return None
        for known in published():
            if known.place == place and all(getattr(known, name) == value for name, value in asked.items()):
                return known
        return None


def paper_names(design: Design) -> PaperNames | None:
    """None where nothing can be compared: no editor of the paper, or prompts that the paper does not have."""
    editors = {editor.name: paper.name for editor in design.editors if (paper := _paper_editor(editor))}
    if not editors or _others_prompts(design):
        return None
    return PaperNames(editors=editors, differences=tuple(_differences(design)))


def missing_names(design: Design) -> str:
    """What to write so that a run that is nearly the paper's is compared with it; empty where nothing is near."""
    others = _others_prompts(design)
    known = [editor for editor in design.editors if _paper_editor(editor)]
    if known and others and len(others) < len(design.prompts):
        shown = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        how = "name them by the paper's ids or give their `prompt_text`" if design.of_rows else "leave them out"
        return (
            f"Not compared with the paper: {len(others):,} of {len(design.prompts):,} prompts are not its own "
            f"({shown}); {how}."
        )
    if known and others and design.of_rows:
        return (
            "Not compared with the paper: no prompt is recognised as its own. Name prompts by its ids (O-01 to V-10, "
            "W-01 to W-50), or give their wording in a column `prompt_text`."
        )
    if known or others:
        return ""
    for editor in design.editors:
        paper = setting().near(editor.name) if editor.answers is None else None
        if paper:
            said = f"--paper {editor.name}={paper.plugins[0]}" if design.of_rows else f'paper = "{paper.plugins[0]}"'
            where = "import again with" if design.of_rows else "add to its [[editors]]"
            return f"The paper has no {editor.name!r}. If it is {paper.name}, {where} `{said}`."
    return ""


def _paper_editor(editor: EditorRecord) -> PaperEditor | None:
    # A planted editor does what its parameters say, so the paper's numbers are no measure for it.
    if editor.answers is not None:
        return None
    names = (editor.paper, editor.spec.use, editor.name)
    return next((paper for name in names if name and (paper := setting().named(name))), None)


def _others_prompts(design: Design) -> list[str]:
    """The ids of prompts that the paper does not have."""
    sets = (prompts.diagnostic(), prompts.roles(), prompts.roles_as_printed())
    known = {prompt.text for asked in sets for prompt in asked}
    return [prompt.id for prompt in design.prompts if prompt.text not in known]


def _knows_seeds(editor: EditorRecord) -> bool:
    """Whether the seeds are those that the edits were made with: files and rows need not say."""
    if editor.spec.use == "folder":
        return bool(editor.spec.parameters.get("manifest")) or "{seed" in str(editor.spec.parameters.get("pattern"))
    return bool(editor.seeds)


def _differences(design: Design) -> Iterator[str]:
    paper = setting()
    yield "The paper gives no intervals: a difference carries your uncertainty alone."
    count = len(design.portraits)
    yours = f"{count:,} rendered people" if design.synthetic else f"{count:,} portraits of your choice"
    yield f"You edit {yours}; the paper edits {paper.portraits} {paper.portrait_source}."
    yours = {prompt.text for prompt in design.prompts}
    printed, whole = ({prompt.text for prompt in asked} for asked in (prompts.roles_as_printed(), prompts.roles()))
    diagnostic = {prompt.text for prompt in prompts.diagnostic()}
    for shared, total, what in (
        (len(yours & diagnostic), len(diagnostic), "diagnostic prompts"),
        (len(yours & (whole | printed)), len(whole), "role sentences"),
    ):
        if 0 < shared < total:
            yield f"Your audit has {shared} of the paper's {total} {what}."
    if yours & (whole - printed):
        origins = Counter(origin.partition(":")[0] for origin in prompts.role_origins().values())
        yield (
            f"Role sentences are whole: {origins['winobias']} of 50 are WinoBias' own, {origins['as printed']} stand "
            f"whole in the paper's Table 23, and {origins['restored from the print']} are restored from its print, so "
            "their wording may differ from what the authors ran."
        )
    if yours & (printed - whole):
        yield (
            "Role sentences are abbreviated as in the paper's Table 23, some without their pronoun; the paper ran "
            "whole ones."
        )
    for editor in design.editors:
        known = _paper_editor(editor)
        if known and editor.spec.use != known.plugins[0]:
            yield f"{editor.name} is `{editor.spec.use}`, which is not the paper's configuration of {known.name}."
        if known and not _knows_seeds(editor):
            yield f"The seed of {editor.name} is not known; the paper's is {known.seed}."
        elif known and editor.seeds != (known.seed,):
            yield f"{editor.name} runs with seed {', '.join(map(str, editor.seeds))}; the paper's is {known.seed}."
    models = [str(judge.spec.parameters.get("model", "")) or judge.name for judge in design.judges]
    if sorted(models) != sorted(judge.model for judge in paper.judges):
        yield f"Your scores are by {', '.join(models)}; the paper's by {' and '.join(j.name for j in paper.judges)}."
    if not all(judge.unblinded for judge in design.judges if judge.capabilities.kind == "model"):
        yield "Your judges do not all see the labels; the paper's judges were told race, gender and age."
    if Arm.FEATURE in design.arms:
        yield _cases(design)
    usual = rubric.load().rates["race_changed"].at_least or 0
    if (cut := design.analysis.race_cut or usual) != usual:
        yield f"A race counts as changed from {cut:g} on; in the paper from {usual:g} on (the axis of its Figure 4b)."


def _cases(design: Design) -> str:
    """Which of the paper's two stories about its mitigation cases the run follows, as far as it knows."""
    sample: Mapping[str, Json] = design.resolved.get("sample") or {}
    if sample.get("by") == "drift":
        return (
            "Your cases were selected because they had drifted, as in Appendix D.2 and Table 26: such cases improve "
            "on their own. §4.3 and Appendix H of the paper describe a stratified draw instead."
        )
    if design.of_rows or sample.get("cells"):
        return (
            "The run does not say how its cases were selected. The paper says it in two ways: a stratified draw (§4.3, "
            "Appendix H), and cases that had drifted (Appendix D.2, Table 26), which improve on their own."
        )
    drawn = "drawn before any result was seen" if sample else "the whole grid"
    return (
        f"Your cases are {drawn}, not selected by their outcome. The paper describes a stratified draw (§4.3, "
        "Appendix H) and also cases that had drifted (Appendix D.2, Table 26), which improve on their own."
    )


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
