"""Take over what other runs have already edited, judged and described."""

from __future__ import annotations

from collections.abc import Iterator

from stillme.audit import Audit
from stillme.audit.design import reading_key
from stillme.core.errors import StillmeError
from stillme.core.rubric.readings import REPEATS
from stillme.mitigation import extraction_key
from stillme.runs.store import Store
from stillme.runs.store.copying import copy_rows
from stillme.work.described import with_features


def take_over(audit: Audit, store: Store) -> Iterator[str]:
    """Copy the rows that this audit asks for and lacks, under their own keys; a sentence per run, if it had any."""
    for name in audit.config.reuse.runs if audit.config.reuse else ():
        if not Store.exists(audit.base / name):
            raise StillmeError(f"{name} of [reuse] has no run yet. Run it first, or remove it from audit.toml.")
        with Store.reading(audit.base / name) as other:
            described = copy_rows(store, other, "feature", _description_keys(audit))
            known = with_features(audit, store)
            requests = [request.key for named in known.editors for request in known.requests(named)]
            edited = copy_rows(store, other, "edit", requests)
            judged = copy_rows(store, other, "assessment", _assessment_keys(known, store, requests))
        if described or edited or judged:
            yield f"Taken from {name}: {edited:,} edits, {judged:,} judgements, {described:,} descriptions."


def _description_keys(audit: Audit) -> list[str]:
    return [
        extraction_key(portrait.image, named.extractor.spec)
        for portrait in (audit.portraits_to_describe if audit.extractors else ())
        for named in audit.extractors
    ]


def _assessment_keys(audit: Audit, store: Store, requests: list[str]) -> list[str]:
    judges = [named.record() for named in audit.judges]
    edits = {request: edit.image for request, edit in store.edits(requests).items() if edit.image}
    rated = [
        key for request, image in edits.items() for judge in judges for key, _ in judge.assessments(request, image)
    ]
    read = [
        reading_key(image, named.judge.spec.key, repeat)
        for image in dict.fromkeys(edits.values())
        for named in audit.readers
        for repeat in range(REPEATS)
    ]
    return [*rated, *read]
