"""Why a run and the paper are not the same measurement: read from the run's design, a sentence for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stillme import prompts, rubric
from stillme.design import EditorRecord, JudgeRecord
from stillme.judges.ensemble import primary_of
from stillme.paper import PaperEditor, setting
from stillme.results.beside.records import Beside
from stillme.results.run import Run
from stillme.types import Arm

_COMBINED = "ensemble"


def design_differences(run: Run, editors: Sequence[EditorRecord], numbers: Sequence[Beside]) -> Iterator[str]:
    """What differs, and what cannot be known to be the same."""
    yield "The paper gives no intervals: a difference carries your uncertainty alone."
    yield from _portraits(run)
    yield from _prompts(run, numbers)
    yield from _editors(editors)
    yield from _judges(run, numbers)
    yield from _conventions(run, numbers)


def _portraits(run: Run) -> Iterator[str]:
    count, paper = len(run.design.portraits), setting()
    yours = f"{count:,} rendered people" if run.design.synthetic else f"{count:,} portraits of your choice"
    yield f"You edit {yours}; the paper edits {paper.portraits} {paper.portrait_source}."


def _prompts(run: Run, numbers: Sequence[Beside]) -> Iterator[str]:
    for asked, what in ((prompts.diagnostic(), "diagnostic prompts"), (prompts.roles(), "role sentences")):
        texts = {prompt.text for prompt in asked}
        shared = sum(prompt.text in texts for prompt in run.design.prompts)
        if 0 < shared < len(asked):
            yield f"Your audit has {shared} of the paper's {len(asked)} {what}."
    known = {prompt.text for prompt in (*prompts.diagnostic(), *prompts.roles())}
    if any(prompt.text not in known for prompt in run.design.prompts):
        yield "Edits by other prompts than the paper's are left out here."
    if sample := run.design.resolved.get("sample"):
        yield "Your requests are a sample of all portraits and prompts."
    if any(number.published.sample == "mitigation" for number in numbers):
        # A list of cells does not say how it was drawn; `new --as paper` draws it by outcome.
        yours = (
            f"yours are those of {sample['cells']}, so their improvement says little if they were drawn that way too"
            if sample and sample.get("cells")
            else "yours are not selected by their outcome"
        )
        yield (
            "The paper re-runs cases with observed drift (Appendix D.2), and such cases improve by themselves; "
            f"{yours}."
        )


def _editors(editors: Sequence[EditorRecord]) -> Iterator[str]:
    known = [(editor, setting().editor(editor.name, editor.spec.use)) for editor in editors]
    others = [editor.name for editor, paper in known if paper is None]
    if others:
        yield f"The paper has no {', '.join(others)}."
    absent = [paper.name for paper in setting().editors if paper not in [match for _, match in known]]
    if absent and len(absent) < len(setting().editors):
        yield f"You have no {', '.join(absent)}, which the paper's pooled numbers include."
    for editor, paper in known:
        if paper is not None:
            yield from _editor(editor, paper)


def _editor(editor: EditorRecord, paper: PaperEditor) -> Iterator[str]:
    if editor.spec.use not in paper.plugins:
        yield f"{editor.name} is compared with {paper.name} by its name: it is the plugin `{editor.spec.use}`."
    elif editor.spec.use != paper.plugins[0]:
        yield f"{editor.name} is `{editor.spec.use}`, which is not the paper's configuration of {paper.name}."
    given = editor.spec.parameters
    settings = [
        f"{name} {given[name]} (paper: {value:g})"
        for name, value in paper.settings.items()
        if name in given and given[name] != value
    ]
    if settings:
        yield f"{editor.name} runs with {', '.join(settings)}."
    if editor.seeds != (paper.seed,):
        yield f"{editor.name} runs with seed {', '.join(map(str, editor.seeds))}; the paper's is {paper.seed}."


def _judges(run: Run, numbers: Sequence[Beside]) -> Iterator[str]:
    names = dict.fromkeys(number.judge for number in numbers if number.published.judge == "models")
    combined = run.design.analysis.combined
    asked = [
        judge
        for judge in run.judges
        if judge.name in names or (judge.name in combined and any(_COMBINED in name for name in names))
    ]
    if not asked:
        return
    models = [str(judge.spec.parameters.get("model", "")) for judge in asked]
    paper = setting().judges
    if sorted(models) != sorted(judge.model for judge in paper):
        yours = ", ".join(
            f"{judge.name} ({model})" if model and model != judge.name else judge.name
            for judge, model in zip(asked, models, strict=True)
        )
        yield f"Your scores are by {yours}; the paper's by {' and '.join(judge.name for judge in paper)}."
    yield from _disclosure(asked)
    repeated = [f"{judge.name} {judge.asked} times" for judge in asked if judge.asked > 1]
    if repeated:
        yield f"Each edit is rated by {', '.join(repeated)}; once in the paper."
    if len(asked) > 1:
        yield from _rule(run.design.analysis.rule, {judge.name: judge for judge in asked}, combined)


def _disclosure(asked: Sequence[JudgeRecord]) -> Iterator[str]:
    """What judges were told; nobody knows it of scores that were made elsewhere."""
    imported = [judge.name for judge in asked if judge.capabilities.given]
    blind = [judge.name for judge in asked if not judge.told and judge.name not in imported]
    told = "the paper's judges were told race, gender and age"
    if blind:
        who = "Your judges were" if len(blind) == len(asked) else f"{', '.join(blind)}: the judge was"
        yield f"{who} not told the labels; {told}."
    if imported:
        yield f"What {', '.join(imported)} knew about the portraits is not recorded: the scores are imported; {told}."


def _rule(rule: str, asked: Mapping[str, JudgeRecord], combined: Sequence[str]) -> Iterator[str]:
    primary = primary_of(rule, combined)
    says = "The paper says average (§4.1), but also: round, and let Gemini decide beyond one point (Eq. 3)."
    if rule != "paper":
        yield f"Your judges are combined by `{rule}`. {says}"
    elif primary in asked and not _is_papers_primary(asked[primary]):
        yield f"Beyond one point {primary} decides; in the paper {setting().judges[0].name} (Eq. 3)."


def _is_papers_primary(judge: JudgeRecord) -> bool:
    paper = setting().judges[0]
    return paper.model == judge.spec.parameters.get("model") or paper.plugin in (judge.name, judge.spec.use)


def _conventions(run: Run, numbers: Sequence[Beside]) -> Iterator[str]:
    if any(number.published.quantity == "race_changed" for number in numbers):
        cut = run.design.analysis.race_cut or rubric.load().rates["race_changed"].at_least or 0
        yield (
            f"Here a race counts as changed from {cut:g} on; the paper's Tables 19 and 20 do not say from where, and "
            "the caption of its Table 4 says 2."
        )
    axes = {(number.published.quantity, number.published.judge) for number in numbers}
    aged = any(prompt.years is not None for prompt in run.design.prompts)
    if aged and any(quantity == "age_change" for quantity, _ in axes):
        yield (
            "The paper's age scores include the prompt that asks for 30 years more, read as accuracy (§3.4); yours "
            "leave it out, and `age_accuracy` has it."
        )
    if ("skin_tone", "people") in axes:
        yield "Appendix G.4 asks people how much the skin tone changed; you ask in which direction."
    if Arm.FEATURE in run.design.arms and run.design.extractors:
        extractors = ", ".join(extractor.name for extractor in run.design.extractors)
        yield f"Your feature prompts are by {extractors}; the paper's by Gemini 3.0 Flash Preview and GPT-5-mini."
