"""Signatures in OpenSSH's own format, so that anybody can check them without stillme."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from stillme.core.errors import StillmeError
from stillme.core.files import SUMS

NAMESPACE = "stillme"
"""What the signature is for: one made for mail or commits does not count."""
SUFFIX = ".sig"
_TOOL = "ssh-keygen"


def signature_of(sums: str, key: Path) -> bytes:
    """Sign the text of SHA256SUMS with a private key of OpenSSH."""
    tool = _tool()
    if not key.is_file():
        raise StillmeError(f"There is no key {key}. `{_TOOL} -t ed25519 -f {key}` makes one.")
    with tempfile.TemporaryDirectory(prefix="stillme-sign-") as name:
        file = Path(name) / SUMS
        file.write_text(sums, "utf-8", newline="")
        # Standard input stays open: a key with a passphrase asks for it.
        command = [tool, "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise StillmeError(f"{_TOOL} could not sign with {key} ({_last_line(done.stderr)}). Give a private key.")
        return file.with_name(file.name + SUFFIX).read_bytes()


def is_signed_by(sums: bytes, signature: Path, key: Path) -> bool:
    """Whether one of the public keys in `key` signed this text of SHA256SUMS."""
    tool = _tool()
    keys = _public_keys(key)
    if not signature.is_file():
        raise StillmeError(f"There is no signature {signature}. Ask for it, or verify with --root.")
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        allowed = Path(name) / "allowed_signers"
        allowed.write_text("".join(f'{NAMESPACE} namespaces="{NAMESPACE}" {line}\n' for line in keys), "utf-8")
        command = [tool, "-Y", "verify", "-f", str(allowed), "-I", NAMESPACE, "-n", NAMESPACE, "-s", str(signature)]
        return subprocess.run(command, input=sums, capture_output=True).returncode == 0


def _public_keys(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StillmeError(f"The public key {file} cannot be read. It is a text file that ends in .pub.") from None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or not all(line.startswith(("ssh-", "ecdsa-", "sk-")) for line in lines):
        raise StillmeError(f"{file} is no public key of OpenSSH. Give the file that ends in .pub.")
    return lines


def _tool() -> str:
    tool = shutil.which(_TOOL)
    if tool is None:
        raise StillmeError(
            f"Signatures need {_TOOL} (OpenSSH 8.1 or later), which is not on this machine. Install openssh-client, or "
            "use the root: `stillme verify FILE --root HEX`."
        )
    return tool


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1].rstrip(".")
