"""Signatures are OpenSSH's: made and checked with its own tool, with or without stillme."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from stillme.core.errors import StillmeError
from stillme.findings.evidence import seal, verify
from stillme.findings.evidence.bundle import signature_of
from stillme.runs import RecordedRun
from tests.command_lines import invoke, ran
from tests.evidence.test_archive import members_of
from tests.runs import fill, people, scores, write_audit

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("signing")
    audit = write_audit(home / "run", people(home / "people", per_group=3), prompts=("O-01",))
    return fill(audit, lambda *_: scores())


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@here", "-f", path], check=True)
    return path


@needs_ssh
def test_a_signed_bundle_is_authentic_to_a_reader_with_the_public_key(run: Path, tmp_path: Path):
    key, stranger = new_key(tmp_path / "key"), new_key(tmp_path / "stranger")
    file = tmp_path / "b.zip"
    shown = invoke("export", run, "--bundle", file, "--sign", key, "--json")
    assert json.loads(shown.output)["signature"] == f"{file}.sig"
    assert "Authentic and consistent" in ran("verify", file, "--key", f"{key}.pub").output
    shown = ran("verify", file, "--key", f"{stranger}.pub", code=1)
    assert "First difference: b.zip.sig (is not a signature of this bundle by stranger.pub)" in shown.output


@needs_ssh
def test_a_signature_of_another_bundle_or_purpose_does_not_count(run: Path, tmp_path: Path):
    key = new_key(tmp_path / "key")
    file = seal(RecordedRun.open(run), tmp_path / "b.zip", key=key).file
    signature = Path(f"{file}.sig")
    (tmp_path / "SHA256SUMS").write_bytes(members_of(file)["SHA256SUMS"])
    command = f"ssh-keygen -q -Y sign -n file -f {key} {tmp_path}/SHA256SUMS"
    subprocess.run(command.split(), check=True, capture_output=True)
    signature.write_bytes((tmp_path / "SHA256SUMS.sig").read_bytes())
    assert not verify(file, key=Path(f"{key}.pub")).authenticated, "signed for another purpose"
    signature.write_bytes(signature_of("another text\n", key))
    assert not verify(file, key=Path(f"{key}.pub")).consistent, "signed something else"


@needs_ssh
def test_a_signature_can_be_checked_without_stillme(run: Path, tmp_path: Path):
    key = new_key(tmp_path / "key")
    file = seal(RecordedRun.open(run), tmp_path / "b.zip", key=key).file
    sums = members_of(file)["SHA256SUMS"]
    public = Path(f"{key}.pub").read_text()
    (tmp_path / "allowed_signers").write_text(f'stillme namespaces="stillme" {public}')
    command = f"ssh-keygen -Y verify -f {tmp_path}/allowed_signers -I stillme -n stillme -s {file}.sig"
    subprocess.run(command.split(), input=sums, check=True, capture_output=True)


@needs_ssh
def test_what_is_no_key_is_said(run: Path, tmp_path: Path):
    key = new_key(tmp_path / "key")
    file = seal(RecordedRun.open(run), tmp_path / "b.zip").file
    with pytest.raises(StillmeError, match=r"no signature .*b\.zip\.sig"):
        verify(file, key=Path(f"{key}.pub"))
    with pytest.raises(StillmeError, match=r"not a public key .*\.pub"):
        verify(file, key=key)
    with pytest.raises(StillmeError, match="There is no key"):
        seal(RecordedRun.open(run), tmp_path / "c.zip", key=tmp_path / "none")
    with pytest.raises(StillmeError, match="could not sign"):
        seal(RecordedRun.open(run), tmp_path / "c.zip", key=tmp_path / "b.zip")
    assert not (tmp_path / "c.zip").exists(), "a bundle that could not be signed is not written"


def test_without_the_tool_the_root_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StillmeError, match=r"need ssh-keygen .* --root"):
        seal(RecordedRun.open(run), tmp_path / "b.zip", key=tmp_path / "key")
