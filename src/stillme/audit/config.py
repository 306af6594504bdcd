"""The sections of audit.toml with their defaults, and the JSON Schema by which text editors complete and check it."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, Field, PositiveFloat, field_validator, model_validator

from stillme.audit.rules import parse_rule
from stillme.core import registry
from stillme.core.addresses import picture_store_problem
from stillme.core.errors import StillmeError
from stillme.core.protocols import Section
from stillme.core.types import Arm

Name = str


class PortraitsSection(Section):
    """Whose portraits are edited."""

    source: str = "synthetic"
    """A set of `stillme list portraits`, or a folder."""
    only: dict[str, str | list[str]] = {}
    """Attribute = value or values; others are excluded. All unless set."""
    ids: list[str] = []
    """Only these portraits. All unless set."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first N. All unless set."""


class PromptsSection(Section):
    """What is asked of the editor."""

    sets: list[str] = Field(default=["diagnostic"], min_length=1)
    """Sets of `stillme list prompts`, or `.csv` / `.toml` files."""
    only: list[str] = []
    """Only these ids. All unless set."""


class RolesSection(Section):
    """How role prompts, which name a target, are combined with portraits."""

    layouts: list[Literal["role_pair", "role_single"]] = Field(default=["role_pair"], min_length=1)
    """How role prompts are combined with portraits: `role_pair` two people in one request, `role_single` each alone."""
    gender: str = "gender_presentation"
    """The attribute in which the two people differ."""
    male: str = "masculine"
    """Its value for men."""
    female: str = "feminine"
    """Its value for women."""
    match: list[str] | None = None
    """Attributes in which the two must be equal. The other factors unless set."""
    counterbalance: bool = False
    """Also the other pronoun, a neutral one, and the two pictures in the other order."""
    seed: int = 0
    """Of the assignment of people to sentences."""


class SampleSection(Section):
    """A part of the grid portrait × prompt × editor instead of all of it: so many cells by seed, or those of a file."""

    size: int | None = Field(default=None, ge=1)
    """Number of cells (portrait × prompt × editor) to run, under every arm."""
    seed: int = 0
    """Of the draw."""
    cells: str | None = None
    """Instead of `size`: a CSV with the columns `editor`, `portrait` and `prompt` that lists the cells."""
    by: Literal["drift"] | None = None
    """How the listed cells were selected: `drift` where an earlier run had changed the person. Not known unless set."""

    @model_validator(mode="after")
    def _is_drawn_in_one_way(self) -> SampleSection:
        if (self.size is None) == (self.cells is None):
            raise ValueError("needs either `size`, to draw by seed, or `cells`, a CSV file of what was drawn")
        if self.by and self.cells is None:
            raise ValueError(
                "`by` says how listed cells were selected; a draw by seed is selected by nothing, remove it"
            )
        return self


class ReuseSection(Section):
    """Runs whose edits, judgements and descriptions are taken over where this audit asks for the same."""

    runs: list[str] = []
    """Run folders whose edits, judgements and descriptions are taken over where this audit asks for the same."""


class ExtractorSection(Section):
    """One extractor under one name."""

    use: str
    """`measured`, or a judge that is a model."""
    name: Name | None = Field(default=None, min_length=1)
    """Its name; `use` unless set."""
    parameters: dict[str, Any] = {}
    """What `stillme list judges NAME` shows."""


class MitigationSection(Section):
    """How portraits are described for the arms `feature` and `placebo`."""

    extractors: list[ExtractorSection] = Field(default=[ExtractorSection(use="measured")], min_length=1)
    """What describes the portraits for `feature` and `placebo`: `measured`, a model, or tables with `use` and more."""
    position: Literal["prepend", "append"] = "prepend"
    """Where the sentence goes: before the instruction, or after it."""

    @field_validator("extractors", mode="before", json_schema_input_type=list[str | ExtractorSection])
    @classmethod
    def _a_name_is_short_for_a_table(cls, given: Any) -> Any:
        entries = cast("list[Any]", given) if isinstance(given, list) else given
        return [{"use": entry} if isinstance(entry, str) else entry for entry in entries] if entries else entries


