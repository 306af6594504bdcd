"""Items are drawn evenly, tasks are mixed, pictures are blinded; study.toml and its page say what is wrong."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shlex
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stillme.api.pipeline import run_stages
from stillme.audit.config import JudgeSection
from stillme.cli.study import study_group
from stillme.core.errors import StillmeError
from stillme.runs import RecordedRun
from stillme.study import config, items
from stillme.study.candidates import OfferedItem, draw, draw_informative, share_out
from stillme.study.config import InvalidStudy, StudyConfig
from stillme.study.drawing import study_toml
from stillme.study.items import Drawn, Output, blind
from stillme.study.opening import open_study
from tests.records import prompt, small_audit
from tests.study.studies import change, draw_study, write_study


def grid(portraits: int, prompts: int, editors: int) -> list[OfferedItem]:
    """A whole audit's candidates: every portrait with every prompt and editor."""
    made = []
    for p, q, e in itertools.product(range(portraits), range(prompts), range(editors)):
        outputs = tuple(
            Output(file="", edit=f"{p}.{q}.{e}.{a}", strata={"editor": f"e{e}", "arm": str(a)}) for a in (0, 1)
        )
        groups = {"race": f"r{p % 7}", "gender": "fm"[p // 7 % 2]}
        made.append(OfferedItem(portrait=f"p{p}", groups=groups, prompt=prompt(f"q{q}"), outputs=outputs))
    return made


def test_a_draw_is_as_even_as_the_papers() -> None:
    picked = draw(grid(84, 20, 3), 500, np.random.default_rng(0))
    assert set(Counter(each.prompt.id for each in picked).values()) == {25}
    assert max(Counter(each.editors for each in picked).values()) - 500 / 3 < 8
    for factor in ("race", "gender"):
        counts = Counter(each.groups[factor] for each in picked)
        assert max(counts.values()) - min(counts.values()) <= 2, factor
    portraits = Counter(each.portrait for each in picked)
    assert max(portraits.values()) - min(portraits.values()) <= 2
    assert len({made.edit for each in picked for made in each.outputs}) == 1000


def test_an_informative_draw_takes_disputed_items_likelier_and_every_cell_its_share() -> None:
    stream = np.random.default_rng(0)
    offered = [replace(each, apart=float(n % 5 == 0)) for n, each in enumerate(grid(84, 20, 3))]
    picked = draw_informative(offered, 500, stream)
    assert len(picked) == 500
    disputed = [each for each in picked if each.apart == 1]
    assert 220 < len(disputed) < 280, "a fifth of all, four times likelier: half of the draw"
    chances = {round(each.chance / disputed[0].chance, 6) for each in picked}
    assert min(chances) < 0.3
    assert sum(1 / each.chance for each in picked) == pytest.approx(len(offered), rel=0.1)
    for factor in ("race", "gender"):
        counts = Counter(each.groups[factor] for each in picked)
        assert max(counts.values()) - min(counts.values()) <= 2, factor


def test_items_that_share_edits_have_no_known_chance() -> None:
    offered = grid(2, 2, 1)
    with pytest.raises(StillmeError, match="--compare none"):
        draw_informative([*offered, offered[0]], 2, np.random.default_rng(0))


def test_tasks_hold_all_prompts_so_that_rater_and_prompt_are_not_confounded() -> None:
    stream = np.random.default_rng(0)
    picked = draw(grid(84, 20, 3), 500, stream)
    tasks = share_out(picked, 50, stream)
    for task in range(10):
        mine = [each for each, at in zip(picked, tasks, strict=True) if at == task]
        assert len(mine) == 50
        assert set(Counter(each.prompt.id for each in mine).values()) <= {2, 3}
        races = Counter(each.groups["race"] for each in mine)
        assert len(races) == 7
        assert len({each.editors for each in mine}) == 3


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 99))
def test_any_draw_takes_each_edit_once_and_fills_tasks_evenly(count: int, size: int, seed: int) -> None:
    stream = np.random.default_rng(seed)
    picked = draw(grid(5, 3, 2), count, stream)
    assert len(picked) == min(count, 30)
    edits = [made.edit for each in picked for made in each.outputs]
    assert len(edits) == len(set(edits))
    tasks = Counter(share_out(picked, size, stream))
    assert max(tasks.values()) <= size
    assert max(tasks.values()) - min(tasks.values()) <= 1


