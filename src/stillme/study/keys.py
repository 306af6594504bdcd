"""The study's secrets: one file that only its owner may read."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cryptography.fernet import Fernet

from stillme.core.errors import StillmeError

FILE = "secrets.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys that make pseudonyms and encrypt identities, and the admin's password hash."""

    naming: str
    """Key of every HMAC."""
    sealing: str
    """Key that encrypts identities."""
    admin: str
    """argon2 hash."""

    def pseudonym(self, what: str, value: str) -> str:
        """A stable pseudonym that cannot be reversed without the key."""
        return hmac.new(self.naming.encode(), f"{what}:{value}".encode(), hashlib.sha256).hexdigest()

    def encrypt(self, text: str) -> bytes:
        """Encrypt."""
        return Fernet(self.sealing).encrypt(text.encode())

    def decrypt(self, data: bytes) -> str:
        """Decrypt."""
        return Fernet(self.sealing).decrypt(data).decode()

    def is_admin(self, password: str) -> bool:
        """Whether this is the admin's password."""
        try:
            return PasswordHasher().verify(self.admin, password)
        except (VerificationError, InvalidHashError):
            return False


def create(folder: Path) -> str:
    """Make the secrets of a new study; returns the admin's password, of which only a hash is kept."""
    password = secrets.token_urlsafe(15)
    _write(
        folder,
        Keys(
            naming=secrets.token_hex(32),
            sealing=Fernet.generate_key().decode(),
            admin=PasswordHasher().hash(password),
        ),
    )
    return password


def change_password(folder: Path) -> str:
    """Give the admin a new password."""
    keys, password = load(folder), secrets.token_urlsafe(15)
    _write(folder, replace(keys, admin=PasswordHasher().hash(password)))
    return password


def load(folder: Path) -> Keys:
    """Read the secrets of a study."""
    file = folder / FILE
    try:
        return Keys(**json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        raise StillmeError(f"{folder} has no {FILE}. Copy it from where the study was.") from None
    except (ValueError, TypeError):
        raise StillmeError(f"{file} is damaged, so participants cannot be recognised. Restore a backup.") from None


def write_private(file: Path, text: str) -> Path:
    """Write a file that only its owner may read, whole or not at all."""
    # Not `files.whole`: others must not be able to open the file, not even while it is empty.
    draft = file.with_name(f".{file.name}.partial")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)
    return draft.replace(file)


def _write(folder: Path, keys: Keys) -> None:
    write_private(folder / FILE, json.dumps(asdict(keys)))
