"""Check a bundle offline: every hash, every row, every number."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.audit.config import EstimatesSection
from stillme.audit.design import Design, UnreadableDesign, configuration_hash
from stillme.audit.plan import without_none
from stillme.core.errors import StillmeError
from stillme.core.files import SUMS
from stillme.core.types import Arm, Json, digest
from stillme.findings.evidence import signing
from stillme.findings.evidence.bundle import IMAGES, Contents, Difference, one_line
from stillme.findings.evidence.row_checks import row_differences
from stillme.findings.evidence.table_checks import table_differences, write_tables_of
from stillme.runs import Run
from stillme.runs.store.ledger_copy import require_ledger
from stillme.runs.store.opening import LEDGER

_SHOWN = 10


class Verdict(StrEnum):
    """What may be said of a bundle."""

    AUTHENTIC = "authentic and consistent"
    """It has the published root, or the signature of a known key, and every check passed."""
    CONSISTENT = "internally consistent, not authenticated"
    """Every check passed. Whether all of it was replaced, only a root or a signature can say."""
    INCONSISTENT = "NOT CONSISTENT"


class Reached(StrEnum):
    """How far the checks came: each stage trusts the one before, so that the first with a difference is the last."""

    HASHES = "hashes"
    ROWS = "rows"
    TABLES = "tables"


_STOPPED = {
    Reached.HASHES: "Stopped after the hashes: nothing is computed from files that are not what was sealed.",
    Reached.ROWS: "Stopped before the tables: nothing is computed from rows that do not fit.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is wrong with a bundle, if anything."""

    file: Path
    root: str
    title: str
    sealed_by: str
    files: int
    cells: int
    """Table cells that were computed again."""
    authenticated: bool
    """Whether the root or a signature was given and is right."""
    reached: Reached
    differences: tuple[Difference, ...]

    @property
    def consistent(self) -> bool:
        """Whether everything is as it was sealed, and every number follows from the rows."""
        return not self.differences

    @property
    def verdict(self) -> Verdict:
        """The result in a few words."""
        if not self.consistent:
            return Verdict.INCONSISTENT
        return Verdict.AUTHENTIC if self.authenticated else Verdict.CONSISTENT

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "file": str(self.file),
            "verdict": str(self.verdict),
            "consistent": self.consistent,
            "authenticated": self.authenticated,
            "root": self.root,
            "title": self.title,
            "sealed_by": self.sealed_by,
            "verified_by": __version__,
            "files": self.files,
            "cells": self.cells,
            "reached": str(self.reached),
            "differences": [asdict(difference) for difference in self.differences],
        }

    def as_text(self) -> str:
        """For people: the first difference in full, the others below."""
        lines = [f"{self.file}: {one_line(self.title)}", f"root {self.root}"]
        if self.sealed_by != __version__:
            lines.append(
                f"Sealed by stillme {one_line(self.sealed_by)}, verified by {__version__}: a differing number may come "
                "from that. Install the other version to be sure."
            )
        if self.consistent:
            verdict = str(self.verdict)
            lines.append(
                f"{verdict[0].upper()}{verdict[1:]}: {self.files:,} files have the hashes that were sealed, and "
                f"{self.cells:,} cells of the tables follow from the rows."
            )
            if not self.authenticated:
                lines.append(
                    "Next: compare with the published root (--root HEX), or check the signature (--key PUBKEY)."
                )
            return "\n".join(lines)
        lines.append(f"{self.verdict}. First difference: {self.differences[0]}")
        lines += [f"  also {difference}" for difference in self.differences[1:_SHOWN]]
        if len(self.differences) > _SHOWN:
            lines.append(f"  and {len(self.differences) - _SHOWN:,} more")
        if self.reached in _STOPPED:
            lines.append(_STOPPED[self.reached])
        return "\n".join(lines)


