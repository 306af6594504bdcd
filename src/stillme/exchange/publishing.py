"""What published numbers have in common: under whose name they stand, and which way is better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stillme import estimates, numbers, rubric
from stillme.design import EditorRecord
from stillme.errors import StillmeError, UnknownName
from stillme.estimates import Disparity, EditState
from stillme.results import Run
from stillme.results.editor_weights import editor_weights
from stillme.types import Estimate, Interval

RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
"""Who the evaluator is to the model, in the words of Every Eval Ever."""

_MODEL = re.compile(r"[\w.-]+(/[\w.-]+)+")
_PRESENCE = ("changed_area",)
"""Distances of which neither much nor little is better."""


def _no_models() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a run does not know of itself."""

    evaluator: str = "not stated"
    """The organisation that ran the audit."""
    relationship: str = "other"
    """One of `RELATIONSHIPS`."""
    models: Mapping[str, str] = field(default_factory=_no_models)
    """Editor's name to the model's name on the Hugging Face Hub, or `provider/model`."""

    def checked(self, run: Run) -> Publication:
        """The same, if it fits the run."""
        names = [editor.name for editor in run.design.editors]
        for editor, model in self.models.items():
            if editor not in names:
                raise UnknownName.among("editor", editor, names, f"The run has {', '.join(names)}.")
            if not _MODEL.fullmatch(model):
                raise StillmeError(f"{model!r} is no model's name; write --model '{editor}=ORGANISATION/MODEL'.")
        return self


def model_id(run: Run, editor: EditorRecord, publication: Publication) -> str:
    """The model behind an editor: as published, as its weights or its provider name it, or its name in the audit."""
    if given := publication.models.get(editor.name):
        return given
    if repo := _repo(run, editor):
        return repo
    asked = editor.spec.parameters.get("model")
    if isinstance(asked, str) and asked:
        return f"{editor.spec.use}/{asked}"
    return f"unknown/{editor.name}"


def is_loaded_here(run: Run, editor: EditorRecord) -> bool:
    """Whether its edits record the weights that they were made with."""
    return any(entry.editor == editor.name for entry in editor_weights(run))


def _repo(run: Run, editor: EditorRecord) -> str:
    for entry in editor_weights(run):
        weights = entry.used[0].weights
        # A folder's revision is the hash of its bytes, `sha256:…`; its path is nobody else's business.
        if entry.editor == editor.name and ":" not in str(weights.get("revision", ":")):
            repo = str(weights.get("repo", ""))
            return repo if _MODEL.fullmatch(repo) else ""
    return ""


def lower_is_better(estimate: Estimate) -> bool | None:
    """Which way is better; None where neither is, such as for a mean shift of skin tone, or a signed contrast."""
    if estimate.scope == "contrast":
        return None
    if estimate.scope == "disparity":
        return True
    quantity = estimate.quantity
    if numbers.is_rate(quantity):
        return quantity != "success"
    axis = rubric.load().axes.get(quantity)
    if axis is None or axis.is_nominal:
        return None
    if axis.is_scale:
        return {None: False, 1.0: True}.get(axis.unchanged)
    return None if numbers.is_signed(quantity) or quantity in _PRESENCE else True


def published(run: Run) -> Sequence[Estimate]:
    """Every estimate of the run's arms: of all, by group, and between groups."""
    return estimates.estimate(run.results.edits, run.results.scores, run.settings)


def unfinished(run: Run) -> str:
    """What is still to do, for whoever reads the numbers; empty for a complete run."""
    state = run.results.edits.state
    missing = int((state == EditState.MISSING).sum())
    return f"{missing:,} of {len(state):,} edits have not been made; the numbers will move" if missing else ""


def interval_text(estimate: Estimate, interval: Interval) -> str:
    """`95 % interval 0.08 to 0.17, 12 portraits, 48 edits`."""
    low, high = numbers.machine(interval.low), numbers.machine(interval.high)
    return (
        f"{numbers.percent(interval.confidence, 0)} interval {low} to {high}, {estimate.portraits} portraits, "
        f"{estimate.edits} edits"
    )


def chance_text(estimate: Estimate) -> str:
    """What chance alone makes of a gap between groups: the largest minus the smallest is never below 0."""
    if not isinstance(estimate, Disparity) or estimate.null is None:
        return ""
    return f"chance alone stays below {numbers.machine(estimate.null.high)}, {numbers.p_value(estimate.null.omnibus)}"


def label_origins(run: Run) -> str:
    """Who gave the portraits' labels."""
    return "; ".join(sorted({portrait.label_origin for portrait in run.design.portraits}))


def portrait_set(run: Run) -> str:
    """The name of the portraits: no path of this machine."""
    source = str(run.design.resolved.get("portraits", {}).get("source") or "portraits")
    return source.replace("\\", "/").rstrip("/").rpartition("/")[2]


def with_numbers(found: Sequence[Estimate], editor: str) -> Iterator[tuple[Estimate, Interval]]:
    """The estimates of one editor that have a number."""
    for estimate in found:
        if estimate.editor == editor and isinstance(estimate.outcome, Interval):
            yield estimate, estimate.outcome