@pytest.mark.parametrize("shape", [(40, 40), (100, 30), (30, 100), (900, 1400)])
def test_blinded_pictures_have_one_size_and_no_metadata(shape: tuple[int, int]) -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (*shape, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(blind(rgb, 128))) as made:
        assert (made.format, made.size, made.mode) == ("JPEG", (128, 128), "RGB")
        assert not made.getexif()
        assert set(made.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


@pytest.fixture
def run(two_editors: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(two_editors, folder)
    return folder


def test_two_editors_are_compared_where_there_is_no_mitigation(run: Path) -> None:
    made = draw_study(run, items=12, per_task=6)
    assert made.drawn.design["compare"] == "editors"
    real = [item for item in made.drawn.items if item.kind == "real"]
    assert len(real) == 12
    for item in real:
        assert {output.strata["editor"] for output in item.outputs} == {"noop", "other"}
        assert {output.strata["arm"] for output in item.outputs} == {"baseline"}
        aging = item.strata["prompt"] == "V-05"
        assert ("age_accuracy" in item.questions) == aging
    kinds = Counter((item.kind, item.batch) for item in made.drawn.items)
    for task in (0, 1):
        assert [kinds[kind, task] for kind in ("real", "gold", "attention", "repeat")] == [6, 2, 2, 2]
    assert kinds["training", -1] == 3, "an example in the guide, and two to practise"
    sizes = {path.stat().st_size for path in (made.folder / "pictures").iterdir()}
    assert sizes == {made.picture_bytes}
    with open_study(made.folder) as study:
        assert study.is_open


def test_baseline_and_feature_arm_are_compared_where_both_exist(tmp_path: Path) -> None:
    small_audit(tmp_path, arms=["baseline", "feature"], prompts=["O-01"], limit=2, editors=[{"use": "planted"}])
    run_stages(tmp_path, ("edit",))
    made = draw_study(tmp_path, items=2, per_task=2)
    assert made.drawn.design["compare"] == "arms"
    for item in made.drawn.items:
        if item.kind == "real":
            assert [output.strata["arm"] for output in item.outputs] == ["baseline", "feature"]
            # What the arm made of the prompt would tell which arm it is.
            assert item.prompt.startswith("Present the person as a senior executive")


def test_the_same_seed_draws_the_same_items(run: Path, tmp_path: Path) -> None:
    drawn = [
        draw_study(run, tmp_path / name, items=4, per_task=2, seed=seed).drawn.items
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_one_picture_at_a_time_if_wished(run: Path) -> None:
    made = draw_study(run, items=5, per_task=5, compare="none")
    assert {len(item.outputs) for item in made.drawn.items} == {1}


def test_a_comparison_that_the_run_cannot_give_is_refused(run: Path) -> None:
    with pytest.raises(StillmeError, match="`baseline` and `feature`"):
        draw_study(run, compare="arms")


def test_a_study_is_never_drawn_over_another(run: Path) -> None:
    draw_study(run, items=3)
    with pytest.raises(StillmeError, match="already holds a study"):
        draw_study(run, items=3)


def test_disputed_items_come_first_if_wished(write_audit: Callable[..., Path]) -> None:
    # Two judges that differ by four points on half of the pictures.
    judges = (
        'use = "scripted"\n[[judges]]\nuse = "scripted"\nname = "strict"\n'
        "[judges.parameters]\nscores = {edit_success = 1, skin_tone = 3}\nshare = 0.5\n"
    )
    folder = write_audit(judge=judges, prompts='["O-01", "O-02", "O-03", "O-04"]')
    run_stages(folder, ("edit", "judge"))
    disputed = draw_study(folder, folder / "one", items=6, choose="disputed")
    found = RecordedRun.open(folder).results
    (strict,) = [each for each in found.scores if (each.judge, each.axis) == ("strict", "edit_success")]
    value = dict(zip(found.edits.keys, strict.value, strict=True))
    real = [item for item in disputed.drawn.items if item.kind == "real"]
    assert {value[output.edit] for item in real for output in item.outputs} == {1.0}


# -- study.toml -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("raters = 3", "rater = 3", r"line \d+, rater: unknown key 'rater'. Did you mean 'raters'"),
        ("raters = 3", "raters = 0", r"line \d+, raters: should be greater than or equal to 1"),
        ('"skin_tone"', '"skin"', r"line \d+, questions\[1\]: no question 'skin'. Did you mean 'skin_tone'"),
        ("[consent]", "[consent]\nwithdraw_until = 'soon'", r"line \d+, consent.withdraw_until: .*date"),
        ('completed = "DONE1"', 'completed = ""', "at least `completed` and `other`"),
        ('completed = "DONE1"', 'completed = "DO NE"', "codes are letters and digits"),
        ("[pay]", "[pay", "is not TOML"),
        ("guide = '''", "guide = '''\n![scale](https://elsewhere.example/x.png)\n", "image 'https://elsewhere"),
    ],
)
def test_study_toml_says_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, said: str) -> None:
    write_study(tmp_path)
    change(tmp_path, old, new)
    with pytest.raises(InvalidStudy, match=said):
        config.load(tmp_path)


