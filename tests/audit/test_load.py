"""A mistake in audit.toml is found before anything runs, with its place and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillme import audit
from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import InvalidAudit, StillmeError

Write = Callable[..., Path]


def problems(folder: Path, **options: bool) -> list[str]:
    with pytest.raises(InvalidAudit) as caught:
        audit.load(folder, **options)
    return [str(problem) for problem in caught.value.problems]


def changed(folder: Path, old: str, new: str) -> Path:
    """The folder with something else in its audit.toml, or before all that is there."""
    file = folder / "audit.toml"
    text = file.read_text()
    file.write_text(text.replace(old, new) if old else new + text)
    return folder


def test_a_sound_audit_loads(write_audit: Write):
    loaded = audit.load(write_audit())
    assert [portrait.id for portrait in loaded.portraits] == [f"p{index}" for index in range(6)]
    assert loaded.request_count(loaded.editors[0]) == len(list(loaded.requests(loaded.editors[0]))) == 12


def test_every_problem_is_reported_at_once_with_its_line(write_audit: Write, portraits: Path):
    (portraits / "p3.png").write_bytes(b"not a picture")
    folder = write_audit(
        editor='use = "planted"\nseeds = ["x"]\n[editors.parameters]\nbay = "group"\n[[editors]]\nuse = "unready"',
        judge='use = "scriptd"',
        prompts='["O-99"]',
        extra="[buget]\ndollars = 1",
    )
    found = problems(folder)
    text = (folder / "audit.toml").read_text().splitlines()

    def line(of: str) -> int:
        return next(number for number, line in enumerate(text, start=1) if of in line)

    expected = [
        f"line {line('buget')}, buget: unknown key 'buget'. Did you mean 'budget'?",
        f"line {line('seeds')}, editors[0].seeds[0]: should be a valid integer",
        "p3.png is not a picture",
        f"line {line('only')}, prompts.only: no prompt 'O-99'.",
        f"line {line('scriptd')}, judges[0].use: Unknown judge 'scriptd'. Did you mean 'scripted'?",
        "'unready': no_such_module is not installed: run `pip install \"stillme[imaginary]\"`",
        "'unready': STILLME_TEST_NO_SUCH_KEY is not set",
    ]
    for sentence in expected:
        assert any(sentence in problem for problem in found), (sentence, found)
    lines = [int(problem.split(",")[0].removeprefix("line ")) for problem in found]
    assert lines == sorted(lines)


def test_a_plugins_own_parameters_are_checked_at_their_place(write_audit: Write):
    (found,) = problems(write_audit('use = "planted"\n[editors.parameters]\nby = "group"\ngroups.a = { erasur = 1 }'))
    assert "editors[0].parameters.groups.a.erasur: unknown key 'erasur'. Did you mean 'erasure'?" in found


@pytest.mark.parametrize(
    ("editor", "sentence"),
    [
        (
            'use = "planted"\nparameters = { by = "gruop" }',
            "no portrait has the attribute 'gruop'. Did you mean 'group'?",
        ),
        (
            'use = "planted"\nparameters = { by = "group", groups = { z = {} } }',
            "no portrait has group = 'z'; known: a, b",
        ),
        ('use = "planted"\nparameters = { groups = { z = {} } }', "`groups` needs `by`"),
        ('use = "planted"\nparameters = { everyone = { erasure = 2 } }', "should be less than or equal to 1, not 2"),
        ('use = "planted"\nparameters = { recolour = "hair" }', "'hair' is not allowed; write 'clothes'"),
        ('use = "noop"\n[[editors]]\nuse = "noop"', "a second one is called 'noop'"),
        ('use = "noop"\n[[editors]]\nuse = "noop"\nname = "b"', "'b' is the same editor as 'noop'"),
        ('use = "noop"\nseeds = [1, 1]', "names a seed twice"),
        ('name = "nameless"', "'use' is missing; add it"),
    ],
)
def test_editor_mistakes_are_explained(write_audit: Write, editor: str, sentence: str):
    assert any(sentence in problem for problem in problems(write_audit(editor))), problems(write_audit(editor))


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ('reference = { group = "c" }', "no portrait has group = 'c'; known: a, b"),
        ("confidence = 2", "should be less than or equal to 0.999"),
        ('[ensemble]\nrule = "avrage"', "'avrage' is not allowed; write 'mean', 'paper'"),
        ('[executor]\nkind = "slurm"', "'slurm' is not allowed; write 'local' or 'ray'"),
        ("[budget]\ndollars = -1", "should be greater than or equal to 0, not -1"),
    ],
)
def test_other_mistakes_are_explained(write_audit: Write, extra: str, sentence: str):
    assert any(sentence in problem for problem in problems(write_audit(extra=extra)))


def test_portraits_that_do_not_exist_are_explained(write_audit: Write):
    folder = changed(write_audit(), "portraits]\nsource = ", "portraits]\nsource = './nowhere' # ")
    assert any("is not a folder" in problem for problem in problems(folder))
    changed(folder, "./nowhere", "syntetic")
    assert any("neither a folder nor one of the sets" in problem for problem in problems(folder))


def test_an_arm_that_does_not_exist_is_refused(write_audit: Write):
    (problem,) = problems(changed(write_audit(), "", 'arms = ["features"]\n'))
    assert "arms" in problem
    assert "feature" in problem


def test_toml_that_is_none_says_where(tmp_path: Path):
    (tmp_path / "audit.toml").write_text("title = \n")
    assert "is not TOML" in problems(tmp_path)[0]
    assert "line 1" in problems(tmp_path)[0]


def test_a_missing_quote_and_a_file_of_another_kind_are_named(tmp_path: Path):
    (tmp_path / "audit.toml").write_text('title = "x\narms = []\n')
    assert problems(tmp_path) == ["is not TOML: line 1: a closing quotation mark is missing"]
    (tmp_path / "audit.yaml").write_text("title: x\n")
    with pytest.raises(StillmeError, match=r"is not an audit. Name a folder that has an audit\.toml, or a file that"):
        audit.load(tmp_path / "audit.yaml")


@pytest.mark.parametrize(("written", "hint"), [("rage", ""), ("gruop", " Did you mean 'group'?")])
def test_an_unrelated_factor_is_not_proposed(write_audit: Write, written: str, hint: str):
    file = changed(write_audit(), '["group"]', f'["{written}"]') / "audit.toml"
    assert f"no portrait has the attribute {written!r}.{hint} Known: " in problems(file)[0]


def test_a_folder_without_an_audit_says_how_to_begin(tmp_path: Path):
    with pytest.raises(StillmeError, match="stillme new"):
        audit.load(tmp_path)


def test_looking_at_a_run_needs_no_keys(write_audit: Write):
    loaded = audit.load(write_audit('use = "unready"'), ready=False)
    assert loaded.editors[0].name == "unready"


def test_the_noop_arm_asks_once_per_portrait(write_audit: Write):
    loaded = audit.load(changed(write_audit(), "", 'arms = ["baseline", "noop"]\n'))
    requests = list(loaded.requests(loaded.editors[0]))
    assert len(requests) == 6 * (2 + 1)
    assert {request.instruction for request in requests if request.arm == "noop"} == {
        "Return the photo exactly as it is. Do not change anything."
    }


def test_the_hash_names_what_changes_rows_and_nothing_else(write_audit: Write):
    plain = audit.load(write_audit()).hash
    assert audit.load(write_audit(extra="[budget]\ndollars = 5\n[executor]\nworkers = 1")).hash == plain
    assert audit.load(write_audit(prompts='["O-01"]')).hash != plain


def test_choosing_portraits_by_attribute_and_number(write_audit: Write):
    folder = changed(write_audit(), "[prompts]", 'only = { group = "b" }\nlimit = 2\n[prompts]')
    assert [portrait.id for portrait in audit.load(folder).portraits] == ["p1", "p3"]


def test_a_run_kept_elsewhere_is_usable_without_its_origin(write_audit: Write, tmp_path: Path):
    folder, out = write_audit(), tmp_path / "run"
    first = run_stages(folder, ("edit",), RunOptions(out=out))
    again = run_stages(out, ("edit",))
    assert first.tallies[0].counts == {"edited": 12}
    assert again.tallies[0].already == 12


def test_an_editor_may_bring_its_own_seed(write_audit: Write):
    assert audit.load(write_audit('use = "flaky"')).editors[0].seeds == (42,)
    assert audit.load(write_audit('use = "flaky"\nseeds = [7]')).editors[0].seeds == (7,)
    assert audit.load(write_audit('use = "noop"')).editors[0].seeds == (0,)
    assert audit.load(write_audit('use = "flaky"')).resolved["editors"][0]["seeds"] == [42]


def test_what_stands_behind_a_colon_is_the_plugins_shorthand(write_audit: Write):
    loaded = audit.load(write_audit('use = "flaky:3"'))
    assert loaded.editors[0].editor.spec.parameters["failures"] == 3
    (found,) = problems(write_audit('use = "noop:3"'))
    assert "'noop' takes nothing after a colon" in found
