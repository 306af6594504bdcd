"""stillme in Inspect AI: portraits and instructions as a task, and a scorer that has our judges look at the edit.

inspect eval stillme/portraits --model openai/some-model -T limit=8

Any solver may make the edit: the scorer takes the last picture of the model's answer, or what the solver put into
`state.metadata["edited"]` (a path, or a data URI). Judges are blind: they see both pictures and the instruction.
"""

# inspect-ai is too heavy for the tools that check this package, so its types are unknown to them.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from stillme import images, registry
from stillme.errors import MissingExtra, StillmeError
from stillme.images import UnreadableImage
from stillme.portraits import folder as portrait_folder
from stillme.protocols import Judge
from stillme.throttle import patiently
from stillme.types import Abstained, Assessment, Failed, ImageFile, Pair, Portrait, Prompt, Rated

try:
    import anyio.to_thread
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessage, ChatMessageUser, ContentImage, ContentText
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState, generate
except ImportError as error:
    raise MissingExtra(
        f"stillme.inspect needs inspect-ai, which is not installed ({error}): run `pip install 'stillme[inspect]'`."
    ) from None

__all__ = ["keeps_person", "portrait_dataset", "portraits"]

EDITED = "edited"
"""The key of a sample's metadata under which a solver leaves its picture, where the model's answer has none."""
PICTURE = "picture"
"""The share of answers that have a picture; what has none was not judged."""


def portrait_dataset(
    portraits: str = "synthetic", prompts: str = "diagnostic", limit: int | None = None
) -> MemoryDataset:
    """Every portrait with every instruction; `portraits` is a set's name or a folder with portraits.csv.

    `limit` takes the first portraits: the portrait is the unit, so a part of one's instructions helps little.
    """
    people = _portraits(portraits)[:limit]
    samples = [_sample(portrait, prompt) for portrait in people for prompt in registry.prompt_set(prompts)]
    return MemoryDataset(samples, name=f"stillme-{prompts}")


@scorer(metrics={"*": [mean(), stderr(cluster="portrait")]})
def keeps_person(judge: str = "instruments", parameters: Mapping[str, Any] | None = None) -> Scorer:
    """What a judge of stillme says about an edit: one value for each of its axes.

    An answer without a picture, an abstention and a failure are unscored, never a number. Standard errors are by
    portrait: samples of your own need `portrait` in their metadata.
    """
    built = registry.build("judge", judge, dict(parameters or {}))
    if built.capabilities.labels:
        raise StillmeError(f"{judge} wants to be told the portraits' labels; in Inspect, judges of stillme are blind.")
    # Made with the first sample: Inspect builds scorers outside of any event loop.
    limiters: list[anyio.CapacityLimiter] = []

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001
        if not limiters:
            limiters.append(anyio.CapacityLimiter(built.capabilities.concurrency))
        edited = _edited(state)
        if edited is None:
            words = state.output.completion if state.output else ""
            return _unscored(built, "no picture", f"The answer has no picture: {words[:500]}", picture=False)
        try:
            sources = [_bytes(picture) for picture in _pictures(_messages(state.input))]
            if not sources:
                return _unscored(built, "scoring_failed", "The sample's input has no picture to compare with.")
            pair = (sources, _bytes(edited), _prompt(state))
            said = await anyio.to_thread.run_sync(partial(_judge, built, *pair), limiter=limiters[0])
        except UnreadableImage as error:
            return _unscored(built, "scoring_failed", str(error))
        return _score(built, said)

    return score


@task
def portraits(
    portraits: str = "synthetic", prompts: str = "diagnostic", limit: int | None = None, judge: str = "instruments"
) -> Task:
    """Edit portraits by instruction, and have a judge of stillme say what became of the person."""
    return Task(
        dataset=portrait_dataset(portraits, prompts, limit), solver=generate(), scorer=keeps_person(judge=judge)
    )


def _portraits(source: str) -> tuple[Portrait, ...]:
    if source in registry.plugins("portrait set"):
        return registry.portrait_set(source)
    return portrait_folder.load(Path(source))


