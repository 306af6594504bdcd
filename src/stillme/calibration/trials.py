"""`stillme calibrate`: run a judge over known changes, as audits of its own, so that it resumes like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from stillme import registry
from stillme.audit import load
from stillme.audit.load import FILE
from stillme.calibration.measuring import calibration_of
from stillme.calibration.records import Calibration, save
from stillme.editors import known, rendered
from stillme.editors.regions import regions_of
from stillme.errors import Interrupted, StillmeError
from stillme.portraits import load as load_folder
from stillme.portraits.synthetic import embedded_renders
from stillme.results import Run, joined
from stillme.results.derived import AREA
from stillme.rubric.limits import load as load_limits
from stillme.stages.tally import Ended
from stillme.stages.working import Conditions, work
from stillme.types import Portrait, Prompt

SET = "synthetic"
PLANTED_PROMPTS = ("O-01", "O-02", "O-03", "O-04")

Tables = dict[str, Any]


def calibrate(
    judge: str,
    parameters: Tables,
    folder: Path,
    *,
    per_group: int | None,
    conditions: Conditions,
    renders: Path | None = None,
    photographs: Path | None = None,
) -> tuple[Calibration, Path]:
    """Calibrate a judge, and keep the result for every later audit on this machine.

    Pixel operations are tried on the embedded portraits, `per_group` of each skin-tone group (None takes all);
    changes of age, gender presentation, features and identity on the rendered pairs of `renders`; edits that
    some do not get on the planted editor; where a folder of labelled `photographs` is named, strangers who look alike.
    Returns the result and its file.
    """
    # A mistake is reported before anything is written.
    axes = registry.build("judge", judge, parameters).capabilities.axes
    everyone = registry.portrait_set(SET)
    chosen = _chosen(everyone, per_group)
    where = renders or embedded_renders()
    subjects = load_folder(where)
    taken = load_folder(photographs) if photographs else ()
    pixels = _answers(folder / "pixels", judge, parameters, _pixel_audit(chosen, everyone), conditions)
    scenes = _answers(folder / "renders", judge, parameters, _render_audit(where, folder / "renders"), conditions)
    results = joined(pixels.results, scenes.results)
    if AREA in axes:  # others could not tell who was skipped, and may cost money
        planted = _answers(
            folder / "planted", judge, parameters, _planted_audit(chosen, folder / "planted"), conditions
        )
        results = joined(results, planted.results)
    people = {portrait.id: _group(portrait) for portrait in (*chosen, *subjects)}
    tried = f"{len(chosen)} of the {len(everyone)} embedded portraits, {len(subjects)} rendered subjects"
    if photographs is not None:
        faces = [portrait for portrait in taken if regions_of(portrait.image) is not None]
        some = _chosen(faces, per_group)
        audit = _photograph_audit(some, faces, photographs, folder / "photographs")
        results = joined(results, _answers(folder / "photographs", judge, parameters, audit, conditions).results)
        people |= {portrait.id: _group(portrait) for portrait in some}
        tried += f", {len(some)} photographs"
    (asked,) = pixels.judges
    calibration = calibration_of(asked.name, asked.spec, results, people, tried)
    return calibration, save(calibration)


def _answers(folder: Path, judge: str, parameters: Tables, tables: Tables, conditions: Conditions) -> Run:
    """Run one audit of known changes to its end and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    # Every answer is known here, so none needs to be hidden among others.
    asked = {"use": judge, "parameters": parameters, "sentinel": {"share": 0.0}}
    whole: Tables = {"title": f"Calibration of {judge}", "judges": [asked], "estimates": {"factors": []}, **tables}
    whole["base"] = str(Path.cwd())  # paths among the judge's parameters were written for the current folder
    (folder / FILE).write_text(tomli_w.dumps(whole), "utf-8")
    worked = work(load(folder), ("edit", "judge"), conditions)
    if worked.ended is not Ended.COMPLETE:
        raise Interrupted("The calibration was interrupted; the same command goes on where it stopped.")
    if worked.totals.to_retry:
        raise StillmeError(f"{worked.totals.to_retry:,} answers of {judge!r} failed; run the same command to retry.")
    return Run.open(folder)


def _pixel_audit(chosen: Sequence[Portrait], everyone: Sequence[Portrait]) -> Tables:
    return {
        "portraits": {"source": SET, "ids": [portrait.id for portrait in chosen]},
        "prompts": {"sets": ["calibration"]},
        "editors": [{"use": "known", "parameters": {"strangers": _strangers(chosen, everyone)}}],
    }


def _planted_audit(chosen: Sequence[Portrait], folder: Path) -> Tables:
    """Clothes are recoloured in most; some get nothing."""
    asked = [prompt for prompt in registry.prompt_set("diagnostic") if prompt.id in PLANTED_PROMPTS]
    return {
        "portraits": {"source": SET, "ids": [portrait.id for portrait in chosen]},
        "prompts": {"sets": [_written(asked, folder)]},
        "editors": [{"use": "planted", "parameters": {"everyone": {"erasure": 0.12}}}],
    }


def _photograph_audit(some: Sequence[Portrait], all_of_them: Sequence[Portrait], source: Path, folder: Path) -> Tables:
    return {
        "portraits": {"source": str(source.resolve()), "ids": [portrait.id for portrait in some]},
        "prompts": {"sets": [_written(known.photograph_prompts(), folder)]},
        "editors": [{"use": "known", "parameters": {"strangers": _alike(some, all_of_them)}}],
    }


def _written(asked: Sequence[Prompt], folder: Path) -> str:
    """The file of these prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{name: value for name, value in asdict(prompt).items() if value} for prompt in asked]
    (folder / "prompts.toml").write_text(tomli_w.dumps({"prompts": entries}), "utf-8")
    return str((folder / "prompts.toml").resolve())


def _render_audit(renders: Path, folder: Path) -> Tables:
    return {
        "portraits": {"source": str(renders.resolve())},
        "prompts": {"sets": [_written(rendered.prompts(renders), folder)]},
        "editors": [{"use": "rendered", "parameters": {"folder": str(renders.resolve())}}],
    }


def _chosen(portraits: Sequence[Portrait], per_group: int | None) -> list[Portrait]:
    """So many of each skin-tone group, spread over the set."""
    groups: dict[str, list[Portrait]] = {}
    for portrait in portraits:
        groups.setdefault(_group(portrait), []).append(portrait)
    chosen: list[Portrait] = []
    for group in groups.values():
        count = min(per_group or len(group), len(group))
        chosen += [group[index * len(group) // count] for index in range(count)]
    return chosen


def _group(portrait: Portrait) -> str:
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
    """For each portrait somebody of like appearance but another cell: another identity, in other light."""
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
