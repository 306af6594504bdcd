"""Whether the design agrees with itself: what was resolved, its hash, and the records that readers use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from stillme.audit.config import EstimatesSection
from stillme.audit.design import Design, configuration_hash
from stillme.audit.plan import without_none
from stillme.core.types import Arm, Json, digest
from stillme.findings.evidence.differences import Difference

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
    expected = resolved["estimates"] | {"rule": ensemble["rule"], "combined": ensemble["combined"]}
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
