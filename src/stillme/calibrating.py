"""`stillme calibrate`: run a judge over known changes, as an audit of its own, so that it resumes like one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from stillme import audit, registry, results
from stillme.audit.load import FILE
from stillme.calibration import Calibration, calibration_of, save
from stillme.calibration.limits import load as load_limits
from stillme.editors.regions import regions_of
from stillme.errors import StillmeError
from stillme.pipeline import Ended, Options, run_stages
from stillme.store import Store
from stillme.types import Portrait

SET = "synthetic"


def calibrate(
    judge: str, parameters: dict[str, Any], folder: Path, *, per_group: int | None, options: Options
) -> tuple[Calibration, Path]:
    """Calibrate a judge on the embedded portraits and keep the result for every later audit.

    `per_group` bounds the portraits of each skin-tone group; None takes all. Returns the result and its file.
    """
    registry.plugin("judge", judge)
    everyone = registry.portrait_set(SET)
    chosen = _chosen(everyone, per_group)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(_audit(judge, parameters, chosen, everyone), "utf-8")
    summary = run_stages(folder, ("edit", "judge"), options)
    if summary.ended is not Ended.COMPLETE:
        raise KeyboardInterrupt
    if summary.to_retry:
        raise StillmeError(f"{summary.to_retry:,} answers of {judge!r} failed in a way that may pass; run it again.")
    loaded = audit.load(folder, ready=False)
    with Store.reading(folder) as store:
        gathered = results.gather(loaded, store)
    (named,) = loaded.judges
    groups = {portrait.id: _group(portrait) for portrait in chosen}
    described = f"{len(chosen)} of the {len(everyone)} embedded portraits"
    found = calibration_of(named.name, named.judge.spec, gathered.edits, gathered.scores, groups, described)
    return found, save(found)


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


def _audit(judge: str, parameters: dict[str, Any], chosen: Sequence[Portrait], everyone: Sequence[Portrait]) -> str:
    return tomli_w.dumps(
        {
            "title": f"Calibration of {judge}",
            "portraits": {"source": SET, "ids": [portrait.id for portrait in chosen]},
            "prompts": {"sets": ["calibration"]},
            "editors": [{"use": "known", "parameters": {"strangers": _strangers(chosen, everyone)}}],
            "judges": [{"use": judge, "parameters": parameters}],
            "estimates": {"factors": []},
        }
    )


def _strangers(chosen: Sequence[Portrait], everyone: Sequence[Portrait]) -> dict[str, str]:
    """For each portrait somebody of like appearance but another cell: another identity, in other light."""
    found: dict[str, str] = {}
    for portrait in chosen:
        others = [
            other
            for other in everyone
            if other.block != portrait.block and other.attributes.get("preset") == portrait.attributes.get("preset")
        ]
        # The next cell's person, so that strangers vary with the portraits.
        found[portrait.id] = str(min(others, key=lambda other: (other.block < portrait.block, other.block)).image.path)
    return found
