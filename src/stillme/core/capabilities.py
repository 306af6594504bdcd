"""What an editor or a judge declares of itself, and what a run keeps for it: no plugin is needed to read either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a machine must have before a plugin can work."""

    modules: tuple[str, ...] = ()
    """Importable packages that the core install does not bring."""
    extra: str = ""
    """The stillme extra that brings them."""
    variables: tuple[str, ...] = ()
    """Environment variables, such as API keys."""
    memory_gb: float = 0.0
    """GPU memory, as a guide."""
    gpus: int = 0
    """GPUs that one worker takes; an executor with several machines places workers by it."""
    disk_gb: float = 0.0
    """Space for what is downloaded with the first call, as a guide."""
    imports: tuple[str, ...] = ()
    """What is imported with the first call, as `module:name`, if importing `modules` does not prove that it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an editor can do, declared instead of guessed from its name."""

    inputs: int = 1
    """How many portraits one request may carry."""
    batching: Literal["none", "shared_image", "per_item"] = "none"
    """`shared_image`: many prompts of one portrait; `per_item`: any requests together."""
    batch: int = 1
    """Requests per call when batching."""
    concurrency: int = 1
    """Calls that may be under way at once."""
    seed: Literal["exact", "best_effort", "none"] = "none"
    steps: Literal["free", "fixed", "none"] = "none"
    """Whether the number of denoising steps can be chosen, is given by the weights, or does not exist."""
    guidance: tuple[str, ...] = ()
    """The guidance parameters that really act, such as `guidance_scale` or `true_cfg_scale`."""
    negative_prompt: bool = False
    """Whether guidance needs a negative prompt to act."""
    size: Literal["any", "source", "fixed"] = "source"
    """Whether the output's size can be chosen, follows the source, or is given."""
    can_refuse: bool = False
    rewrites_prompt: bool = False
    prompt_tokens: int | None = None
    """Longer prompts are cut off."""
    reads_instruction: bool = True
    """False for edits made elsewhere: they need no feature prompt."""
    attributes_matter: bool = False
    """Only known-answer editors read the portraits' labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCapabilities:
    """What a judge can say."""

    kind: Literal["model", "instrument", "person", "ensemble"]
    axes: tuple[str, ...]
    """Answered for every pair, by a rating, an abstention or a failure."""
    partial: tuple[str, ...] = ()
    """Answered only for some pairs: shown with a pair, never averaged."""
    batch: int = 1
    concurrency: int = 1
    labels: bool = False
    """Whether the judge wants to be told the portrait's labels. Blind is the default."""
    views: int = 1
    """How many presentations of a pair an epoch has; `pair.epoch % views` is this one. Two are both orders: the source
    first, then the edited picture first."""
    given: bool = False
    """Whether its answers come from an import or a study: it is never asked, and an edit without an answer is not
    judged."""


class AcceptedJobs:
    """Work that providers have accepted, by the request's key. Safe to use from any thread.

    In memory, for editors that are used without a run; a run keeps it where a crash does not lose it.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}

    def open(self, key: str) -> str | None:
        """The job to ask for, if there is one."""
        return self._jobs.get(key)

    def add(self, key: str, job: str) -> None:
        """Remember a job. On return, a run has it where a crash does not lose it."""
        self._jobs[key] = job

    def answered(self, key: str) -> None:
        """The job gave a picture or a refusal, which is about to be saved."""
        self._jobs.pop(key, None)

    def end(self, key: str) -> None:
        """Forget a job that gives no picture, so that a new one may be made."""
        self._jobs.pop(key, None)
