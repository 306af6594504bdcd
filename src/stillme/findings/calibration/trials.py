"""`stillme calibrate`: run a judge over known changes, as audits of its own, so that it resumes like one.

The stress check shows how far its scores move when nothing that matters has changed, or when there is nothing to see.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from PIL import Image

from stillme.audit import Audit, load
from stillme.audit.building import build
from stillme.audit.loading import FILE
from stillme.core import images, registry
from stillme.core.errors import Interrupted, StillmeError
from stillme.core.files import write_whole
from stillme.core.protocols import Judge
from stillme.core.rubric import load_limits
from stillme.core.throttle import call_with_retry
from stillme.core.types import ImageFile, Pair, Portrait, Prompt, Rated
from stillme.editors import known, rendered
from stillme.editors.regions import regions_of
from stillme.findings.calibration import honest
from stillme.findings.calibration.honest import HonestEdit, HonestEditor
from stillme.findings.calibration.measuring import calibration_of
from stillme.findings.calibration.records import Calibration, Moved, Stress, save
from stillme.judges.questions import AXES
from stillme.portraits import embedded_renders
from stillme.portraits import load as load_folder
from stillme.runs import RecordedRun, joined
from stillme.runs.control_pairs.asking import drawn
from stillme.runs.gathering import AREA
from stillme.work.options import RunOptions
from stillme.work.stages import work
from stillme.work.tally import Ended

SET = "synthetic-36"
PLANTED_PROMPTS = ("O-01", "O-02", "O-03", "O-04")

Tables = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """How many source pictures of each skin tone are tried."""

    changed: int
    """On changes that must be noticed."""
    null: int
    """On edits that change no one."""

    @property
    def is_first_look(self) -> bool:
        """Whether these are too few for the limits of an interval."""
        return self.changed < FULL.changed or self.null < FULL.null


FULL = Sources(changed=32, null=60)
"""Enough for the limits where every answer is right. Where a set has fewer of a tone, all of them.

What changes one axis is a null edit of another, which takes 25 answers, and some sources abstain.
"""
QUICK = Sources(changed=4, null=4)
"""A first look."""


def calibrate(
    judge: str,
    parameters: Tables,
    folder: Path,
    *,
    options: RunOptions,
    sources: Sources = FULL,
    renders: Path | None = None,
    photographs: Path | None = None,
) -> tuple[Calibration, Path | None]:
    """Calibrate a judge, and keep the result for every later audit on this machine.

    Changes of pixels and honest edits, which change no one, are tried on the embedded portraits, so many `sources` of
    each skin tone; changes of age, gender presentation, features and identity on the rendered pairs of `renders`; edits
    that some do not get on the planted editor; where a folder of labelled `photographs` is named, strangers who look
    alike. Returns the result and its file; a first look is not kept.
    """
    # A mistake is reported before anything is written.
    axes = registry.build("judge", judge, parameters).capabilities.axes
    everyone = registry.portrait_set(SET)
    chosen, null = (_chosen(everyone, count) for count in (sources.changed, sources.null))
    changes = _audit(SET, "calibration", "known", {"strangers": _strangers(chosen, everyone)}, chosen)
    pixels = _answers(folder / "pixels", judge, parameters, changes, options)
    results = joined(pixels.results, _null_answers(folder / "null", judge, parameters, null, options).results)
    people = list({portrait.id: portrait for portrait in (*chosen, *null)}.values())
    subjects: list[Portrait] = []
    # A first look takes the first folder alone; the further subjects are there for limits.
    folders = [renders] if renders else embedded_renders()[: 1 if sources.is_first_look else None]
    for number, where in enumerate(folders, start=1):
        scenes = folder / f"renders-{number}"
        prompts = _written(rendered.prompts(where), scenes)
        changes = _audit(where, prompts, "rendered", {"folder": str(where.resolve())})
        answered = _answers(scenes, judge, parameters, changes, options)
        results = joined(results, answered.results)
        subjects += load_folder(where)
    if AREA in axes:  # others could not tell what was skipped, and may cost money
        planted = folder / "planted"
        answered = _answers(planted, judge, parameters, _planted_audit(null, planted), options)
        results = joined(results, answered.results)
    rendered_people = len({subject.id for subject in subjects})
    tried = f"{len(people)} of the {len(everyone)} embedded portraits, {rendered_people} rendered subjects"
    if photographs is not None:
        faces = [portrait for portrait in load_folder(photographs) if regions_of(portrait.image) is not None]
        some = _chosen(faces, sources.changed)
        place = folder / "photographs"
        prompts = _written(known.photograph_prompts(), place)
        changes = _audit(photographs, prompts, "known", {"strangers": _alike(some, faces)}, some)
        results = joined(results, _answers(place, judge, parameters, changes, options).results)
        people += some
        tried += f", {len(some)} photographs"
    (asked,) = pixels.judges
    tones = {portrait.id: _group(portrait) for portrait in (*people, *subjects)}
    calibration = calibration_of(asked.name, asked.spec, results, tones, tried, first_look=sources.is_first_look)
    return calibration, None if sources.is_first_look else save(calibration)


def _null_answers(
    folder: Path, judge: str, parameters: Tables, portraits: Sequence[Portrait], options: RunOptions
) -> RecordedRun:
    """One honest edit of each kind of each portrait, as an audit; the amounts vary over the portraits."""
    audit = build(
        editors={kind: HonestEditor(HonestEdit(kind=kind)) for kind in honest.load().kinds},
        judges=[{"use": judge, "parameters": parameters, "control_pairs": {"share": 0.0}}],
        portraits=portraits,
        prompts=[known.INSTRUCTION],
        factors=[],
        folder=folder,
        title=f"Honest edits before {judge}",
    )
    return _worked(audit, judge, options)


def _answers(folder: Path, judge: str, parameters: Tables, tables: Tables, options: RunOptions) -> RecordedRun:
    """Run one audit of known changes to its end and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    # Every answer is known here, so none needs to be hidden among others.
    asked = {"use": judge, "parameters": parameters, "control_pairs": {"share": 0.0}}
    whole: Tables = {"title": f"Calibration of {judge}", "judges": [asked], "estimates": {"factors": []}, **tables}
    whole["base"] = str(Path.cwd())  # paths among the judge's parameters were written for the current folder
    (folder / FILE).write_text(tomli_w.dumps(whole), "utf-8")
    return _worked(load(folder), judge, options)


