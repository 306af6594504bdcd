"""The requests of an audit as a table, for making the edits elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from stillme import audit as audits
from stillme.audit import Audit, NamedEditor
from stillme.audit.config import MitigationSection
from stillme.core.files import write_csv
from stillme.core.protocols import Priced, overrides
from stillme.core.tables import counted
from stillme.core.types import Arm, Portrait, Prompt
from stillme.mitigation.arms import NEEDS_FEATURES, instruction
from stillme.mitigation.features import Extraction, Extractor, FeaturePrompt, NoFeaturePrompt, extraction_key, merge
from stillme.mitigation.measured import extractor_named
from stillme.runs.store import Store

COLUMNS = (
    "editor",
    "portrait",
    "source",
    "second_source",
    "prompt",
    "prompt_text",
    "arm",
    "instruction",
    "seed",
    "file",
    "note",
)


def write_requests(path: Path, file: Path) -> str:
    """Write every request that an editor of finished files must find; of an audit without one, all requests.

    Returns what was written, and which portraits lack the feature sentence that their instructions need, for people.
    """
    audit = audits.load(path, ready=False)
    readers = [named for named in audit.editors if overrides(named.editor, "expected_file")]
    editors = readers or list(audit.editors)
    needed = {
        portrait.id: portrait
        for named in editors
        for portraits, arm, _ in audit.cells(named)
        if arm in NEEDS_FEATURES
        for portrait in portraits
    }
    features, how = _features(audit, list(needed.values()))
    count = 0

    def rows() -> Iterator[Mapping[str, object]]:
        nonlocal count
        for named in editors:
            for row in _rows(audit, named, features):
                count += 1
                yield row

    write_csv(file, COLUMNS, rows())
    written = f"Wrote {file}: {counted(count, 'request')} to {', '.join(named.name for named in editors)}."
    if undescribed := len(needed.keys() - features.keys()):
        written += f"\n{counted(undescribed, 'portrait has', 'portraits have')} no feature sentence yet. {how}"
    return written


def _rows(
    audit: Audit, named: NamedEditor, features: Mapping[str, FeaturePrompt | NoFeaturePrompt]
) -> Iterator[Mapping[str, object]]:
    for portraits, arm, prompt in audit.cells(named):
        sources = [portrait.image.path for portrait in portraits]
        words, note = _words(audit, portraits, arm, prompt, features)
        for seed in named.seeds:
            place, problem = _expected_file(named, portraits, arm, prompt, seed)
            yield {
                "editor": named.name,
                "portrait": "+".join(portrait.id for portrait in portraits),
                "source": sources[0],
                "second_source": sources[1] if len(sources) > 1 else "",
                "prompt": prompt.id,
                "prompt_text": prompt.text,
                "arm": arm.value,
                "instruction": words,
                "seed": seed,
                "file": place,
                "note": "; ".join(filter(None, (note, problem))),
            }


def _words(
    audit: Audit,
    portraits: tuple[Portrait, ...],
    arm: Arm,
    prompt: Prompt,
    features: Mapping[str, FeaturePrompt | NoFeaturePrompt],
) -> tuple[str, str]:
    """The instruction, or an empty one and the reason."""
    if arm not in NEEDS_FEATURES:
        return instruction(prompt, arm), ""
    sentences: list[str] = []
    for portrait in portraits:
        match features.get(portrait.id):
            case FeaturePrompt(sentence=sentence):
                sentences.append(sentence)
            case NoFeaturePrompt(reason=reason):
                return "", f"no feature sentence for {portrait.id}: {reason}"
            case None:
                return "", f"no feature sentence for {portrait.id} yet"
    return audit.words(portraits, arm, prompt, sentences), ""


def _expected_file(
    named: NamedEditor, portraits: tuple[Portrait, ...], arm: Arm, prompt: Prompt, seed: int
) -> tuple[str, str]:
    try:
        return str(named.editor.expected_file(portraits, prompt, arm, seed) or ""), ""
    except ValueError as error:
        return "", str(error)


def _features(audit: Audit, portraits: list[Portrait]) -> tuple[Mapping[str, FeaturePrompt | NoFeaturePrompt], str]:
    """What the run knows of these portraits, and what free extractors say now; and how to get the rest."""
    if not portraits:
        return {}, ""
    section = audit.config.mitigation or MitigationSection()
    with ExitStack() as stack:
        extractors = {
            entry.name or entry.use: stack.enter_context(closing(extractor_named(entry.use, entry.parameters)))
            for entry in section.extractors
        }
        stored = _stored(audit, portraits, extractors)
        features: dict[str, FeaturePrompt | NoFeaturePrompt] = {}
        for portrait in portraits:
            answers = {name: _description(portrait, extractor, stored) for name, extractor in extractors.items()}
            known = [(name, answer) for name, answer in answers.items() if answer is not None]
            if len(known) == len(extractors):
                features[portrait.id] = merge(known)
    paid = " ".join(f"--extractor {entry.use}" for entry in section.extractors)
    if audit.extractors:
        return features, f"`stillme run {audit.file.parent} --only edit` describes them; then write this table again."
    return features, f"`stillme mitigate PORTRAIT --dry-run {paid}` describes one."


def _stored(audit: Audit, portraits: list[Portrait], extractors: Mapping[str, Extractor]) -> Mapping[str, Extraction]:
    if not Store.exists(audit.folder):
        return {}
    keys = {extraction_key(portrait.image, made.spec) for portrait in portraits for made in extractors.values()}
    with Store.reading(audit.folder) as store:
        return store.features(sorted(keys))


def _description(portrait: Portrait, extractor: Extractor, stored: Mapping[str, Extraction]) -> Extraction | None:
    known = stored.get(extraction_key(portrait.image, extractor.spec))
    if known is not None:
        return known
    # Planning must not call paid services.
    return None if isinstance(extractor, Priced) else extractor.extract(portrait.image)
