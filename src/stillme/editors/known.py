"""Changes of exactly known size, one per prompt, for calibrating judges.

The prompt's id names the change, as in `skin+4` or `exposure-0.5`; `CHANGES` lists the kinds. Everything else in the
picture stays the same, to the pixel where the change allows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.protocols import Capabilities, Editor, Parameters
from stillme.core.types import Edited, EditOutcome, Portrait, Prompt, Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Noop(Editor):
    """Returns the portrait as it is, byte for byte."""

    capabilities = Capabilities(batching="per_item", batch=16, seed="exact")

    def edit_one(self, request: Request) -> EditOutcome:
        """The portrait of the request."""
        return Edited(image=request.portraits[0].image.read())


Picture: TypeAlias = "NDArray[np.uint8]"

INSTRUCTION = "Dress the person in a dark suit."
"""What every known change names as its edit: none of them makes it."""
STEPS = (-12, -10, -8, -6, -4, -2, 2, 4, 6, 8, 10, 12)
"""Skin ramp, in L* units."""
STOPS = (-0.5, 0.5)
"""Exposure, in stops."""


class KnownParameters(Parameters):
    """Who replaces whom when the person is swapped."""

    strangers: dict[str, str] = {}
    """Portrait id to the path of another person's picture."""


def prompts() -> tuple[Prompt, ...]:
    """One prompt per known change of a rendered portrait. All ask for the same edit, and none of them makes it."""
    names = ["identical", "jpeg", "resized", "black", "swapped"]
    return _asking(names + [f"exposure{stops:+}" for stops in STOPS] + [f"skin{step:+}" for step in STEPS])


def photograph_prompts() -> tuple[Prompt, ...]:
    """Likewise of a photograph: only there is another person as far away as people are."""
    names = ["identical", "jpeg", "resized", "black", "stranger"]
    return _asking(names + [f"exposure{stops:+}" for stops in STOPS])


def _asking(names: Sequence[str]) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(id=name, text=INSTRUCTION, category="calibration", subcategory=name.rstrip("+-.0123456789"))
        for name in names
    )


class Known(Editor):
    """Applies changes of exactly known size, for calibrating judges."""

    Parameters = KnownParameters
    version = "2"
    capabilities = Capabilities(batching="shared_image", batch=8, concurrency=2, seed="exact")

    def __init__(self, parameters: KnownParameters) -> None:
        super().__init__(parameters)
        self.strangers: Mapping[str, str] = parameters.strangers

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Prompts that name no change, and portraits without a replacement to swap in."""
        for prompt in prompts:
            if prompt.subcategory not in CHANGES:
                yield f"the prompt {prompt.id!r} names no known change; use the prompt set `calibration`"
        if any(prompt.subcategory in ("swapped", "stranger") for prompt in prompts):
            for portrait in portraits:
                if portrait.id not in self.strangers:
                    yield f"`strangers` has no picture for the portrait {portrait.id!r}; add one"

    def edit_one(self, request: Request) -> EditOutcome:
        """Apply the prompt's change."""
        kind = request.prompt.subcategory
        amount = float(request.prompt.id.removeprefix(kind) or 0)
        changed = CHANGES[kind](self, request.portraits[0], amount)
        data = changed if isinstance(changed, bytes) else images.encode_png(changed)
        return Edited(image=data, truth={"kind": kind, "amount": amount})


def _identical(_: Known, portrait: Portrait, _amount: float) -> Picture | bytes:
    return portrait.image.read()


def _jpeg(_: Known, portrait: Portrait, _amount: float) -> Picture | bytes:
    buffer = io.BytesIO()
    images.read_picture(portrait.image.path).save(buffer, "JPEG", quality=75)
    return buffer.getvalue()


def _resized(_: Known, portrait: Portrait, _amount: float) -> Picture | bytes:
    import numpy as np
    from PIL import Image

    picture = images.read_picture(portrait.image.path)
    small = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.LANCZOS)
    return np.asarray(small.resize(picture.size, Image.Resampling.LANCZOS))


def _black(_: Known, portrait: Portrait, _amount: float) -> Picture | bytes:
    return 0 * images.read_rgb(portrait.image.path)


def _swapped(known: Known, portrait: Portrait, _amount: float) -> Picture | bytes:
    return images.read_rgb(Path(known.strangers[portrait.id]))


def _exposure(_: Known, portrait: Portrait, amount: float) -> Picture | bytes:
    import numpy as np

    from stillme.core import colour

    linear = colour.to_linear(images.read_rgb(portrait.image.path))
    return colour.to_srgb((linear * np.float32(2**amount)).astype(np.float32))


def _skin(_: Known, portrait: Portrait, amount: float) -> Picture | bytes:
    from stillme.editors.regions import regions_of

    regions = regions_of(portrait.image)
    if regions is None:
        raise UnreadableImage(f"no face found in portrait {portrait.id!r}")
    return regions.painted(skin_shift=amount)


CHANGES: Mapping[str, Callable[[Known, Portrait, float], Picture | bytes]] = {
    "identical": _identical,
    "jpeg": _jpeg,
    "resized": _resized,
    "black": _black,
    "swapped": _swapped,
    "stranger": _swapped,
    "exposure": _exposure,
    "skin": _skin,
}
