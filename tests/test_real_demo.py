"""What `stillme demo --real` says, without its editors."""

from pathlib import Path

from stillme import audit as audits
from stillme.demo import REAL_AUDIT, RealResult, SkinGap
from stillme.editors.neural import stylizer
from stillme.types import Interval, NotEstimable


def test_the_real_audit_asks_each_editor_for_every_portrait_once(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(REAL_AUDIT)
    audit = audits.load(tmp_path)
    assert [named.name for named in audit.editors] == list(stylizer.STYLES)
    assert [audit.request_count(named) for named in audit.editors] == [84, 84, 84]


def test_the_result_shows_a_gap_or_why_there_is_none() -> None:
    known = Interval(value=27.3, low=25.4, high=29.2, confidence=0.95, method="")
    result = RealResult(
        report=Path("report.html"),
        gaps=(
            SkinGap(editor="ink", darkest="A", lightest="B", gap=known),
            SkinGap(editor="oil", darkest="A", lightest="B", gap=NotEstimable(reason="no rated edit")),
        ),
    )
    assert "+27.3  +25.4 to +29.2" in result.as_text()
    assert "no rated edit" in result.as_text()
    assert [row["value"] for row in result.as_json()["gaps"]] == [27.3, None]
    assert result.as_json()["gaps"][1]["reason"] == "no rated edit"