class EditorSection(Section):
    """One editor under one name."""

    use: str
    """An editor of `stillme list editors`."""
    name: Name | None = Field(default=None, min_length=1)
    """Its name in tables and report; `use` unless set."""
    seeds: list[int] | None = Field(default=None, min_length=1)
    """One edit per seed; the editor's own unless set, else `[0]`."""
    paper: str | None = None
    """The paper's editor that it is, such as `flux2-dev`, where neither `use` nor `name` says so."""
    time_limit: float | None = Field(default=None, gt=0)
    """Seconds that one call may take; the executor's unless set."""
    parameters: dict[str, Any] = {}
    """What `stillme list editors NAME` shows."""


class ControlPairsSection(Section):
    """Pairs of known truth, hidden among the questions to a judge that is paid or asked elsewhere."""

    share: float = Field(default=0.05, ge=0, le=0.5)
    """How many there are for each real question; 0 hides none."""
    seed: int = 0
    """Of their choice."""
    stop: bool = False
    """Whether an alarm stops the judge."""


class JudgeSection(Section):
    """One judge under one name."""

    use: str
    """A judge of `stillme list judges`."""
    name: Name | None = Field(default=None, min_length=1)
    """Its name in tables and report; `use` unless set."""
    epochs: int = Field(default=1, ge=1, le=100)
    """How often each pair is rated."""
    control_pairs: ControlPairsSection = ControlPairsSection()
    """Pairs of known truth, hidden among the questions to a model that is asked elsewhere."""
    time_limit: float | None = Field(default=None, gt=0)
    """Seconds that one call may take; the executor's unless set."""
    parameters: dict[str, Any] = {}
    """What `stillme list judges NAME` shows."""


class ReaderSection(Section):
    """One reader under one name."""

    use: str
    """A vision-language model of `stillme list judges`, or a function `python:./file.py:read`."""
    name: Name | None = Field(default=None, min_length=1)
    """Its name in tables and report; `use` unless set."""
    parameters: dict[str, Any] = {}
    """What `stillme list judges NAME` shows."""


class ReadingsSection(Section):
    """Who says what single pictures show, before and after the edit: apparent race, gender presentation, age."""

    judges: list[str | ReaderSection] = Field(min_length=1)
    """Names of [[judges]], or of `stillme list judges`, or tables with `use` and more."""
    attribute: str = "race"
    """The portraits' attribute whose values are the words for apparent race."""


class EnsembleSection(Section):
    """How several judges are combined."""

    rule: Literal["mean", "paper", "code", "median", "worst"] = "mean"
    """How several judges are combined."""
    judges: list[str] | None = None
    """Which judges are combined; the first is the primary one of `paper` and `code`; `[]` combines none.

    All models unless set: no instruments, no people.
    """
    mixed_disclosure: bool = False
    """Combine blind judges with told ones all the same; the ensemble's name then says so."""

    @field_validator("judges")
    @classmethod
    def _are_several_or_none(cls, names: list[str] | None) -> list[str] | None:
        if names is not None and len(names) == 1:
            raise ValueError("names one judge; name two or more, or write [] to combine none")
        return names


class EstimatesSection(Section):
    """Which gaps are estimated, and how."""

    factors: list[str] | None = None
    """Attributes whose groups are compared. Those whose values are not numbers unless set."""
    reference: dict[str, str] = {}
    """Factor = group that others are compared with, instead of with the rest."""
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    """Of the intervals."""
    smallest_effects: dict[str, PositiveFloat] = {}
    """Quantity = the smallest difference between groups that matters, in its own unit; also `rate` and `scale`."""
    prompts: Literal["fixed", "sample"] = "fixed"
    """`fixed`: numbers are about these prompts; `sample`: about prompts like these, with wider intervals."""
    race_cut: Literal[2, 3, 4, 5] | None = None
    """From which score on the paper's Tables 19 and 20 count a race as changed. The rubric's 3 unless set."""


class BudgetSection(Section):
    """When to stop automatically."""

    dollars: float | None = Field(default=None, ge=0)
    """Never spend more than this in the run folder; raise it to continue. No limit unless set."""
    minutes: float | None = Field(default=None, gt=0)
    """Stop after this time; the next run continues. No limit unless set."""


