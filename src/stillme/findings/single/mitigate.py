"""`stillme mitigate`: describe one person, and edit one picture with that description."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from PIL import Image

from stillme.core import images, registry
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.files import write_whole
from stillme.core.protocols import Editor
from stillme.core.throttle import call_with_retry
from stillme.core.types import Arm, Edited, EditOutcome, Failed, ImageFile, Json, Portrait, Prompt, Refused, Request
from stillme.findings.single import settings_by_name
from stillme.mitigation.arms import Position, combined
from stillme.mitigation.features import (
    DIMENSIONS,
    Declined,
    Described,
    Extraction,
    Extractor,
    FeaturePrompt,
    NoFeaturePrompt,
    Unusable,
    merge,
)
from stillme.mitigation.labels import lint
from stillme.mitigation.measured import extractor_named

_TITLES = {name: name.replace("_", " ") for name in DIMENSIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortraitDescription:
    """The extractors' descriptions of one portrait."""

    portrait: str
    said: Sequence[tuple[str, Extraction]]
    prompt: FeaturePrompt | NoFeaturePrompt

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "portrait": self.portrait,
            **_prompt_json(self.prompt),
            "extractors": [{"name": name, **_extraction_json(extraction)} for name, extraction in self.said],
        }

    def as_text(self) -> str:
        """For people."""
        lines = [self.portrait]
        for name, extraction in self.said:
            lines += [f"  {line}" for line in _extraction_lines(name, extraction)]
        match self.prompt:
            case FeaturePrompt(sentence=sentence):
                lines += ["", f"  {sentence}", f"  {_verdict(sentence)}"]
            case NoFeaturePrompt(reason=reason):
                lines += ["", f"  No feature prompt: {reason}"]
            case never:
                assert_never(never)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class MitigationJob:
    """One picture, the edit that is asked for, and who makes it."""

    image: Path
    prompt: str
    editor: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    seed: int | None = None
    position: Position = "prepend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mitigated:
    """One picture's edit under a feature prompt, or why there is none."""

    description: PortraitDescription
    instruction: str
    """What the editor read; empty where it was not asked."""
    outcome: EditOutcome | NoFeaturePrompt

    @property
    def retryable(self) -> bool:
        """Whether the same command may succeed later."""
        return isinstance(self.outcome, Failed | NoFeaturePrompt) and self.outcome.retryable

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**self.description.as_json(), "instruction": self.instruction, **_outcome_json(self.outcome)}


def describe(image: Path, extractors: Mapping[str, Extractor]) -> PortraitDescription:
    """Have the extractors, by their names, describe the person in a picture."""
    images.check(image)
    file = ImageFile.of(image)
    said: list[tuple[str, Extraction]] = []
    for name, extractor in extractors.items():
        try:
            said.append((name, call_with_retry(partial(extractor.extract, file), _failure)))
        finally:
            extractor.close()
    return PortraitDescription(portrait=str(image), said=said, prompt=merge(said))


def portrait_path(name: str) -> Path:
    """A picture by its path, or by its id in the embedded set."""
    if Path(name).exists():
        return Path(name)
    known = {portrait.id: portrait.image.path for portrait in registry.portrait_set("synthetic")}
    if name not in known:
        raise UnknownName.among(
            "portrait", name, known, "Name a picture, or an id of `stillme list portraits synthetic`."
        )
    return known[name]


def ready_extractors(chosen: Sequence[str], settings: Sequence[str] = ()) -> dict[str, Extractor]:
    """Extractors by name, or an error that says what this machine or their settings lack.

    `chosen` are `EXTRACTOR`, or `NAME=EXTRACTOR` to use one twice; `settings` are `NAME.KEY=VALUE`.
    """
    uses: dict[str, str] = {}
    for choice in chosen:
        name, _, use = choice.rpartition("=")
        if (name or use) in uses:
            raise StillmeError(f"Two extractors are called {name or use!r}; name one of them: NAME={use}.")
        uses[name or use] = use
    parameters = settings_by_name(settings, list(uses), "--extractor-set")
    extractors = {name: extractor_named(use, parameters[name]) for name, use in uses.items()}
    for name, extractor in extractors.items():
        if lacking := registry.unmet(extractor.needs):
            raise StillmeError(f"The extractor {name!r} cannot work here: {'; '.join(lacking)}.")
        if problems := list(extractor.problems()):
            raise StillmeError(f"The extractor {name!r} cannot work as it is set: {'; '.join(problems)}.")
    return extractors


def mitigate(job: MitigationJob, extractors: Mapping[str, Extractor]) -> Mitigated:
    """Describe the person, then edit the picture with the description in front of the prompt."""
    editor = registry.build("editor", job.editor, job.parameters)
    try:
        description = describe(job.image, extractors)
        if isinstance(description.prompt, NoFeaturePrompt):
            # Without the sentence it would be an ordinary edit, which is not what was asked for.
            return Mitigated(description=description, instruction="", outcome=description.prompt)
        instruction = combined(job.prompt, description.prompt.sentence, job.position)
        request = _request(job, editor, instruction)
        _check_request(job, editor, request)
        outcome = call_with_retry(lambda: next(iter(editor.edit([request]))), _failure)
        return Mitigated(description=description, instruction=instruction, outcome=outcome)
    finally:
        editor.close()