def verify(file: Path, root: str | None = None, key: Path | None = None) -> Verification:
    """Check hashes, then rows, then numbers.

    With `root`, or a public `key` and the signature beside the file, also whether this is the bundle that was sealed.
    """
    if root is not None and not re.fullmatch(r"[0-9a-f]{64}", root := root.strip().lower()):
        raise StillmeError(f"A root has 64 hexadecimal digits; {root!r} is none. `stillme export --bundle` prints it.")
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        scratch = Path(name)
        contents = Contents.of(file, scratch / "bundle")
        found = _Found(differences=[*_authenticity(file, contents, root, key), *contents.differences()])
        if not found.differences:
            _check(contents, scratch, found)
        return Verification(
            file=file,
            root=contents.root,
            title=found.title,
            sealed_by=contents.sealed_by,
            files=len(contents.hashes),
            cells=found.cells,
            authenticated=(root is not None or key is not None) and found.reached is not Reached.HASHES,
            reached=found.reached,
            differences=tuple(found.differences),
        )


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the checks found so far."""

    differences: list[Difference]
    title: str = ""
    reached: Reached = Reached.HASHES
    cells: int = 0


def _authenticity(file: Path, contents: Contents, root: str | None, key: Path | None) -> Iterator[Difference]:
    if root is not None and root != contents.root:
        yield Difference(file=SUMS, what="another root than expected", expected=root, found=contents.root)
    if key is not None:
        signature = file.with_name(file.name + signing.SUFFIX)
        if not signing.is_signed_by(contents.sums, signature, key):
            yield Difference(file=signature.name, what=f"is no signature of this bundle by {key.name}")


def _check(contents: Contents, scratch: Path, found: _Found) -> None:
    """The rows, and if they fit, the tables computed from them."""
    found.reached = Reached.ROWS
    try:
        require_ledger(contents.folder / LEDGER)
        with Run.open(contents.folder) as run:
            found.title = run.title
            found.differences.extend(row_stage(run, contents.names))
            if not found.differences:
                write_tables_of(run, scratch)
                found.cells, found.differences = table_differences(contents.folder / "tables", scratch / "tables")
                found.reached = Reached.TABLES
    except (StillmeError, UnreadableDesign) as error:
        found.differences.append(Difference(file=LEDGER, what=str(error)))
    except _NOT_ROWS as error:
        # It holds what stillme never writes; where exactly does not matter any more.
        found.differences.append(Difference(file=LEDGER, what=f"rows and design do not fit: {error!r}"))


_NOT_ROWS = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    *(csv.Error, sqlite3.Error),
)


def row_stage(run: Run, names: frozenset[str]) -> Iterator[Difference]:
    """Everything but the tables: the design, the rows and the pictures' names."""
    recorded = run.store.designs.latest()
    assert recorded is not None
    yield from design_differences(run.design, recorded.document)
    yield from row_differences(run)
    pictures = sorted(name for name in names if name.startswith(f"{IMAGES}/"))
    if pictures:
        known = {portrait.image.sha256 for portrait in run.design.portraits} | {row.image for row in run.rows()}
        for name in pictures:
            if Path(name).stem not in known:
                yield Difference(file=name, what="is a picture that no row names")


DESIGN = "the design"


def design_differences(design: Design, document: Mapping[str, Json]) -> Iterator[Difference]:
    """What the design says twice and not alike. Everything that changes a row is part of the resolved configuration.

    `document` is the design as it is stored.
    """
    resolved = design.resolved
    computed = configuration_hash(resolved)
    yield from _unless_equal("hash", "is the hash of another configuration", computed, design.hash)
    yield from _unless_equal("title", "is another title than the design's", design.title, resolved.get("title"))
    rebuilt = design.as_json()
    for part in sorted({*document, *rebuilt}):
        if part not in rebuilt or _canonical(document.get(part)) != _canonical(rebuilt[part]):
            yield Difference(file=DESIGN, column=part, what="holds what stillme does not write")
    # Raises where a setting is beyond what audit.toml allows, such as a confidence of 2.
    EstimatesSection.model_validate(resolved["estimates"])
    for column, recorded, expected in _twice(design, resolved):
        yield from _unless_equal(column, "is not what was resolved", expected, recorded)
    for judge in design.judges:
        if judge.calibration is not None:
            key = judge.calibration.get("key")
            yield from _unless_equal(f"judges.{judge.name}", "calibration of another judge", judge.spec.key, key)


def _twice(design: Design, resolved: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    """Column, what is recorded, and what it was resolved to."""
    people = digest([[p.id, p.image.sha256, dict(p.attributes)] for p in design.portraits])
    yield "portraits", people, resolved["portraits"]["hash"]
    yield "prompts", digest([[p.id, p.text] for p in design.prompts]), resolved["prompts"]["hash"]
    noop = [prompt.id for arm, prompt in design.treatments if arm is Arm.NOOP]
    asked = [prompt.id for prompt in design.prompts]
    yield (
        "treatments",
        [[str(arm), prompt.id] for arm, prompt in design.treatments],
        [[arm, name] for arm in resolved["arms"] for name in (noop[:1] if arm == Arm.NOOP else asked)],
    )
    yield (
        "editors",
        [[e.name, e.spec.version, without_none(e.spec.stated), list(e.seeds)] for e in design.editors],
        [[e["name"], e["version"], e["parameters"], e["seeds"]] for e in resolved["editors"]],
    )
    yield (
        "judges",
        [[j.name, j.spec.version, without_none(j.spec.stated), j.epochs] for j in design.judges],
        [[j["name"], j["version"], j["parameters"], j["epochs"]] for j in resolved["judges"]],
    )
    extractors = resolved.get("mitigation", {}).get("extractors", [])
    yield (
        "extractors",
        [[e.name, e.spec.use, e.spec.version, without_none(e.spec.stated)] for e in design.extractors],
        [[e["name"], e["use"], e["version"], e["parameters"]] for e in extractors],
    )
    ensemble = resolved["ensemble"]
    expected = resolved["estimates"] | {"rule": ensemble["rule"], "combined": ensemble["combined"], "matched_on": ()}
    analysis = asdict(design.analysis)
    analysis |= {"factors": list(design.analysis.factors), "combined": list(design.analysis.combined)}
    for name, value in analysis.items():
        yield f"analysis.{name}", value, expected.get(name)
    if design.roles or "roles" in resolved:
        roles = asdict(design.roles) | {"layouts": list(design.roles.layouts)} if design.roles else None
        said = resolved.get("roles")
        yield "roles", roles, {name: said[name] for name in roles} if said and roles else said


def _unless_equal(column: str, what: str, expected: Json, found: Json) -> Iterator[Difference]:
    if expected != found:
        yield Difference(file=DESIGN, column=column, what=what, expected=str(expected), found=str(found))


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
