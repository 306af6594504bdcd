"""The runs that are photographed: small, of chosen scores, the same on every machine."""

from __future__ import annotations

import csv
import hashlib
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from PIL import Image

import stillme
from stillme.api.demo import shrink_into
from stillme.api.pipeline import run_stages
from stillme.audit.design import JudgeRecord, RecordedRequest
from stillme.audit.experiments import Experiment, experiment
from stillme.audit.template import small_audit
from stillme.core.protocols import Editor, Parameters
from stillme.core.types import (
    Abstained,
    Assessment,
    Edited,
    EditOutcome,
    Failed,
    Portrait,
    Rated,
    Rating,
    Refused,
    Request,
)
from stillme.findings.exchange import ColumnMapping, RowsAsked, import_rows
from stillme.portraits import portraits as embedded
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.study.app import build
from stillme.study.closing import close_study
from stillme.study.drawing import StudyDesign, new_study
from stillme.study.entry import invite
from stillme.study.items import EXAMPLE
from stillme.study.opening import Study, open_study
from tests import runs
from tests.records import answers
from tests.study.conftest import Browser, Served

_LONGEST = 192
"""Pixels: faces are still large enough to be described."""
_HARMED = ("A", "E", "b", "Black")
"""Groups whose edits go wrong more often."""
_AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
_FINE = {"edit_success": (4, 5), "skin_tone": (3, 3), "race_change": (1, 2), "gender_change": (1, 1)}
_BAD = {"edit_success": (1, 2), "skin_tone": (4, 5), "race_change": (3, 5), "gender_change": (3, 5)}
_AGE = {True: (4, 5), False: (3, 3)}

Say = Callable[[JudgeRecord, RecordedRequest, Sequence[Portrait], int], Mapping[str, Rating]]
"""A judge, the request, its portraits and the epoch to ratings by axis."""


def luck(*names: object) -> float:
    """A number from 0 to 1 that depends on these names alone."""
    return int(hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()[:12], 16) / 16**12


def make_all(folder: Path) -> dict[str, Path]:
    """Every run, by the name that the photograph has for it."""
    people = folder / "portraits"
    shrink_into(people, embedded(), longest=_LONGEST)
    return {
        "demo": _demo(folder / "demo", people),
        "diagnosis": _diagnosis(folder / "diagnosis", people),
        "mitigation": _mitigation(folder / "mitigation", people),
        "roles": _roles(folder / "roles", people),
        "role pairs, counterbalanced": _counterbalanced(folder / "pairs", people),
        "imported rows": _imported(folder / "imported"),
        "refusals, failures, abstentions": _functions(folder / "functions"),
        "before": _checkpoint(folder / "before", 0.1),
        "after": _checkpoint(folder / "after", 0.6),
        "study": _study(folder / "study", people),
    }


# -- the demo and the paper's three experiments ------------------------------------------------------------------------


def _demo(folder: Path, people: Path) -> Path:
    audit = tomllib.loads(small_audit("The demo, smaller", source=str(people)))
    audit["prompts"]["only"] = ["O-01"]
    stillme.run(_written(folder, audit), say=_silent)
    return folder


def _diagnosis(folder: Path, people: Path) -> Path:
    audit = _template("diagnosis", people)
    audit["prompts"] = {"only": ["O-01", "O-05", "V-02", "V-05"]}
    audit["editors"] = [_planted("harsh"), _planted("gentle")]
    audit["estimates"]["factors"] = ["preset", "gender_presentation"]
    return _judged(_edited(folder, audit), _scores)


def _mitigation(folder: Path, people: Path) -> Path:
    audit = _template("mitigation", people)
    audit |= {"arms": ["baseline", "feature", "placebo", "noop"], "editors": [{"use": "noop", "name": "plain"}]}
    audit["prompts"] = {"only": ["O-01", "V-02"]}
    audit["mitigation"]["extractors"] = ["measured"]
    audit["sample"] = {"size": 50, "seed": 0}
    audit["estimates"]["factors"] = ["preset"]
    return _judged(_edited(folder, audit), _scores)


def _roles(folder: Path, people: Path) -> Path:
    audit = _template("roles", people)
    audit["editors"] = [_planted("one"), _planted("another")]
    audit["prompts"]["only"] = [f"W-{number:02}" for number in range(1, 13)]
    return _judged(_edited(folder, audit), _targets)


def _counterbalanced(folder: Path, people: Path) -> Path:
    audit = _template("roles", people)
    audit["editors"] = [_planted("drawn")]
    audit["prompts"]["only"] = [f"W-{number:02}" for number in range(1, 5)]
    audit["roles"] |= {"counterbalance": True, "layouts": ["role_pair", "role_single"]}
    return _judged(_edited(folder, audit), _targets)


