"""How far a judge's scores move when nothing that matters has changed, or when there is nothing to see."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stillme.core import images, registry
from stillme.core.files import write_whole
from stillme.core.protocols import Judge
from stillme.core.rubric.limits import load as load_limits
from stillme.core.throttle import call_with_retry
from stillme.core.types import ImageFile, Pair, Rated
from stillme.findings.calibration.records import Moved, Stress
from stillme.judges.questions import AXES
from stillme.runs.control_pairs.asking import drawn

AS_IT_IS, SWAPPED, ELSEWHERE = "as it is", "swapped", "second server"
BLIND = ("no picture", "noise")
"""Variants without anything to judge: there, a score is a guess."""
VARIANTS = ("re-encoded", "resized", SWAPPED, *BLIND)
_QUALITY, _SEED, _AT_ONCE = 75, 0, 8
_LOOKED_AT = 500
"""Known pairs among which rendered ones are looked for; some judges have none."""
_ABOUT_THE_EDIT = "edit_success"
"""The axis that means something else when the pictures are swapped."""


def stress(judge: str, parameters: Mapping[str, Any], folder: Path, *, pairs: int, second: str = "") -> Stress:
    """Ask a judge about the same pairs in several forms; `second` is the address of the same model elsewhere.

    Answers are kept in the folder: what was asked is not asked, or paid for, again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here = registry.build("judge", judge, dict(parameters))
    shown = list(itertools.islice(_known_pairs(here.capabilities.axes), pairs))
    forms = (AS_IT_IS, *VARIANTS)
    tasks = [(form, pair) for form in forms for pair in _in_form(shown, form, folder)]
    answers = _answers(here, tasks, folder)
    if second:
        elsewhere = registry.build("judge", judge, {**parameters, "base_url": second})
        answers |= _answers(elsewhere, [(ELSEWHERE, pair) for pair in _in_form(shown, AS_IT_IS, folder)], folder)
        forms = (*forms, ELSEWHERE)
    return dict(_moved(here.capabilities.axes, forms[1:], len(shown), answers))


def _known_pairs(axes: Sequence[str]) -> Iterator[Pair]:
    """Rendered people with a known change."""
    prompt = registry.prompt_set("diagnostic")[0]
    for number, known in enumerate(itertools.islice(drawn(axes, _SEED, "stress"), _LOOKED_AT)):
        if known.render:
            edited = ImageFile.of(known.render)
            yield Pair(edit=f"stress-{number}", sources=(known.subject.image,), edited=edited, prompt=prompt)


def _in_form(pairs: Sequence[Pair], form: str, folder: Path) -> Iterator[Pair]:
    for pair in pairs:
        source, edited = pair.sources[0], pair.edited
        if form == SWAPPED:
            source, edited = edited, source
        elif form != AS_IT_IS:
            edited = _kept(folder, _changed(images.read_picture(edited.path), form))
        yield Pair(edit=pair.edit, sources=(source,), edited=edited, prompt=pair.prompt)


def _changed(picture: Image.Image, form: str) -> bytes:
    width, height = picture.size
    match form:
        case "re-encoded":
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=_QUALITY)
            return buffer.getvalue()
        case "resized":
            picture = picture.resize((width * 3 // 4, height * 3 // 4), Image.Resampling.LANCZOS)
        case "noise":
            noise = np.random.default_rng(_SEED).integers(0, 256, (height, width, 3), dtype=np.uint8)
            return images.encode_png(noise)
        case _:
            picture = Image.new("RGB", (width, height), (127, 127, 127))
    return images.encode_png(np.asarray(picture.convert("RGB")))


def _kept(folder: Path, data: bytes) -> ImageFile:
    ending = "png" if data.startswith(b"\x89PNG") else "jpg"
    file = write_whole(folder / f"{hashlib.sha256(data).hexdigest()}.{ending}", data)
    return ImageFile.of(file)


Answers = dict[tuple[str, str], Mapping[str, float]]
"""The scores by axis, of a form and a pair."""


def _answers(judge: Judge, tasks: Sequence[tuple[str, Pair]], folder: Path) -> Answers:
    file = folder / f"{judge.spec.key}.json"
    known: dict[str, Mapping[str, float]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}

    def asked(task: tuple[str, Pair]) -> tuple[str, Mapping[str, float] | None]:
        form, pair = task
        key = f"{form} {pair.edit}"
        if key in known:
            return key, known[key]
        assessment = call_with_retry(lambda: next(iter(judge.judge([pair]))), lambda answer: answer.failure)
        if assessment.failure:
            return key, None
        return key, {axis: rating.score for axis, rating in assessment.ratings.items() if isinstance(rating, Rated)}

    with ThreadPoolExecutor(min(_AT_ONCE, judge.capabilities.concurrency)) as pool:
        for key, scores in pool.map(asked, tasks):
            if scores is not None:
                known[key] = scores
                write_whole(file, json.dumps(known))
    judge.close()
    return {(form, pair.edit): known[key] for form, pair in tasks if (key := f"{form} {pair.edit}") in known}


def _moved(
    axes: Sequence[str], forms: Sequence[str], pairs: int, answers: Answers
) -> Iterator[tuple[str, Mapping[str, Moved]]]:
    for axis in axes:
        original = _scores(answers, AS_IT_IS, axis)
        if axis not in AXES or not original:
            continue
        by_form: dict[str, Moved] = {}
        for form in forms:
            scores = _scores(answers, form, axis)
            both = scores.keys() & original.keys()
            away = [abs(_mirrored(axis, form, scores[edit]) - original[edit]) for edit in both]
            judged = away if form not in BLIND and not (form == SWAPPED and axis == _ABOUT_THE_EDIT) else []
            mean, largest = (sum(judged) / len(judged), max(judged)) if judged else (None, None)
            by_form[form] = Moved(asked=pairs, scored=len(scores), mean=mean, largest=largest)
        yield axis, by_form


def _scores(answers: Answers, form: str, axis: str) -> dict[str, float]:
    return {edit: scores[axis] for (named, edit), scores in answers.items() if named == form and axis in scores}


def _mirrored(axis: str, form: str, score: float) -> float:
    """A score of a swapped pair as the pair itself would have it: lighter for darker, older for younger."""
    limits = load_limits().axes.get(axis)
    if form != SWAPPED or limits is None or not limits.signed:
        return score
    return 2 * limits.unchanged - score
