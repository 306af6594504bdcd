"""What `stillme verify` cannot check: only its hash says that it is as it was sealed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCovered:
    """A part of a bundle that nothing else in the bundle confirms."""

    file: str
    part: str = ""
    """A key or column; `[]` stands for every entry of a list. Empty for the whole file."""
    reason: str

    def covers(self, file: str, path: str) -> bool:
        """Whether a place in a file belongs to this part."""
        inside = path == self.part or path.startswith((f"{self.part}.", f"{self.part}["))
        return file == self.file and (not self.part or inside)


ORDER = "(order of rows)"
_PLUGIN = "what a plugin said of itself, unless a number uses it"
_PROMPT = "what only the prompt set says, unless a number uses it"
_WORK = "what the run recorded of the work"
_WORDS = "an answer as it came; it is not parsed again"

_PARTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("report.html", ("",), "not rebuilt: its pictures depend on the version of the image library"),
    ("README.md", ("",), "explains; no number depends on it"),
    ("codebook.md", ("",), "explains; no number depends on it"),
    ("configurations.json", ("",), "history; no number depends on it"),
    ("rows/features.jsonl", ("",), "descriptions; the instructions that use them are in the requests"),
    ("rows/attempts.jsonl", ("",), "tries that failed; no number depends on them"),
    ("audit.toml", ("title", "base", "budget", "executor", "gate", "judges[].sentinel"), "changes no row"),
    ("evidence.json", ("stillme", "rubric", "python", "packages"), "what the sealing machine said of itself"),
    ("design.json", ("resolved.budget", "resolved.executor", "resolved.gate"), "changes no row"),
    ("design.json", tuple(f"prompts[].{part}" for part in ("years", "target", "stereotype", "pronoun")), _PROMPT),
    ("design.json", tuple(f"editors[].{part}" for part in ("summary", "capabilities", "answers")), _PLUGIN),
    ("design.json", tuple(f"judges[].{part}" for part in ("summary", "capabilities", "cards", "calibration")), _PLUGIN),
    ("design.json", ("judges[].sentinels",), "how many known answers were hidden; no number depends on it"),
    ("rows/requests.jsonl", ("withheld",), "the words that say why a portrait has no feature prompt"),
    ("rows/edits.jsonl", ("message", "effective"), _WORDS),
    ("rows/edits.jsonl", ("truth",), "what a known-answer editor says it planted; no table uses it"),
    ("rows/edits.jsonl", ("final",), "of a failure: whether it would be retried"),
    ("rows/edits.jsonl", ("attempts", "seconds", "cost", "at", ORDER), _WORK),
    ("rows/judgements.jsonl", ("reason", "raw", "effective"), _WORDS),
    ("rows/judgements.jsonl", ("final",), "of a failure: whether it would be retried"),
    ("rows/judgements.jsonl", ("attempts", "seconds", "cost", "at"), _WORK),
)
NOT_COVERED = tuple(NotCovered(file=file, part=part, reason=reason) for file, parts, reason in _PARTS for part in parts)
"""A mutation test holds this list against what `verify` notices, and docs/evidence.md shows it."""


def files_not_covered(names: frozenset[str]) -> list[NotCovered]:
    """The files of a bundle of which only the hash is checked."""
    return [entry for entry in NOT_COVERED if not entry.part and entry.file in names]


def as_markdown() -> str:
    """The list as a table, for docs/evidence.md."""
    rows = (
        f"| `{file}` | {', '.join(f'`{part}`' if part[:1] != '(' else part[1:-1] for part in parts if part) or 'all'}"
        f" | {reason} |"
        for file, parts, reason in _PARTS
    )
    return "\n".join(["| file | part | reason |", "|---|---|---|", *rows, ""])