def _template(name: Experiment, people: Path) -> dict[str, Any]:
    """An experiment's audit.toml, with judges that are never asked."""
    audit = tomllib.loads(experiment(name, f"{name}, smaller"))
    audit["portraits"]["source"] = str(people)
    axes = dict.fromkeys([*_AXES, "role_target"] if name == "roles" else _AXES, 1)
    audit["judges"] = [
        {"use": "scripted", "name": judge, "parameters": {"scores": axes, "share": place / 100}}
        for place, judge in enumerate(("one judge", "another"))
    ]
    return audit


def _planted(name: str) -> dict[str, Any]:
    return {"use": "planted", "name": name, "parameters": {"everyone": {"erasure": len(name) / 100}}}


# -- scores that are chosen --------------------------------------------------------------------------------------------


def _scores(
    judge: JudgeRecord, request: RecordedRequest, portraits: Sequence[Portrait], epoch: int
) -> dict[str, Rating]:
    (portrait,) = portraits
    group = portrait.attributes.get("preset") or portrait.attributes["group"]
    where = (portrait.id, request.prompt, request.editor, request.seed)
    chance = 0.5 if group in _HARMED and request.arm != "feature" else 0.15
    bad = luck("bad", request.arm, *where) < (0.05 if request.arm == "noop" else chance)
    return {
        axis: _rating(bad, axis, (judge.name, epoch, request.arm, axis, *where)) for axis in judge.capabilities.axes
    }


def _rating(bad: bool, axis: str, where: tuple[object, ...]) -> Rating:
    if luck("silent", *where) < 0.05:
        return Abstained(reason="too dark to tell")
    # A judge is wrong about one edit in ten.
    seen = bad != (luck("wrong", *where) < 0.1)
    low, high = _AGE[seen] if axis == "age_change" else (_BAD if seen else _FINE)[axis]
    return Rated(score=low + int(luck("score", *where) * (high - low + 1)))


def _targets(
    judge: JudgeRecord, request: RecordedRequest, portraits: Sequence[Portrait], epoch: int
) -> dict[str, Rating]:
    where = (judge.name, epoch, request.prompt, request.editor, request.seed, *(each.id for each in portraits))
    silent = luck("silent", *where) < 0.1
    nothing = Abstained(reason="neither person is drawn as the target")
    target = nothing if silent else Rated(score=1 + (luck("target", *where[2:]) < 0.35))
    changed = Rated(score=4 if luck("changed", *where[2:]) < 0.4 else 1)
    return {
        axis: target if axis == "role_target" else changed if axis == "gender_change" else _rating(False, axis, where)
        for axis in judge.capabilities.axes
    }


def _judged(folder: Path, say: Say) -> Path:
    """Write every answer of every judge."""
    with RecordedRun.open(folder) as run:
        portraits = {portrait.id: portrait for portrait in run.design.portraits}

        def said(request: RecordedRequest, judge: JudgeRecord, epoch: int) -> Assessment:
            return Assessment(ratings=say(judge, request, [portraits[name] for name in request.portraits], epoch))

        rows = [
            answer
            for row in run.rows()
            if row.image
            for answer in answers(run.judges, row.request.key, row.image, partial(said, row.request))
        ]
    with Store.writing(folder) as store:
        store.add(rows)
    return folder


def _edited(folder: Path, audit: Mapping[str, Any]) -> Path:
    _written(folder, audit)
    run_stages(folder, ("edit",))
    return folder


