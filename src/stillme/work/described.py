"""Add the features that a run has already extracted to its audit."""

from __future__ import annotations

from dataclasses import replace

from stillme.audit.plan import Audit
from stillme.mitigation import FeaturePrompt, NoFeaturePrompt, extraction_key, merge
from stillme.runs.store import Store


def with_features(audit: Audit, store: Store) -> Audit:
    """The audit with what its extractors have said so far, merged portrait by portrait."""
    keys = {
        (portrait.id, named.name): extraction_key(portrait.image, named.extractor.spec)
        for portrait in audit.portraits_to_describe
        for named in audit.extractors
    }
    extractions = store.features(list(dict.fromkeys(keys.values())))
    features: dict[str, FeaturePrompt | NoFeaturePrompt] = {}
    for portrait in audit.portraits_to_describe if audit.extractors else ():
        answers = [(named.name, extractions.get(keys[portrait.id, named.name])) for named in audit.extractors]
        given = [(name, extraction) for name, extraction in answers if extraction is not None]
        if len(given) == len(answers):
            features[portrait.id] = merge(given)
    return replace(audit, features=features)