def _sample(portrait: Portrait, prompt: Prompt) -> Sample:
    kind = mimetypes.guess_type(portrait.image.path.name)[0] or "image/png"
    picture = f"data:{kind};base64,{base64.b64encode(portrait.image.read()).decode()}"
    return Sample(
        id=f"{portrait.id}/{prompt.id}",
        input=[ChatMessageUser(content=[ContentText(text=prompt.text), ContentImage(image=picture)])],
        metadata={
            "portrait": portrait.id,
            "label_origin": portrait.label_origin,
            **{f"label_{name}": value for name, value in portrait.attributes.items()},
            "prompt": prompt.id,
            "category": prompt.category,
            "subcategory": prompt.subcategory,
            "years": prompt.years,
        },
    )


def _messages(given: str | list[ChatMessage]) -> Sequence[ChatMessage]:
    return () if isinstance(given, str) else given


def _pictures(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for message in messages:
        if not isinstance(message.content, str):
            yield from (part.image for part in message.content if isinstance(part, ContentImage))


def _edited(state: TaskState) -> str | None:
    answered = list(_pictures([state.output.message])) if state.output and state.output.choices else []
    left = state.metadata.get(EDITED)
    return answered[-1] if answered else str(left) if left else None


def _prompt(state: TaskState) -> Prompt:
    about = state.metadata
    years = about.get("years")
    return Prompt(
        id=str(about.get("prompt", "inspect")),
        text=state.input_text,
        category=str(about.get("category", "")),
        subcategory=str(about.get("subcategory", "")),
        years=years if isinstance(years, int) else None,
    )


def _bytes(picture: str) -> bytes:
    """A data URI or a file; nothing is fetched."""
    if picture.startswith("data:"):
        try:
            return base64.b64decode(picture.partition(",")[2], validate=True)
        except binascii.Error as error:
            raise UnreadableImage(f"The answer's data URI is not base64 ({error}).") from None
    if "://" in picture:
        raise UnreadableImage(f"{picture[:100]} is an address; have the solver fetch it. stillme fetches nothing.")
    try:
        return Path(picture).read_bytes()
    except OSError as error:
        raise UnreadableImage(f"{picture[:200]} cannot be read: {error.strerror}.") from None


def _judge(judge: Judge, sources: Sequence[bytes], edited: bytes, prompt: Prompt) -> Assessment:
    for picture in (*sources, edited):
        images.check(picture, name="a picture of the sample")
    with tempfile.TemporaryDirectory(prefix="stillme-inspect-") as name:
        files = [_stored(Path(name), picture) for picture in (*sources, edited)]
        key = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()[:32]
        pair = Pair(edit=key, sources=tuple(files[:-1]), edited=files[-1], prompt=prompt)
        return patiently(lambda: next(iter(judge.judge([pair]))), lambda said: said.failure)


def _stored(folder: Path, picture: bytes) -> ImageFile:
    sha256 = hashlib.sha256(picture).hexdigest()
    path = folder / sha256
    path.write_bytes(picture)
    return ImageFile(path=path, sha256=sha256)


def _score(judge: Judge, said: Assessment) -> Score:
    value = _empty(judge)
    reasons: dict[str, str] = {}
    for axis, rating in said.ratings.items():
        match rating:
            case Rated(score=number, evidence=evidence):
                # An axis that is answered only for some pairs is shown, never averaged.
                if axis in value:
                    value[axis] = number
                if evidence or axis not in value:
                    reasons[axis] = f"{number:g} {evidence}".strip()
            case Abstained(reason=reason):
                reasons[axis] = f"abstained: {reason}"
            case Failed(error=error):
                reasons[axis] = f"failed: {error}"
            case never:
                assert_never(never)
    failed = "grader_failed" if said.failure else None
    explanation = "\n".join(f"{axis}: {words}" for axis, words in reasons.items())
    return Score(value=value, explanation=explanation or None, reason=failed)


def _unscored(judge: Judge, reason: str, explanation: str, *, picture: bool = True) -> Score:
    value = _empty(judge) | {PICTURE: float(picture)}
    return Score(value=value, reason=reason, explanation=explanation)


def _empty(judge: Judge) -> dict[str, float]:
    """No score on any axis: Inspect wants the same keys of every sample, and leaves NaN out of its metrics."""
    return {PICTURE: 1.0, **dict.fromkeys(judge.capabilities.axes, float("nan"))}