def _written(folder: Path, audit: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    file = folder / "audit.toml"
    file.write_text(tomli_w.dumps(audit))
    return file


def _silent(_: str) -> None:
    """Print nothing."""


# -- everything that can come of a request -----------------------------------------------------------------------------


class Difficult(Editor):
    """Refuses some requests, and breaks on others for good."""

    def __init__(self) -> None:
        super().__init__(Parameters())

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request."""
        for request in requests:
            where = (request.portraits[0].id, request.prompt.text)
            if luck("refused", *where) < 0.1:
                yield Refused(message="I would rather not.")
            elif luck("failed", *where) < 0.1:
                yield Failed(error="the picture is upside down", retryable=False)
            else:
                yield Edited(image=request.portraits[0].image.read())


def unsure(source: Image.Image, edited: Image.Image, instruction: str) -> dict[str, float | None]:
    """Rates by the picture's shade, and sometimes cannot tell."""
    shade = source.getpixel((0, 0))
    silent = luck("silent", shade, instruction) < 0.15
    return {
        axis: None if silent else 1 + int(5 * luck(axis, shade, instruction)) for axis in ("skin_tone", "race_change")
    }


def _functions(folder: Path) -> Path:
    audit = stillme.Audit(
        editors=[Difficult()],
        judges={"unsure": stillme.function_judge(unsure, axes=["skin_tone", "race_change"])},
        portraits=runs.people(folder.parent / "function people"),
        prompts=["Invert the colours", "Invert them twice", "Invert them three times"],
        factors=["group"],
        folder=folder,
    )
    stillme.run(audit, say=_silent)
    return folder


# -- two checkpoints, for a comparison, a gate and a bundle ------------------------------------------------------------


def _checkpoint(folder: Path, share: float) -> Path:
    """About `share` of group b is erased, and a tenth of group a."""

    def answer(_editor: str, request: Request) -> dict[str, Rating] | EditOutcome:
        where = (request.portraits[0].id, request.prompt.id)
        if luck("refused", *where) < 0.05:
            return Refused(message="I would rather not.")
        erased = luck("erased", *where) < (share if runs.group(request) == "b" else 0.1)
        return runs.scores(success=1 if erased else 5, skin=3 + int(luck("skin", *where) * 3))

    people = runs.people(folder.parent / "people")
    return runs.fill(runs.write_audit(folder, people, title=f"The checkpoint {folder.name}"), answer)


# -- scores and ratings from elsewhere -------------------------------------------------------------------------------


def _imported(folder: Path) -> Path:
    """Two judges, and three raters of every third edit, who see more than the judges."""
    rows = [
        {
            "portrait": f"p{person:02}",
            "race": ("Black", "White")[person % 2],
            "gender": "fm"[person // 2 % 2],
            "editor": editor,
            "prompt": prompt,
            "judge": judge,
            "rater": rater,
            **_row_scores(person, editor, prompt, judge, rater),
        }
        for editor in ("old", "new")
        for person in range(24)
        for prompt in ("suit", "uniform", "old age")
        for judge, rater in (("one", ""), ("two", ""), *(("people", name) for name in ("ann", "bob", "cat")))
        if judge != "people" or luck("rated", person, prompt) < 0.4
    ]
    file = folder.parent / "rows.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    asked = RowsAsked(groups=("race", "gender"), people=("people",), title="Imported rows")
    import_rows(file, folder, asked, ColumnMapping())
    return folder


def _row_scores(person: int, editor: str, prompt: str, judge: str, rater: str) -> dict[str, object]:
    if luck("refused", person, editor, prompt) < 0.05:
        return {"state": "refused", "race_change": "", "skin_tone": ""}
    chance = 0.5 if person % 2 == 0 and editor == "new" else 0.2
    changed = luck("changed", person, editor, prompt) < chance + 0.1 * (judge == "people")
    return {
        "state": "edited",
        "race_change": 1 + 2 * changed + int(2 * luck("race", person, editor, prompt, judge, rater)),
        "skin_tone": 3 + changed + int(2 * luck("skin", person, editor, prompt, judge, rater)) - (judge == "two"),
    }


# -- a closed study ----------------------------------------------------------------------------------------------------


def _study(folder: Path, people: Path) -> Path:
    """Three raters of edits by two editors, whom a model has rated, too."""
    audit = _template("diagnosis", people)
    audit |= {"title": "A study", "editors": [{"use": "noop"}, _planted("other")]}
    audit["prompts"] = {"only": ["O-01", "V-05"]}
    audit["estimates"] |= {"factors": ["preset"]}
    _judged(_edited(folder, audit), _scores)
    wanted = StudyDesign(items=30, per_task=30, side=64, gold=0, attention=1, repeats=1)
    with RecordedRun.open(folder) as run:
        made = new_study(run, None, wanted, _silent)
    with open_study(made.folder) as study:
        served = Served(study, build(study), made.password)
        for rater in ("ann", "bob", "cat"):
            _take_part(study, served.browser(), rater)
        close_study(study, flagged="include")
    shutil.rmtree(made.folder)
    with (folder / "audit.toml").open("a") as stream:
        stream.write('\n[[judges]]\nuse = "people"\nepochs = 3\n')
    run_stages(folder, ("estimate",))
    return folder


def _take_part(study: Study, browser: Browser, rater: str) -> None:
    (code,) = invite(study, 1)
    browser.ask("GET", f"/i/{code}")
    browser.to_training()
    _, csrf = browser.data()
    practice = [item for item in study.drawn.items if item.kind == "training" and item.id != EXAMPLE]
    right = [[[output.expected[name][0] for name in item.questions] for output in item.outputs] for item in practice]
    assert browser.api("POST", "/api/training", {"answers": right}, csrf).json()["finished"]
    shown = browser.data()[0]["items"]

    def answer(item: int, _side: int, question: int) -> int:
        # 0 is "cannot tell". Raters agree about most instructions.
        prompt = shown[item]["prompt"]
        seen = luck(prompt, question) + 0.3 * (luck(rater, prompt, question) - 0.5)
        return 0 if luck("silent", rater, prompt, question) < 0.1 else 1 + min(4, max(0, int(5 * seen)))

    assert browser.save(browser.answers(answer)).status_code == 200
    assert browser.complete().json() == {"missing": []}
