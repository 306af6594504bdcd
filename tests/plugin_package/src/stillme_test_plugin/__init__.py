"""A package of plugins outside of stillme, with editors that misbehave on purpose."""

from __future__ import annotations

import threading
import time

from stillme.core import images
from stillme.core.protocols import Capabilities, Editor, Judge, JudgeCapabilities, Needs, Parameters
from stillme.core.types import Assessment, Edited, Failed, Prompt, Rated, Refused


class Negative(Editor):
    """Inverts every colour."""

    capabilities = Capabilities(seed="exact")

    def edit_one(self, request):
        return Edited(image=images.encode_png(255 - images.read_rgb(request.portraits[0].image.path)))


class FlakyParameters(Parameters):
    failures: int = 1
    """How often each request fails before it works."""
    cost: float = 0.0


class Flaky(Editor):
    """Fails each request a number of times, then returns the portrait."""

    Parameters = FlakyParameters
    default_seed = 42
    shorthand = "failures"

    def __init__(self, parameters):
        super().__init__(parameters)
        self.capabilities = Capabilities(concurrency=2)
        self._parameters = parameters
        self._tried = {}
        self._lock = threading.Lock()

    def edit(self, requests):
        for request in requests:
            with self._lock:
                self._tried[request.key] = tried = self._tried.get(request.key, 0) + 1
            if tried <= self._parameters.failures:
                yield Failed(error="503 from nowhere", retryable=True, retry_after=0.0, cost=self._parameters.cost)
            else:
                yield Edited(image=request.portraits[0].image.read(), cost=self._parameters.cost)


class MoodyParameters(Parameters):
    raises: bool = False
    seconds: float = 0.0


class Moody(Editor):
    """Refuses every second prompt; raises or waits if set."""

    Parameters = MoodyParameters

    def __init__(self, parameters):
        super().__init__(parameters)
        self.capabilities = Capabilities(can_refuse=True)
        self._parameters = parameters

    def edit(self, requests):
        for request in requests:
            time.sleep(self._parameters.seconds)
            if self._parameters.raises:
                raise RuntimeError("out of memory")
            if int(request.key, 16) % 2:
                yield Refused(message="I would rather not.")
            else:
                yield Edited(image=request.portraits[0].image.read())


class StampedParameters(Parameters):
    price: float = 0.0


class Stamped(Editor):
    """Returns another picture each time, for a price."""

    Parameters = StampedParameters

    def __init__(self, parameters):
        super().__init__(parameters)
        self.capabilities = Capabilities()
        self._price = parameters.price

    def expected_dollars(self):
        return self._price

    def edit(self, requests):
        for request in requests:
            picture = images.read_rgb(request.portraits[0].image.path).copy()
            picture.flat[:8] = list(time.time_ns().to_bytes(8, "big"))
            yield Edited(image=images.encode_png(picture), cost=self._price)


class Crashing(Negative):
    """Raises when it is built."""

    def __init__(self, parameters):
        raise RuntimeError("no GPU")


class Formless(Negative):
    """Has parameters that are no model."""

    Parameters = dict


class Unready(Editor):
    """Needs a key and a package that do not exist."""

    needs = Needs(modules=("no_such_module",), extra="imaginary", variables=("STILLME_TEST_NO_SUCH_KEY",))

    def __init__(self, parameters):
        super().__init__(parameters)
        self.capabilities = Capabilities()

    def edit(self, requests):
        yield from ()


class Brightness(Judge):
    """Rates the mean brightness of the edit."""

    capabilities = JudgeCapabilities(kind="instrument", axes=("brightness",))

    def judge_one(self, pair):
        return Assessment(ratings={"brightness": Rated(score=float(images.read_rgb(pair.edited.path).mean()))})


class CrashingJudge(Brightness):
    """Raises when it is built."""

    def __init__(self, parameters):
        raise RuntimeError("no GPU")


def greetings():
    """Two ways to smile."""
    return tuple(
        Prompt(id=f"G-{number}", text=text, category="greeting", subcategory="smile")
        for number, text in enumerate(("Make the person smile.", "Make the person wave."))
    )
