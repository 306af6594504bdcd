"""The sections of audit.toml, with their defaults."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stillme.audit.rules import parse_rule
from stillme.errors import StillmeError
from stillme.types import Arm

Name = str


class Section(BaseModel):
    """A table of audit.toml. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PortraitsSection(Section):
    """Whose portraits are edited."""

    source: str = "synthetic"
    only: dict[str, str | list[str]] = {}
    ids: list[str] = []
    limit: int | None = Field(default=None, ge=1)


class PromptsSection(Section):
    """What is asked of the editor."""

    sets: list[str] = Field(default=["diagnostic"], min_length=1)
    only: list[str] = []


class RolesSection(Section):
    """How role prompts, which name a target, are combined with portraits."""

    layouts: list[Literal["role_pair", "role_single"]] = Field(default=["role_pair"], min_length=1)
    gender: str = "gender_presentation"
    male: str = "masculine"
    female: str = "feminine"
    match: list[str] | None = None
    counterbalance: bool = False
    seed: int = 0


class SampleSection(Section):
    """A part of the grid portrait × prompt × editor instead of all of it: so many cells by seed, or those of a file."""

    size: int | None = Field(default=None, ge=1)
    seed: int = 0
    cells: str | None = None
    """A CSV with the columns editor, portrait and prompt."""

    @model_validator(mode="after")
    def _is_drawn_in_one_way(self) -> SampleSection:
        if (self.size is None) == (self.cells is None):
            raise ValueError("needs either `size`, to draw by seed, or `cells`, a CSV file of what was drawn")
        return self


class ReuseSection(Section):
    """Runs whose edits, judgements and descriptions are taken over where this audit asks for the same."""

    runs: list[str] = []


class ExtractorSection(Section):
    """One extractor under one name."""

    use: str
    name: Name | None = Field(default=None, min_length=1)
    parameters: dict[str, Any] = {}


class MitigationSection(Section):
    """How portraits are described for the arms `feature` and `placebo`."""

    extractors: list[ExtractorSection] = Field(default=[ExtractorSection(use="measured")], min_length=1)
    position: Literal["prepend", "append"] = "prepend"

    @field_validator("extractors", mode="before")
    @classmethod
    def _a_name_is_short_for_a_table(cls, given: Any) -> Any:
        entries = cast("list[Any]", given) if isinstance(given, list) else given
        return [{"use": entry} if isinstance(entry, str) else entry for entry in entries] if entries else entries


class EditorSection(Section):
    """One editor under one name."""

    use: str
    name: Name | None = Field(default=None, min_length=1)
    seeds: list[int] | None = Field(default=None, min_length=1)
    time_limit: float | None = Field(default=None, gt=0)
    """Seconds that one call may take; the executor's unless set."""
    parameters: dict[str, Any] = {}


class SentinelSection(Section):
    """Pairs of known truth, hidden among the questions to a judge that is paid or asked elsewhere."""

    share: float = Field(default=0.05, ge=0, le=0.5)
    """How many there are for each real question; 0 hides none."""
    seed: int = 0
    stop: bool = False
    """Whether an alarm stops the judge."""


class JudgeSection(Section):
    """One judge under one name."""

    use: str
    name: Name | None = Field(default=None, min_length=1)
    epochs: int = Field(default=1, ge=1, le=100)
    sentinel: SentinelSection = SentinelSection()
    time_limit: float | None = Field(default=None, gt=0)
    parameters: dict[str, Any] = {}


class EnsembleSection(Section):
    """How several judges are combined."""

    rule: Literal["mean", "paper", "code", "median", "worst"] = "mean"
    judges: list[str] | None = None
    mixed_disclosure: bool = False

    @field_validator("judges")
    @classmethod
    def _are_several_or_none(cls, names: list[str] | None) -> list[str] | None:
        if names is not None and len(names) == 1:
            raise ValueError("names one judge; name two or more, or write [] to combine none")
        return names


class EstimatesSection(Section):
    """Which gaps are estimated, and how."""

    factors: list[str] | None = None
    reference: dict[str, str] = {}
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    replicates: int = Field(default=2000, ge=200, le=1_000_000)
    seed: int = 0
    prompts: Literal["fixed", "sample"] = "fixed"
    race_cut: Literal[2, 3, 4, 5] | None = None
    """From which score on Tables 19 and 20 count a race as changed; the rubric's 3 unless set."""


class BudgetSection(Section):
    """When to stop automatically."""

    dollars: float | None = Field(default=None, ge=0)
    minutes: float | None = Field(default=None, gt=0)


class ExecutorSection(Section):
    """Where the work runs."""

    kind: Literal["local"] = "local"
    """A further kind is a case of `executor_of` in stages/executors.py."""
    workers: int | None = Field(default=None, ge=1, le=1024)
    attempts: int = Field(default=4, ge=1, le=20)
    outage_minutes: float = Field(default=5.0, gt=0)
    """How long nothing may work before a stage gives up."""
    time_limit: float = Field(default=3600.0, gt=0)
    """Seconds that one call may take, whoever is asked."""
    isolate: bool = True
    """Whether plugins of other packages and functions of the user's own work in a process of their own."""


class GateSection(Section):
    """What `stillme gate` asks of the run."""

    rules: list[str] = []
    baseline: str | None = None
    margins: list[str] = []
    strict: bool = False

    @field_validator("rules", "margins")
    @classmethod
    def _can_be_read(cls, texts: list[str]) -> list[str]:
        for text in texts:
            try:
                parse_rule(text)
            except StillmeError as error:
                raise ValueError(str(error)) from None
        return texts


class Config(Section):
    """A whole audit.toml."""

    title: str = "An audit"
    base: str | None = None
    """What relative paths are relative to, if not the file's own folder."""
    arms: list[Arm] = Field(default=[Arm.BASELINE], min_length=1)
    portraits: PortraitsSection = PortraitsSection()
    prompts: PromptsSection = PromptsSection()
    roles: RolesSection | None = None
    sample: SampleSection | None = None
    reuse: ReuseSection | None = None
    mitigation: MitigationSection | None = None
    editors: list[EditorSection] = Field(min_length=1)
    judges: list[JudgeSection] = Field(min_length=1)
    ensemble: EnsembleSection = EnsembleSection()
    estimates: EstimatesSection = EstimatesSection()
    budget: BudgetSection = BudgetSection()
    executor: ExecutorSection = ExecutorSection()
    gate: GateSection | None = None