def _worked(audit: Audit, judge: str, options: RunOptions) -> RecordedRun:
    worked = work(audit, ("edit", "judge"), options)
    if worked.ended is not Ended.COMPLETE:
        raise Interrupted("The calibration was interrupted; run the same command to continue.")
    if worked.totals.to_retry:
        raise StillmeError(f"{worked.totals.to_retry:,} answers of {judge!r} failed; run the same command to retry.")
    return RecordedRun.open(audit.folder)


def _audit(source: str | Path, asked: str, editor: str, parameters: Tables, only: Sequence[Portrait] = ()) -> Tables:
    """The tables of an audit of known changes: of some portraits of a set or folder, or of all."""
    where = source if isinstance(source, str) else str(source.resolve())
    return {
        "portraits": {"source": where} | ({"ids": [portrait.id for portrait in only]} if only else {}),
        "prompts": {"sets": [asked]},
        "editors": [{"use": editor, "parameters": parameters}],
    }


def _planted_audit(chosen: Sequence[Portrait], folder: Path) -> Tables:
    """Clothes are recoloured in most; some get nothing."""
    asked = [prompt for prompt in registry.prompt_set("diagnostic") if prompt.id in PLANTED_PROMPTS]
    return _audit(SET, _written(asked, folder), "planted", {"everyone": {"erasure": 0.12}}, chosen)


def _written(asked: Sequence[Prompt], folder: Path) -> str:
    """The file of these prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{name: value for name, value in asdict(prompt).items() if value} for prompt in asked]
    (folder / "prompts.toml").write_text(tomli_w.dumps({"prompts": entries}), "utf-8")
    return str((folder / "prompts.toml").resolve())


def _chosen(portraits: Sequence[Portrait], per_tone: int) -> list[Portrait]:
    """So many of each skin-tone group, spread over the set."""
    groups: dict[str, list[Portrait]] = {}
    for portrait in portraits:
        groups.setdefault(_group(portrait), []).append(portrait)
    chosen: list[Portrait] = []
    for group in groups.values():
        count = min(per_tone, len(group))
        chosen += [group[index * len(group) // count] for index in range(count)]
    return chosen


def _group(portrait: Portrait) -> str:
    if measured := portrait.attributes.get("skin_l"):
        return load_limits().group_of(float(measured))
    regions = regions_of(portrait.image)
    if regions is None:
        raise StillmeError(f"No face is found in the portrait {portrait.id!r}; it cannot calibrate a judge.")
    return load_limits().group_of(regions.tone[0])


def _alike(some: Sequence[Portrait], everyone: Sequence[Portrait]) -> dict[str, str]:
    """For each photograph another person with the most labels in common."""
    strangers: dict[str, str] = {}
    for place, portrait in enumerate(some):
        others = [other for other in everyone if other.image.sha256 != portrait.image.sha256]
        shared = [
            sum(other.attributes.get(name) == level for name, level in portrait.attributes.items()) for other in others
        ]
        alike = [other for other, count in zip(others, shared, strict=True) if count == max(shared)]
        # One after the other, so that strangers vary with the portraits.
        strangers[portrait.id] = str(alike[place % len(alike)].image.path)
    return strangers


def _strangers(chosen: Sequence[Portrait], everyone: Sequence[Portrait]) -> dict[str, str]:
    """For each portrait a person of like appearance but another cell: another identity, in other light."""
    strangers: dict[str, str] = {}
    for portrait in chosen:
        others = [
            other
            for other in everyone
            if other.block != portrait.block and other.attributes.get("preset") == portrait.attributes.get("preset")
        ]
        # The next cell's person, so that strangers vary with the portraits.
        strangers[portrait.id] = str(
            min(others, key=lambda other: (other.block < portrait.block, other.block)).image.path
        )
    return strangers


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
    answers = _asked_forms(here, tasks, folder)
    if second:
        elsewhere = registry.build("judge", judge, {**parameters, "base_url": second})
        answers |= _asked_forms(elsewhere, [(ELSEWHERE, pair) for pair in _in_form(shown, AS_IT_IS, folder)], folder)
        forms = (*forms, ELSEWHERE)
    return dict(_moved(here.capabilities.axes, forms[1:], len(shown), answers))


def _known_pairs(axes: Sequence[str]) -> Iterator[Pair]:
    """Rendered people with a known change."""
    prompt = registry.prompt_set("diagnostic")[0]
    for number, pair in enumerate(itertools.islice(drawn(axes, _SEED, "stress"), _LOOKED_AT)):
        if pair.render:
            edited = ImageFile.of(pair.render)
            yield Pair(edit=f"stress-{number}", sources=(pair.subject.image,), edited=edited, prompt=prompt)


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


def _asked_forms(judge: Judge, tasks: Sequence[tuple[str, Pair]], folder: Path) -> Answers:
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
