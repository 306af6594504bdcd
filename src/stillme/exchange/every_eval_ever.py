"""A run in the schema of Every Eval Ever 0.3.0: one file of results and one of single answers for each editor.

The schema wants a number, a direction and a right answer everywhere. What has none is left out and counted, never
made up: numbers that cannot be estimated, and quantities of which neither more nor less is better.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from stillme import __version__, numbers, rubric
from stillme.calibration import standing_of
from stillme.design import EditorRecord, JudgeRecord
from stillme.errors import StillmeError
from stillme.estimates import Standing, mark
from stillme.exchange.publishing import (
    Publication,
    chance_text,
    is_loaded_here,
    label_origins,
    lower_is_better,
    model_id,
    portrait_set,
    published,
    unfinished,
    with_numbers,
)
from stillme.files import sha256_of, write_json, write_json_lines
from stillme.results import Run
from stillme.results.run import CHUNK, Row
from stillme.rubric import Rate
from stillme.types import Estimate, Interval, Json, digest

SCHEMA = "0.3.0"
_UNKNOWN = -1
"""What the schema calls unknown in a metric with levels: no score, and `error` says why."""
_LEVELS = ("no", "yes")
_ERRORS = {"abstained": "abstained: the judge looked and gave no score", "failed": "failed: the judge gave no answer"}
_METHODS = {"model": "llm_judge", "instrument": "measured", "person": "human", "ensemble": "combined"}


def export_every_eval_ever(run: Run, to: Path | None, publication: Publication) -> list[Path]:
    """Write `data/stillme/DEVELOPER/MODEL/UUID.json` and `UUID_samples.jsonl` for each editor."""
    publication = publication.checked(run)
    written = run.store.written()
    if written is None:
        raise StillmeError(f"{run.folder} has no edits yet, so there is nothing to export. `stillme run` makes them.")
    folder = to or run.folder / "export"
    exported = _Export(
        run=run,
        publication=publication,
        estimates=tuple(published(run)),
        standing=standing_of(run),
        began=written[0],
        ended=written[1],
    )
    return [path for editor in run.design.editors for path in exported.write(editor, folder)]


@dataclass(frozen=True, kw_only=True)
class _Export:
    run: Run
    publication: Publication
    estimates: Sequence[Estimate]
    standing: Standing
    began: str
    ended: str

    def write(self, editor: EditorRecord, folder: Path) -> Iterator[Path]:
        model = model_id(self.run, editor, self.publication)
        developer, _, rest = model.partition("/")
        place = Path("data", "stillme", _file_name(developer), _file_name(rest))
        # The schema wants a random UUID; this one is the same for the same rows.
        name = UUID(hex=digest([self.run.design.hash, editor.spec.key, editor.name, self.ended]), version=4)
        evaluation = f"stillme/{model}/{_epoch(self.ended)}"
        (folder / place).mkdir(parents=True, exist_ok=True)
        results = list(self._results(editor))
        known = {str(result["evaluation_result_id"]) for result in results}
        samples = folder / place / f"{name}_samples.jsonl"
        write_json_lines(samples, self._samples(editor, model, evaluation, known))
        with samples.open("rb") as lines:
            rows = sum(1 for _ in lines)
        document: dict[str, Json] = {
            "schema_version": SCHEMA,
            "evaluation_id": evaluation,
            "evaluation_timestamp": self.began,
            "retrieved_timestamp": _epoch(self.ended),
            "source_metadata": self._source(editor),
            "eval_library": {
                "name": "stillme",
                "version": __version__,
                "additional_details": {"rubric": rubric.load().version, "audit": self.run.design.hash},
            },
            "model_info": {
                "name": editor.name,
                "id": model,
                "additional_details": {
                    "deployment_type": "self_deployed" if is_loaded_here(self.run, editor) else "unknown",
                    "model_availability": "unknown",
                    "editor": editor.spec.use,
                    "editor_version": editor.spec.version,
                    "parameters": json.dumps(dict(editor.spec.parameters), sort_keys=True, ensure_ascii=False),
                    "seeds": ", ".join(map(str, editor.seeds)),
                },
            },
            "evaluation_results": results,
            "detailed_evaluation_results": {
                "format": "jsonl",
                "file_path": (place / samples.name).as_posix(),
                "hash_algorithm": "sha256",
                "checksum": sha256_of(samples),
                "total_rows": rows,
                "additional_details": {
                    "rows": "one per edit, judge, repeat and named rate; 1 if the rate counts it, else 0",
                    "unknown": "a row with `error` has no score; -1 stands for unknown there",
                    "left_out": "quantities without a cut-point; `stillme export --format jsonl` has every answer",
                },
            },
        }
        yield write_json(folder / place / f"{name}.json", document)
        yield samples

    def _source(self, editor: EditorRecord) -> dict[str, Json]:
        mine = [estimate for estimate in self.estimates if estimate.editor == editor.name]
        absent = sum(not isinstance(estimate.outcome, Interval) for estimate in mine)
        sideless = sum(
            isinstance(estimate.outcome, Interval) and lower_is_better(estimate) is None for estimate in mine
        )
        details = {
            "title": self.run.title,
            "not_estimable": f"{absent} quantities have no number and are left out",
            "without_direction": f"{sideless} numbers of which neither more nor less is better are left out",
        }
        if missing := unfinished(self.run):
            details["unfinished"] = missing
        return {
            "source_name": "stillme",
            "source_type": "evaluation_run",
            "source_organization_name": self.publication.evaluator,
            "evaluator_relationship": self.publication.relationship,
            "additional_details": details,
        }

    def _results(self, editor: EditorRecord) -> Iterator[dict[str, Json]]:
        for estimate, interval in with_numbers(self.estimates, editor.name):
            lower = lower_is_better(estimate)
            if lower is None:
                continue
            yield {
                "evaluation_result_id": _result_id(estimate),
                "evaluation_name": f"stillme {estimate.quantity}",
                "source_data": {
                    "dataset_name": portrait_set(self.run),
                    "source_type": "other",
                    "additional_details": {
                        "portraits": str(len(self.run.design.portraits)),
                        "prompts": ", ".join(prompt.id for prompt in self.run.design.prompts),
                        "label_origin": label_origins(self.run),
                    },
                },
                "evaluation_timestamp": self.ended,
                "metric_config": self._metric(estimate, lower),
                "score_details": self._score(estimate, interval),
            }

    def _metric(self, estimate: Estimate, lower: bool) -> dict[str, Json]:
        quantity, judge = estimate.quantity, self.run.design.judge(estimate.judge)
        details = {
            "arm": estimate.arm,
            "judge": estimate.judge or "none: counted, not judged",
            "judge_note": mark(self.standing, estimate.judge, quantity) or "none",
            "scope": estimate.scope,
        }
        if judge:
            details |= {"judge_kind": judge.capabilities.kind, "judge_use": f"{judge.spec.use} {judge.spec.version}"}
        if estimate.factor:
            details |= {"factor": estimate.factor, "group": estimate.group or "largest minus smallest"}
        metric: dict[str, Json] = {
            "evaluation_description": _description(estimate),
            "metric_id": f"stillme.{quantity}",
            "metric_name": numbers.title(quantity),
            "metric_kind": "gap" if estimate.scope == "disparity" else "rate" if numbers.is_rate(quantity) else "mean",
            "metric_unit": "proportion" if numbers.is_rate(quantity) else numbers.unit(quantity) or "points of 1 to 5",
            "lower_is_better": lower,
            "additional_details": details,
        }
        if numbers.is_rate(quantity) and estimate.scope != "disparity":
            return metric | {"score_type": "levels", "level_names": list(_LEVELS), "has_unknown_level": True}
        axis = rubric.load().axes.get(quantity)
        least, most = (1, 5) if axis and axis.is_scale else (0, "Infinity")
        if estimate.scope == "disparity":
            least, most = 0, 1 if numbers.is_rate(quantity) else 4 if axis and axis.is_scale else "Infinity"
        return metric | {"score_type": "continuous", "min_score": least, "max_score": most}

    def _score(self, estimate: Estimate, interval: Interval) -> dict[str, Json]:
        excluded = "; ".join(f"{reason}: {count}" for reason, count in sorted(estimate.excluded.items()))
        uncertainty: dict[str, Json] = {
            "confidence_interval": {
                "lower": _rounded(interval.low),
                "upper": _rounded(interval.high),
                "confidence_level": interval.confidence,
                "method": interval.method,
            },
            "num_samples": estimate.portraits,
        }
        return {
            "score": _rounded(interval.value),
            "uncertainty": uncertainty,
            "details": {
                "unit": "the portrait: num_samples counts portraits, not edits",
                "edits": str(estimate.edits),
                "excluded": excluded or "none",
                **({"chance": chance} if (chance := chance_text(estimate)) else {}),
            },
        }

    def _samples(self, editor: EditorRecord, model: str, evaluation: str, known: set[str]) -> Iterator[dict[str, Json]]:
        rows = self.run.rows(editor.name)
        while chunk := list(itertools.islice(rows, CHUNK)):
            asked: dict[str, tuple[Row, JudgeRecord, int]] = {}
            for row in chunk:
                for judge in self.run.judges if row.image else ():
                    asked |= {key: (row, judge, epoch) for key, epoch in judge.assessments(row.request.key, row.image)}
            for key, axis, outcome, score in self.run.store.judgements(list(asked)):
                row, judge, epoch = asked[key]
                for rate in self._rates(row, axis):
                    result = "/".join((rate.name, row.request.arm, judge.name, "all"))
                    if result in known:
                        linked = {"evaluation_result_id": result} | _answer(rate, judge, outcome, score)
                        yield (
                            self._row(row, model, evaluation, rate)
                            | linked
                            | {"metadata": self._metadata(row, judge, epoch, axis)}
                        )

    def _rates(self, row: Row, axis: str) -> Sequence[Rate]:
        """The named rates of an axis; none where the prompt asks for the very change."""
        known = rubric.load().axes.get(axis)
        if known is None or known.requested(self.run.design.prompt_by_id[row.request.prompt]):
            return ()
        return [rate for rate in rubric.load().rates.values() if rate.axis == axis]

    def _row(self, row: Row, model: str, evaluation: str, rate: Rate) -> dict[str, Json]:
        request = row.request
        portraits = [self.run.design.portrait_by_id[name] for name in request.portraits]
        pictures = " ".join(f"sha256:{portrait.image.sha256}" for portrait in portraits)
        words = f"{request.instruction}\n{pictures}"
        return {
            "schema_version": SCHEMA,
            "evaluation_id": evaluation,
            "model_id": model,
            "evaluation_name": f"stillme {rate.name}",
            "sample_id": "/".join(("+".join(request.portraits), request.prompt, request.arm, str(request.seed))),
            "sample_hash": _sha256(words),
            "interaction_type": "single_turn",
            "input": {"raw": words, "reference": []},
            "output": {"raw": [f"sha256:{row.image}"]},
            "messages": None,
        }

    def _metadata(self, row: Row, judge: JudgeRecord, epoch: int, axis: str) -> dict[str, str]:
        request = row.request
        labels: dict[str, str] = {}
        for place, name in enumerate(request.portraits):
            portrait = self.run.design.portrait_by_id[name]
            prefix = "" if place == 0 else "second_"
            labels |= {f"{prefix}label_{factor}": value for factor, value in portrait.attributes.items()}
            labels[f"{prefix}label_origin"] = portrait.label_origin
        return {
            "edit": request.key,
            "arm": request.arm,
            "prompt": request.prompt,
            "seed": str(request.seed),
            "axis": axis,
            "judge": judge.name,
            "epoch": str(epoch),
            **labels,
        }


def _answer(rate: Rate, judge: JudgeRecord, outcome: str, score: float | None) -> dict[str, Json]:
    if outcome != "rated" or score is None:
        return {
            "answer_attribution": [],
            "evaluation": {"score": _UNKNOWN, "is_correct": False},
            "error": _ERRORS.get(outcome, outcome),
        }
    counts = rate.holds(score)
    return {
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": numbers.machine(score),
                "extraction_method": _METHODS[judge.capabilities.kind],
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": int(counts), "is_correct": counts == (rate.name == "success")},
        "error": None,
    }


def _result_id(estimate: Estimate) -> str:
    where = (f"{estimate.factor}={estimate.group}",) if estimate.factor else ()
    judge = (estimate.judge,) if estimate.judge else ()
    return "/".join((estimate.quantity, estimate.arm, *judge, estimate.scope, *where))


def _description(estimate: Estimate) -> str:
    rate = rubric.load().rates.get(estimate.quantity)
    what = f"Share of edits: {numbers.title(estimate.quantity)}" if rate else numbers.title(estimate.quantity)
    axis = rubric.load().axes.get(rate.axis if rate else estimate.quantity)
    cut = ""
    if rate:
        cut = f", {rate.axis} {'>=' if rate.at_least is not None else '<='} {rate.at_least or rate.at_most:g}"
    question = f" ({axis.question})" if axis and axis.question else ""
    between = f"; largest minus smallest group of {estimate.factor}" if estimate.scope == "disparity" else ""
    return f"{what}{cut}{question}{between}"


def _epoch(at: str) -> str:
    return str(int(datetime.fromisoformat(at).timestamp()))


def _rounded(value: float) -> float:
    """Nine significant digits, so that processors agree."""
    return float(numbers.machine(value))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _file_name(part: str) -> str:
    return re.sub(r"[^\w.-]+", "-", part).strip(".-") or "unnamed"
