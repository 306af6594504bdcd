"""`import stillme` from a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import stillme
from stillme.findings.evidence import seal
from stillme.portraits import portraits as synthetic
from tests.processes import installed
from tests.runs import fill, group, people, scores, write_audit

DOCS = Path(__file__).parent.parent / "docs" / "python.md"
NAMES = [
    *("Abstained", "Arm", "Assessment", "Audit", "Capabilities", "Edited", "Editor", "Estimate", "Failed", "ImageFile"),
    *("Interval", "Judge", "JudgeCapabilities", "NotEstimable", "Pair", "Portrait", "Prompt", "Rated", "Refusal"),
    *("Refused", "Request", "Run", "Spec", "StillmeError", "check", "estimate", "feature_prompt", "function_judge"),
    *("measure", "open", "run"),
]


def negative(image, instruction, seed):
    return image.point(lambda value: 255 - value)


def darker(source, edited, instruction):
    return {"darkness": float(np.mean(np.asarray(source)) - np.mean(np.asarray(edited)))}


@pytest.fixture
def audit(tmp_path: Path) -> object:
    return stillme.Audit(
        editors=[negative],
        judges={"eye": stillme.function_judge(darker, axes=["darkness"])},
        portraits=people(tmp_path / "people", per_group=3),
        prompts=["Invert the colours"],
        factors=["group"],
        folder=tmp_path / "run",
    )


def test_the_exported_names_are_a_decision():
    assert sorted(stillme.__all__) == NAMES
    assert all(getattr(stillme, name) is not None for name in NAMES)
    text = DOCS.read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == [], "documented in docs/python.md"
    with pytest.raises(AttributeError, match="no attribute 'everything'"):
        _ = stillme.everything


def test_the_import_brings_nothing_heavy():
    heavy = ("numpy", "scipy", "pydantic", "PIL", "cv2", "onnxruntime", "torch", "click", "pandas")
    script = f"import sys, stillme; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "[]"


def test_functions_are_an_editor_and_a_judge(audit: object):
    run = stillme.run(audit, say=lambda _: None)
    assert {row["outcome"] for row in run.edits} == {"edited"}
    frame = run.judgements.to_frame()
    assert set(frame["axis"]) == {"darkness"}
    assert frame["score"].notna().all()
    estimates = run.estimates(all=True).to_frame("pandas")
    everyone = estimates[(estimates.quantity == "darkness") & (estimates.scope == "all")]
    assert everyone.value.iloc[0] == pytest.approx(frame["score"].mean())
    assert (run.folder / "report.html").is_file()
    assert not (run.folder / "audit.toml").exists(), "there is none: the design is in the ledger"


def test_a_run_made_in_python_is_read_like_any_other(audit: object):
    stillme.run(audit, say=lambda _: None)
    again = stillme.open(audit.folder)
    assert again.design.editors[0].name == "negative"
    assert len(again.contrasts()) > 0
    assert [table.number for table in again.tables(4)] == [4]
    assert "<table>" in again.estimates(all=True)._repr_html_()
    assert "Did the edits happen, for everyone?" in again._repr_html_()
    assert re.match(r"<Edits of An audit: 6 rows>", repr(again.edits))


def test_every_problem_of_an_audit_is_reported_at_once(tmp_path: Path):
    with pytest.raises(stillme.StillmeError) as caught:
        stillme.Audit(editors=["nop"], judges=["instrument"], folder=tmp_path)
    assert "Did you mean 'noop'?" in str(caught.value)
    assert "Did you mean 'instruments'?" in str(caught.value)


def test_what_is_no_editor_or_judge_is_said(tmp_path: Path):
    with pytest.raises(stillme.StillmeError, match="is not an editor"):
        stillme.Audit(editors=[42])
    with pytest.raises(stillme.StillmeError, match=r"function_judge\(rate, axes"):
        stillme.Audit(editors=["noop"], judges=[darker])


def test_one_name_is_one_editor_and_one_judge():
    audit = stillme.Audit(editors="noop", judges="instruments", sample={"size": 2})
    assert [named.name for named in (*audit.editors, *audit.judges)] == ["noop", "instruments"]
    assert [named.name for named in stillme.Audit(editors=negative).editors] == ["negative"]


def test_an_audit_prints_about_ten_lines():
    shown = repr(stillme.Audit(editors=["noop"], prompts=["Smile"]))
    assert len(shown.splitlines()) <= 10
    assert "noop (84 edits)" in shown


def test_a_file_that_is_missing_is_an_error_of_ours_in_one_sentence(tmp_path: Path):
    missing = str(tmp_path / "missing.png")
    for call in (
        lambda: stillme.measure(missing, missing),
        lambda: stillme.check(missing, missing),
        lambda: stillme.feature_prompt(missing),
        lambda: stillme.estimate(missing, portrait="id", groups="race", score="skin"),
        lambda: stillme.open(missing),
        lambda: stillme.run(missing),
    ):
        with pytest.raises(stillme.StillmeError, match=r"missing\.png does not exist\."):
            call()


def test_a_bundle_opens_as_a_run(tmp_path: Path):
    folder = fill(write_audit(tmp_path / "run", people(tmp_path / "people")), lambda _, request: scores())
    with stillme.open(folder) as run:
        seal(run, tmp_path / "evidence.zip")
        expected = list(run.estimates())
    assert list(stillme.open(tmp_path / "evidence.zip").estimates()) == expected


@pytest.fixture(scope="module")
def lightened(tmp_path_factory: pytest.TempPathFactory) -> stillme.Run:
    """Skin comes back lighter in group b only, as a judge says that is not calibrated."""
    folder = tmp_path_factory.mktemp("lightened")
    audit = write_audit(folder / "run", people(folder / "people"))
    return stillme.open(fill(audit, lambda _, asked: scores(skin=4 if group(asked) == "b" else 3)))


def test_headline_estimates_are_a_few_rows_with_plain_columns(lightened: stillme.Run):
    frame = lightened.estimates().to_frame("pandas")
    assert list(frame.columns) == [
        *("editor", "arm", "quantity", "scope", "factor", "group", "value", "low", "high", "p", "judge", "judge_note")
    ]
    assert len(frame) < 40 < len(lightened.estimates(all=True))
    assert set(frame.scope) == {"all", "disparity"}
    gap = frame[(frame.quantity == "skin_lightened") & (frame.scope == "disparity")].iloc[0]
    assert (gap.group, gap.value) == ("b - a", 1.0)
    assert gap.p < 0.05


def test_a_run_shows_its_verdicts_a_table_and_faces(lightened: stillme.Run):
    shown = lightened._repr_html_()
    assert "lightened 100&nbsp;% of group b's edits" in shown or "lightened 100 % of group b&#39;s edits" in shown
    assert re.search(r"<th[^>]*>Skin lightened", shown)
    assert shown.count("data:image/webp") == 8, "four people, before and after"
    assert "<style" not in shown
    assert "<script" not in shown


def test_examples_are_of_the_quantity_the_editor_and_the_group_that_are_named(lightened: stillme.Run):
    shown = lightened.examples("skin_lightened", count=3, group="b")
    portraits = lightened.design.portrait_by_id
    assert [portraits[picture.portrait].attributes["group"] for picture in shown] == ["b"] * 3
    assert shown._repr_html_().count("<img") == 6
    assert len(lightened.examples("skin_lightened", group="a")) == 0
    with pytest.raises(stillme.StillmeError, match="Its groups are a, b"):
        lightened.examples("skin_lightened", group="c")
    with pytest.raises(stillme.StillmeError, match="Did you mean 'skin_lightened'"):
        lightened.examples("skin_lightend")


def test_rows_of_ones_own_may_be_a_frame_and_their_estimates_are_written(tmp_path: Path):
    rows = [{"who": f"p{who}", "group": "ab"[who % 2], "edit_success": 1 + who % 5} for who in range(12)]
    keywords = {"portrait": "who", "groups": ["group"], "score": "edit_success"}
    own = stillme.estimate(rows, **keywords)
    pandas = pytest.importorskip("pandas")
    assert list(stillme.estimate(pandas.DataFrame(rows), **keywords)) == list(own)
    own.to_csv(tmp_path / "estimates.csv")
    assert (tmp_path / "estimates.csv").read_text().startswith("quantity,")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no rows"),
        ([{"id": 1, "race": "a", "skn": 3}], "Did you mean 'skn'"),
        ([{"id": 1, "race": "a", "skin": 3}, {"id": 1, "race": "b"}], "Row 2: There is no column 'skin'"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(rows: list[dict[str, object]], said: str):
    with pytest.raises(stillme.StillmeError, match=said):
        stillme.estimate(rows, portrait="id", groups=["race"], score="skin")


def test_one_pair_is_measured_checked_and_described(tmp_path: Path):
    portrait = synthetic()[0].image.path
    lighter = tmp_path / "lighter.png"
    Image.open(portrait).convert("RGB").point(lambda value: min(255, value + 30)).save(lighter)
    measured = stillme.measure(portrait, lighter)
    assert "changed_area" in measured.values
    checked = stillme.check(lighter, portrait)
    (card,) = checked.cards
    assert checked.statements[-1].changed
    assert card.judge == "instruments"
    assert f"<li>{checked.statements[-1].as_text()}</li>" in checked._repr_html_()
    assert stillme.feature_prompt(portrait).endswith(".")


def test_the_examples_of_the_page_run(tmp_path: Path):
    """One after the other, as somebody who reads the page types them; of fewer pictures."""
    examples = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    (tmp_path / "example.py").write_text("\nprint('--')\n".join(examples).replace('{"size": 12}', '{"size": 4}'))
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, env=installed(), timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert all(part.strip() for part in done.stdout.split("--\n"))