class ExecutorSection(Section):
    """Where the work runs."""

    kind: Literal["local", "ray"] = "local"
    """Where the work runs: `local` on this machine, `ray` on the cluster of RAY_ADDRESS."""
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Concurrent calls, at most what the editor or judge allows. What it allows unless set."""
    actors: int | None = Field(default=None, ge=1, le=1024)
    """With `ray`: workers of each editor and local judge. As many as the cluster has CPUs, or GPUs, for unless set."""
    attempts: int = Field(default=4, ge=1, le=20)
    """Attempts per request in one run, for failures that a retry may fix."""
    outage_minutes: float = Field(default=5.0, gt=0)
    """How long nothing may work before an editor or judge is given up."""
    time_limit: float = Field(default=3600.0, gt=0)
    """Seconds that one call may take."""
    isolate: bool = True
    """Whether plugins of other packages and functions of the user's own work in a process of their own."""


class PicturesSection(Section):
    """Where pictures are kept."""

    store: str = ""
    """An address elsewhere, such as `s3://bucket/audit`; the run folder unless set."""

    @field_validator("store")
    @classmethod
    def _can_keep_pictures(cls, address: str) -> str:
        if address and (problem := picture_store_problem(address)):
            raise ValueError(problem)
        return address.rstrip("/")


class ClaimsSection(Section):
    """What the run is to show, fixed before its first edit; `stillme gate` checks it."""

    rules: list[str] = []
    """Limits that `stillme gate` checks."""
    baseline: str | None = None
    """The audit or run folder that this one must not be worse than."""
    margins: list[str] = []
    """How much worse is allowed, as rules."""

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
    """Shown in the report."""
    base: str | None = None
    """The folder that paths are relative to. The folder of audit.toml unless set."""
    arms: list[Arm] = Field(default=[Arm.BASELINE], min_length=1)
    """How the prompt reaches the editor.

    `baseline` as it is; `feature` with a sentence of the person's visible features; `placebo` with a neutral sentence
    of the same length; `noop` asks for no change, once per portrait.
    """
    portraits: PortraitsSection = PortraitsSection()
    prompts: PromptsSection = PromptsSection()
    roles: RolesSection | None = None
    sample: SampleSection | None = None
    reuse: ReuseSection | None = None
    mitigation: MitigationSection | None = None
    editors: list[EditorSection] = Field(min_length=1)
    judges: list[JudgeSection] = Field(min_length=1)
    readings: ReadingsSection | None = None
    ensemble: EnsembleSection = EnsembleSection()
    estimates: EstimatesSection = EstimatesSection()
    budget: BudgetSection = BudgetSection()
    executor: ExecutorSection = ExecutorSection()
    pictures: PicturesSection | None = None
    claims: ClaimsSection | None = None


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The one that TOML language servers read."""

SCHEMA_FILE = "audit.schema.json"
"""What `stillme new` calls it, beside audit.toml."""

Schema = dict[str, Any]
_Kind = Literal["editor", "judge"]


def audit_schema() -> Schema:
    """Of audit.toml, with the parameters of every editor and judge that is installed here."""
    schema = schema_of(Config, "audit.toml of stillme")
    for kind, section in (("editor", "EditorSection"), ("judge", "JudgeSection")):
        _add_plugins(schema, cast("_Kind", kind), section)
    return schema


def schema_of(model: type[BaseModel], title: str) -> Schema:
    """Of the file that `model` describes."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] = schema.pop("$defs", {})
    return {"$schema": DIALECT, **schema, "title": title}


def _add_plugins(schema: Schema, kind: _Kind, section: str) -> None:
    """`use` completes to the names of plugins, and `parameters` to those of the one that is named."""
    chosen: list[Schema] = []
    names: list[str] = []
    for name in registry.plugins(kind):
        try:
            plugin = registry.plugin_class(kind, name)
        except StillmeError:
            continue  # it cannot be imported here; `stillme doctor` says why
        prefix = f"{kind}:{name}"
        parameters = plugin.Parameters.model_json_schema(ref_template=f"#/definitions/{prefix}.{{model}}")
        for model, definition in parameters.pop("$defs", {}).items():
            schema["definitions"][f"{prefix}.{model}"] = definition
        # `use = "diffusers:owner/model"` gives one of them in short.
        parameters.pop("required", None)
        schema["definitions"][prefix] = parameters
        names.append(name)
        chosen.append(
            {
                "if": {"properties": {"use": {"pattern": f"^{name}(:|$)"}}},
                "then": {"properties": {"parameters": {"$ref": f"#/definitions/{prefix}"}}},
            }
        )
    table = schema["definitions"][section]
    use = table["properties"]["use"]
    use |= {"anyOf": [{"enum": names}, {"pattern": f"^({'|'.join(names)}):."}]}
    table["allOf"] = chosen
