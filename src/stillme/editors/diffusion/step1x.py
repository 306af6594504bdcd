"""Step1X-Edit v1.2, which needs a fork of diffusers and an old transformers: runs in a worker process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from stillme.core import images
from stillme.core.json_paths import dig
from stillme.core.programs.worker import WorkerFault, WorkerProcess
from stillme.core.protocols import Capabilities, Editor, Needs, Parameters
from stillme.core.types import Edited, EditOutcome, Failed, Json, Portrait, Prompt, Request, Spec
from stillme.editors.diffusion import machine
from stillme.editors.diffusion.weights import UnusableWeights, Weights, resolve

_BACKEND = Path(__file__).with_name("step1x_backend.py")
_RECIPE = (
    "create an environment with `pip install torch torchvision transformers==4.55.0 accelerate qwen-vl-utils pillow "
    "git+https://github.com/Peyton-Chen/diffusers@step1xedit_v1p2` and write its bin/python"
)


class Step1XParameters(Parameters):
    """The paper's settings, and where the other environment is."""

    repo: str = "stepfun-ai/Step1X-Edit-v1p2"
    revision: str = "main"
    steps: int = Field(default=28, ge=1, le=1000)
    true_cfg_scale: float = Field(default=6.0, ge=0)
    size_level: int = Field(default=1024, ge=256, le=4096)
    """The edit is made at about this side length and resized to the source."""
    thinking: bool = False
    """The model rewrites the prompt first."""
    reflection: bool = False
    """The model rates and redoes its edit."""
    region_e: bool = False
    """The RegionE accelerator, which works with 28 steps only."""
    device: str = Field(default="cuda", exclude=True, pattern=r"^cuda(:\d+)?$")
    """Which GPU. The weights run on no other device, so it cannot change the picture."""

    python: str = Field(default="", exclude=True)
    """The interpreter of the environment that has the fork."""
    offload: Literal["none", "model", "sequential"] = Field(default="none", exclude=True)
    timeout: float = Field(default=1800.0, gt=0, exclude=True)
    """Seconds to wait for an answer, including loading the weights."""


class Step1X(Editor):
    """Step1X-Edit v1.2, 19B: the paper's settings (28 steps, true CFG 6), in its own environment."""

    Parameters = Step1XParameters
    needs: ClassVar[Needs] = Needs(memory_gb=50, gpus=1)
    default_seed = 42

    def __init__(self, parameters: Step1XParameters) -> None:
        self._parameters = parameters
        self._weights = Weights.from_parameters(parameters, parameters.repo, parameters.revision)
        stated = {**parameters.model_dump(mode="json"), "dtype": "bfloat16", **self._weights.identity()}
        self.spec = Spec(use="step1x-edit-v1p2", version="1", parameters=stated)
        self.capabilities = Capabilities(
            seed="exact", steps="free", guidance=("true_cfg_scale",), rewrites_prompt=parameters.thinking
        )
        # A bare name is searched on the PATH; anything with a slash is a file.
        self._python = str(parameters.path(parameters.python)) if "/" in parameters.python else parameters.python
        self._recorded: Sequence[Mapping[str, Json]] = ()
        self._worker: WorkerProcess | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPU, where it is named."""
        return tuple(device for device in [self._parameters.device] if ":" in device)

    def keep_weights(self, recorded: Sequence[Mapping[str, Json]]) -> None:
        """Go on with the weights of earlier edits under the same key, although a branch may have moved."""
        self._recorded = recorded

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """A missing environment, and settings that would be rejected."""
        parameters = self._parameters
        if not parameters.python:
            yield f"`python` is missing: Step1X runs in its own environment; {_RECIPE}"
        elif shutil.which(self._python) is None:
            yield f"`python = {parameters.python!r}` is not an executable; {_RECIPE}"
        if parameters.region_e and parameters.steps != 28:
            yield f"`steps = {parameters.steps}` is rejected by RegionE; write 28 or `region_e = false`"

    def lacking(self, *, online: bool) -> Iterator[str]:
        """A GPU with enough memory."""
        whole = self._parameters.offload == "none"
        yield from machine.too_small(self.needs.memory_gb if whole else 0.0, machine.gpus(), None)

    def edit_one(self, request: Request) -> EditOutcome:
        """One edit after the other."""
        try:
            return self._edit(request)
        except WorkerFault as fault:
            return Failed(error=str(fault), retryable=fault.retryable, fatal=fault.fatal)
        except UnusableWeights as error:
            return Failed(error=str(error), retryable=False, fatal=True)

    def close(self) -> None:
        """End the worker."""
        if self._worker:
            self._worker.close()

    def _started(self) -> WorkerProcess:
        if self._worker is None:
            revision = self._weights.revision
            if self._recorded and not self._weights.is_folder:
                [revision] = resolve([self._weights], self._recorded)
            given = {**dict(self._parameters), "repo": self._weights.repo, "revision": revision}
            given["identity"] = self._weights.identity()
            self._worker = WorkerProcess(self._python, _BACKEND, given, timeout=self._parameters.timeout)
        return self._worker

    def _edit(self, request: Request) -> EditOutcome:
        source = images.read_rgb(request.portraits[0].image.path)
        names = ("steps", "true_cfg_scale", "size_level", "thinking", "reflection")
        message = {
            "do": "edit",
            "instruction": request.instruction,
            "seed": request.seed,
            "settings": {name: getattr(self._parameters, name) for name in names},
        }
        worker = self._started()
        answer = worker.ask(message, [images.encode_png(source)])
        effective = answer.message.get("effective", {})
        commit = dig(effective, "weights", "revision")
        if commit and not self._weights.is_folder:
            # Only the worker knows the hub; a process after a crash must not load what a branch means by then.
            worker.parameters = {**worker.parameters, "revision": commit}
        if len(answer.attached) != 1:
            return Failed(error=f"the worker sent {len(answer.attached)} images for one request", retryable=True)
        images.check(answer.attached[0], name="the worker's image")
        return Edited(image=answer.attached[0], effective=effective)
