"""A plan says what a run would refuse, and how long edits took or are said to take."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from stillme import audit
from stillme.api.pipeline import RunOptions, run_stages
from stillme.audit.loading import refusals
from stillme.core import images
from stillme.core.errors import InvalidAudit
from stillme.editors.diffusion.machine import Gpu
from stillme.findings.plan import PlanOptions, plan_audit
from stillme.findings.plan.costs import published
from stillme.judges.given import Scripted
from stillme.portraits import portraits
from tests.editors.hosted.loopback import Says, serving

Write = Callable[..., Path]


def test_what_run_refuses_is_listed_and_does_not_fail_the_plan(write_audit: Write):
    folder = write_audit('use = "unready"')
    planned = plan_audit(folder)
    assert any("no_such_module is not installed" in sentence for sentence in planned.obstacles)
    assert "Would be refused on this machine" in planned.as_text()
    assert plan_audit(write_audit()).obstacles == ()


def test_a_missing_key_does_not_hide_a_setting_that_the_model_rejects(diagnosis: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pydantic_ai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = diagnosis / "audit.toml"
    head, _, tail = file.read_text().rpartition('profile = "paper"')
    file.write_text(f'{head}profile = "paper"\ntemperature = 0.1{tail}')
    refused = plan_audit(diagnosis).obstacles
    assert any("OPENAI_API_KEY is not set" in sentence for sentence in refused)
    assert any("ignores `temperature = 0.1`" in sentence for sentence in refused)
    assert any("`python` is missing: Step1X runs in its own environment" in sentence for sentence in refused)


def test_a_budget_that_cannot_be_kept_is_said_and_an_unknown_price_is_never_zero(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch
):
    # A class of its own: what a class has is remembered once somebody asked whether it is `Priced`.
    unpriced = type("Unpriced", (Scripted,), {"expected_dollars": lambda _: None})
    monkeypatch.setattr("stillme.judges.given.Scripted", unpriced)
    planned = plan_audit(write_audit(extra="[budget]\ndollars = 5"))
    assert any("$5.00 cannot be kept: the price of judge 'scripted'" in line for line in planned.obstacles)
    assert "Total cost unknown: no price for scripted" in planned.as_text()
    assert "$0.00" not in planned.as_text()
    assert plan_audit(write_audit()).obstacles == ()


CARD = Gpu(name="NVIDIA A100", total_gb=80, free_gb=80)


def write_editor(folder: Path, use: str, parameters: str) -> Path:
    (folder / "audit.toml").write_text(
        f'[[editors]]\nuse = "{use}"\n[editors.parameters]\n{parameters}\n[[judges]]\nuse = "scripted"\n'
    )
    return folder


@pytest.mark.parametrize(
    ("parameters", "cards", "words"),
    [
        ("", [CARD], "it needs about 112 GB, and NVIDIA A100 has 80 GB"),
        ("", [], "no NVIDIA GPU is seen"),
        ('offload = "model"', [CARD], ""),
        ('device = "cpu"', [], ""),
        ('repo = "WEIGHTS"', [], ""),
    ],
)
def test_plan_run_and_doctor_share_one_check_of_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str, cards: list[Gpu], words: str
):
    pytest.importorskip("diffusers")
    monkeypatch.setattr("stillme.editors.diffusion.machine.gpus", lambda: list(cards))
    monkeypatch.setattr("stillme.editors.diffusion.machine.no_space", lambda *_: iter(()))
    folder = write_editor(tmp_path, "flux2-dev", parameters.replace("WEIGHTS", str(tmp_path)))

    def of_the_gpu(sentences: Iterable[object]) -> list[str]:
        return [text for text in map(str, sentences) if "GB" in text or "GPU is seen" in text]

    planned = of_the_gpu(plan_audit(folder).obstacles)
    refused = of_the_gpu(refusals(folder / "audit.toml"))
    (named,) = audit.load(folder, ready=False).editors
    doctored = of_the_gpu(named.editor.lacking(online=False))
    assert planned == refused
    assert (len(planned), len(doctored)) == ((1, 1) if words else (0, 0)), (planned, doctored)
    assert not words or (words in planned[0] and words in doctored[0])


def priced(folder: Path, price: float, url: str, revision: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    return write_editor(
        folder,
        "http",
        f'url = "{url}"\nprice = {price}\nrevision = "{revision}"\n'
        'template = { prompt = "{instruction}", image = "{source}" }',
    )


def test_a_price_in_the_audit_is_never_overruled_and_every_figure_has_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))
    picture = images.encode_png(np.zeros((4, 4, 3), dtype=np.uint8))
    with serving(lambda server, asked: Says(body=picture)) as server:
        cheap = priced(tmp_path / "cheap", 0.001, server.url)
        run_stages(cheap, ("edit",), RunOptions(limit=2))
        for revision in ("", "another"):
            dear = plan_audit(priced(tmp_path / "dear", 2.5, server.url, revision))
            (bill,) = dear.bills.editors
            assert bill.dollars == pytest.approx(bill.calls * 2.5)
            assert "$2.5 each, as the audit says" in bill.note
            assert (bill.hours is None) == bool(revision), "a speed counts for the same specification only"
            assert revision or f"measured in {cheap}" in bill.note


def test_roles_without_other_prompts_have_no_cells_to_sample(tmp_path: Path):
    (tmp_path / "audit.toml").write_text(
        '[prompts]\nsets = ["roles"]\n[roles]\n[[editors]]\nuse = "noop"\n[[judges]]\nuse = "scripted"\n'
        "[sample]\nsize = 10\n"
    )
    with pytest.raises(InvalidAudit, match="has no cells to draw from"):
        plan_audit(tmp_path)


def test_any_run_on_this_machine_tells_how_long_an_edit_takes(
    write_audit: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))
    folder, new = write_audit(), tmp_path / "new"
    assert plan_audit(folder).bills.editors[0].hours is None
    run_stages(folder, ("edit",))
    assert plan_audit(folder).bills.editors[0].hours is not None
    told = plan_audit(folder, PlanOptions(seconds={"noop": 36.0})).bills.editors[0]
    assert told.hours == pytest.approx(12 * 36 / 3600), "what the user says comes first"
    new.mkdir()
    shutil.copy(folder / "audit.toml", new)
    assert plan_audit(new).bills.editors[0].hours is not None
    folder.rename(tmp_path / "moved")
    assert plan_audit(new).bills.editors[0].hours is None, "a run that is gone is not asked"


def test_a_published_time_is_a_range_with_its_source_and_no_sum(diagnosis: Path):
    bills = plan_audit(diagnosis).bills
    step1x = bills.editors[2]
    assert step1x.hours is None
    assert bills.gpu_hours is None
    assert (
        "10 to 23 h, published: 22 s on H800, 50 s on A800 (https://github.com/stepfun-ai/Step1X-Edit)" in step1x.note
    )
    assert "10 to 23 h, for scale, step1x-edit-v1p2: published: 22 s on H800" in bills.editors[0].note
    assert all(known["source"].startswith("https://") for known in published().values())


def test_an_editor_on_the_cpu_is_planned_without_a_gpu(tmp_path: Path):
    on_gpu, on_cpu = (
        plan_audit(write_editor(tmp_path, "flux2-dev", parameters)) for parameters in ("", 'device = "cpu"')
    )
    assert "GPU with about 112 GB" in on_gpu.as_text()
    assert on_gpu.bills.editors[0].gpu
    assert "GPU with" not in on_cpu.as_text()
    assert "GPU hours" not in on_cpu.as_text()


def test_a_plan_counts_the_files_of_a_folder_as_a_run_does(tmp_path: Path):
    people = [portrait.id for portrait in portraits()]
    for person in people[:60]:
        (tmp_path / f"{person}_O-01.png").write_bytes(b"not looked at")
    (tmp_path / "audit.toml").write_text(
        '[portraits]\nsource = "synthetic"\n[prompts]\nsets = ["diagnostic"]\nonly = ["O-01", "O-02"]\n'
        f'[[editors]]\nuse = "folder"\n[editors.parameters]\nfolder = "{tmp_path}"\n'
        'pattern = "{portrait}_{prompt}.png"\n'
        '[[judges]]\nuse = "scripted"\n'
    )
    planned = plan_audit(tmp_path)
    sentence = f"folder: 60 of 168 files found; missing: O-02 ({len(people)}), O-01 ({len(people) - 60})."
    assert sentence in planned.as_text()
    assert planned.as_json()["notes"] == [sentence]
    assert planned.obstacles == (), "what is there can be judged"