def format_of(file: Path) -> str:
    """The format that a file's ending names; raises where it names none or the folder is not there."""
    wanted = Image.registered_extensions().get(file.suffix.lower())
    if wanted not in Image.SAVE:
        raise StillmeError(f"{file} has no known picture format; use .png, .jpg or .webp.")
    if not file.parent.is_dir():
        raise StillmeError(f"{file.parent} is not a folder; create it first.")
    return wanted


def save_picture(data: bytes, file: Path) -> Path:
    """Write an edited picture, whole or not at all, in the format that the file's ending names."""
    wanted = format_of(file)
    with Image.open(io.BytesIO(data)) as picture:
        if picture.format != wanted:
            buffer = io.BytesIO()
            images.read_picture(data).save(buffer, wanted)
            data = buffer.getvalue()
    return write_whole(file, data)


def _request(job: MitigationJob, editor: Editor, instruction: str) -> Request:
    portrait = Portrait(
        id=job.image.stem, image=ImageFile.of(job.image), attributes={}, label_origin="none", licence="unknown"
    )
    return Request(
        portraits=(portrait,),
        prompt=Prompt(id="mitigate", text=job.prompt, category="own", subcategory="own"),
        arm=Arm.FEATURE,
        instruction=instruction,
        editor=editor.spec,
        seed=job.seed if job.seed is not None else editor.default_seed,
    )


def _failure(outcome: Extraction | EditOutcome) -> Failed | None:
    return outcome if isinstance(outcome, Failed) else None


def _check_request(job: MitigationJob, editor: Editor, request: Request) -> None:
    prompt = Prompt(id="mitigate", text=request.instruction, category="own", subcategory="own")
    if problems := list(editor.problems(request.portraits, [prompt])):
        raise StillmeError(f"The editor {job.editor!r} cannot make this edit: {'; '.join(problems)}.")


def _prompt_json(prompt: FeaturePrompt | NoFeaturePrompt) -> dict[str, Json]:
    match prompt:
        case FeaturePrompt(sentence=sentence, dimensions=dimensions):
            labels = [{"kind": label.kind, "word": label.word, "start": label.start} for label in lint(sentence)]
            return {"sentence": sentence, "dimensions": dict(dimensions), "labels": labels}
        case NoFeaturePrompt(reason=reason, retryable=retryable):
            return {"sentence": None, "reason": reason, "retryable": retryable}


def _extraction_json(extraction: Extraction) -> dict[str, Json]:
    match extraction:
        case Described(features=features, effective=effective, cost=cost):
            description = {"sentence": features.sentence, "dimensions": dict(features.dimensions)}
            return {"outcome": "described", **description, "effective": dict(effective), "cost": cost}
        case Declined(reason=message, effective=effective, cost=cost):
            return {"outcome": "declined", "message": message, "effective": dict(effective), "cost": cost}
        case Unusable(problem=message, raw=raw, effective=effective, cost=cost):
            answer = {"raw": raw, "effective": dict(effective), "cost": cost}
            return {"outcome": "unusable", "message": message, **answer}
        case Failed(error=message, cost=cost):
            return {"outcome": "failed", "message": message, "cost": cost}


def _extraction_lines(name: str, extraction: Extraction) -> list[str]:
    match extraction:
        case Described(features=features, cost=cost):
            paid = f" (${cost:,.4f})" if cost else ""
            rows = [f"  {_TITLES.get(key, key):<22}{text}" for key, text in features.dimensions.items()]
            absent = [_TITLES[key] for key in DIMENSIONS if key not in features.dimensions]
            return [f"{name}{paid}", *rows, *([f"  {'not described':<22}{', '.join(absent)}"] if absent else [])]
        case Declined(reason=reason):
            return [f"{name} declined: {reason}"]
        case Unusable(problem=problem):
            return [f"{name} gave no usable answer: {problem}"]
        case Failed(error=error):
            return [f"{name} failed: {error}"]


def _verdict(sentence: str) -> str:
    labels = lint(sentence)
    return "; ".join(map(str, labels)) if labels else "no demographic label found"


def _outcome_json(outcome: EditOutcome | NoFeaturePrompt) -> dict[str, Json]:
    match outcome:
        case Edited(effective=effective, cost=cost):
            return {"outcome": "edited", "effective": dict(effective), "cost": cost}
        case Refused(message=message, effective=effective, cost=cost):
            return {"outcome": "refused", "message": message, "effective": dict(effective), "cost": cost}
        case Failed(error=message, retryable=retryable, cost=cost):
            return {"outcome": "failed", "message": message, "retryable": retryable, "cost": cost}
        case NoFeaturePrompt(reason=message):
            return {"outcome": "not asked", "message": message}