def test_low_pay_is_noted(tmp_path: Path) -> None:
    write_study(tmp_path)
    assert not list(config.warnings(config.load(tmp_path)))
    text = (tmp_path / "study.toml").read_text()
    amount = next(line for line in text.splitlines() if line.startswith("amount"))
    change(tmp_path, amount, "amount = 0.10")
    notes = " ".join(config.warnings(config.load(tmp_path)))
    assert "Prolific's floor" in notes
    assert "own floor" in notes


def test_damaged_files_are_said_in_one_sentence(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "items.json").write_text("{")
    with pytest.raises(StillmeError, match="damaged"):
        items.read(tmp_path)
    (tmp_path / "secrets.json").write_text(json.dumps({"naming": "x"}))
    from stillme.study import keys

    with pytest.raises(StillmeError, match="damaged"):
        keys.load(tmp_path)
    (tmp_path / "secrets.json").unlink()
    with pytest.raises(StillmeError, match="Copy it from"):
        keys.load(tmp_path)


BLIND = {"items": 4, "per_task": 4, "compare": "none"}
TOLD = BLIND | {"disclosure": "paper"}


def labelled(tmp_path: Path, portraits: Path, *, age: str = "20s") -> Path:
    """A run of portraits with race, gender and age."""
    table = portraits / "portraits.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=[*rows[0], "race", "gender", "age"])
        writer.writeheader()
        writer.writerows(row | {"race": "Indian", "gender": "Female", "age": age} for row in rows)
    source, estimates = {"source": str(portraits)}, {"factors": ["group"]}
    folder = small_audit(tmp_path / "run", portraits=source, prompts=["O-01"], estimates=estimates)
    run_stages(folder, ("edit",))
    return folder


def test_only_told_raters_read_the_labels(tmp_path: Path, portraits: Path):
    run = labelled(tmp_path, portraits)
    blind, told = (draw_study(run, tmp_path / name, **wanted).drawn for name, wanted in (("b", BLIND), ("t", TOLD)))
    real = [item for item in told.items if item.kind == "real"]
    assert all(item.prompt.endswith("(Original: race Indian, gender Female, age 20s.)") for item in real)
    assert told.design["disclosure"] == "paper"
    assert not any("Indian" in item.prompt for item in blind.items)


def test_labels_that_are_missing_are_named_before_anything_is_written(tmp_path: Path, portraits: Path):
    run = labelled(tmp_path, portraits, age="")
    with pytest.raises(StillmeError, match=r"lack age\. Leave it out"):
        draw_study(run, tmp_path / "told", **TOLD)
    assert not (tmp_path / "told").exists()


PAGE = (Path(__file__).parents[2] / "docs" / "study.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
INLINE = [shlex.split(words) for words in re.findall(r"`(stillme study [^`]+)`", PAGE)]


@pytest.mark.parametrize("words", [*COMMANDS, *INLINE], ids=" ".join)
def test_every_command_of_the_page_parses(words: list[str]) -> None:
    assert words[:2] == ["stillme", "study"]
    command, rest = study_group.commands[words[2]], words[3:]
    command.make_context(words[2], list(rest))


def test_every_option_that_the_page_names_exists() -> None:
    known = {name for command in study_group.commands.values() for option in command.params for name in option.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= known


def test_the_examples_are_valid() -> None:
    (judge,) = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)[0])["judges"]
    JudgeSection.model_validate(judge)


def test_a_new_study_toml_shows_every_setting() -> None:
    drawn = Drawn(study="x", run="run", audit="", design={}, items=())
    written = tomllib.loads(study_toml(drawn, recruit="prolific"))
    config = StudyConfig.model_validate(written)
    rare = {"limits"}
    assert set(written) >= set(StudyConfig.model_fields) - rare
    for name in ("pay", "checks", "texts", "recruiting"):
        assert set(written[name]) == set(type(getattr(config, name)).model_fields)
    assert isinstance(study_group, click.Group)
