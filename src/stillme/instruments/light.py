"""Predict what a picture-wide change would have made of the skin, from everything that is not skin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import Floats
from stillme.core.types import Abstained
from stillme.instruments import tones
from stillme.instruments.faces.raster import Mask, blur, grow
from stillme.instruments.scene import Parts, Person, View
from stillme.instruments.skin import Skin
from stillme.instruments.thresholds import load_thresholds
from stillme.instruments.tones import Doubles, ToneChange

_BACKGROUND, _HAIR, _CLOTHES = 1, 2, 3
_NAMES = {_BACKGROUND: "background", _HAIR: "hair", _CLOTHES: "clothes"}
_MOST = {_BACKGROUND: 260, _HAIR: 130, _CLOTHES: 130}
"""Witnesses of each kind: more cost time and add nothing, as neighbours err alike."""
_SPOTS = 60
"""Spots of skin at which the uncertainty is read."""
_OUTLINE = 3
_RIM = 6
"""Pixels of a view along outlines, and around the face, where skin and something else mix."""
_BLACK, _WHITE = 0.01, 0.985
"""Tones beyond which a channel may be clipped."""
_PATTERN, _AROUND = 2.0, 3.0
"""Pixels of a thinned view: the coarsest pattern that must stay, and around how far it is compared."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witnesses:
    """Pixels of a source's thinned view that are not skin, and what of them does not depend on an edit."""

    rows: NDArray[np.int64]
    kind: NDArray[np.int8]
    tones: Doubles
    features: Doubles
    steady: Doubles
    """Their weights, up to 1, where the picture was moved: in a pattern, half a pixel looks like another tone."""
    pattern: Floats
    energy: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Light:
    """How the light of the edited picture differs from the source's."""

    known: bool
    note: str
    """Why it is not known, otherwise."""
    stops: float = 0.0
    """The change of light at the skin."""
    deviation: float = 0.0
    """Its standard deviation."""
    kept: float = 0.0
    """The share of witnesses that the change explains."""
    witnesses: str = ""
    """What showed the light."""
    change: ToneChange | None = None
    """Nothing where the light did not change, or is not known."""

    def predict(self, skin: Skin) -> Floats:
        """The skin of the source in the light of the edited picture, in linear light."""
        if self.change is None:
            return skin.linear
        found = tones.to_tones(skin.linear)
        return tones.to_linear(found + self.change.change(tones.describe(found, skin.place)).T)


UNCHANGED = Light(known=True, note="", kept=1.0)


def find_witnesses(view: View, parts: Parts, person: Person, skin: Skin) -> Witnesses:
    """Choose background, hair and clothes of a source: no skin-coloured pixels, no neck, no outlines."""
    apart = ~(grow(parts.face, _RIM) | _neck(person, parts.face.shape))
    small = view.thinned()
    plain = ~_skin_coloured(small.lab, skin)
    kinds: NDArray[np.int8] = np.zeros(small.lab.shape[:2], dtype=np.int8)
    for kind, mask in ((_BACKGROUND, parts.background), (_HAIR, parts.hair), (_CLOTHES, parts.clothes)):
        kinds[(grow(mask, -_OUTLINE) & apart)[::2, ::2] & plain] = kind
    rows = np.concatenate([_spread(np.flatnonzero(kinds == kind), most) for kind, most in _MOST.items()])
    height, width = kinds.shape[0], kinds.shape[1]
    down, across = np.divmod(rows, width)
    found = tones.to_tones(small.linear.reshape(-1, 3)[rows])
    pattern = _pattern(small)
    energy = blur(pattern**2, _AROUND)
    return Witnesses(
        rows=rows,
        kind=kinds.ravel()[rows],
        tones=found,
        features=tones.describe(found, np.stack([(across + 0.5) / width, (down + 0.5) / height], axis=1)),
        steady=1 / (1 + energy.ravel()[rows].astype(np.float64) / load_thresholds().light.patterned ** 2),
        pattern=pattern,
        energy=energy,
    )


def compare_light(witnesses: Witnesses, edited: View, skin: Skin, covered: Mask | None) -> Light:
    """Learn the change of light from the witnesses, and whether to trust it at the skin.

    `covered` is where the edited picture reaches, if it was moved to lie on its source.
    """
    thresholds = load_thresholds().light
    small = edited.thinned()
    after = tones.to_tones(small.linear.reshape(-1, 3)[witnesses.rows])
    usable = ~_redrawn(witnesses, small).ravel()[witnesses.rows]
    for found in (witnesses.tones, after):
        usable &= (found.min(axis=1) >= _BLACK) & (found.max(axis=1) <= _WHITE)
    if covered is not None:
        usable &= covered[::2, ::2].ravel()[witnesses.rows]
    trial = _Trial(
        kind=witnesses.kind[usable],
        tones=witnesses.tones[usable],
        features=witnesses.features[:, usable],
        steady=np.ones(np.count_nonzero(usable)) if covered is None else witnesses.steady[usable],
        change=(after - witnesses.tones)[usable].T,
    )
    if trial.is_unchanged():
        return UNCHANGED
    if len(trial.kind) < thresholds.fewest:
        return _unknown("too little of the background, hair and clothes can be compared")
    found = _tried(trial, skin)
    behind = trial.kind == _BACKGROUND
    if found.known or not trial.has(_BACKGROUND) or behind.all():
        return found
    if trial.stood_still(_BACKGROUND):
        return _unknown(f"the background stayed as it was, and {found.note}")
    # A new background says nothing about the light on the person; hair and clothes may.
    alone = trial.some(~behind)
    return found if len(alone.kind) < thresholds.fewest_of_a_kind else _tried(alone, skin)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trial:
    """The witnesses that can be compared, and how they changed."""

    kind: NDArray[np.int8]
    tones: Doubles
    features: Doubles
    steady: Doubles
    change: Doubles

    def some(self, which: Mask) -> _Trial:
        return _Trial(
            kind=self.kind[which],
            tones=self.tones[which],
            features=self.features[:, which],
            steady=self.steady[which],
            change=self.change[:, which],
        )

    def has(self, kind: int) -> bool:
        return int(np.count_nonzero(self.kind == kind)) >= load_thresholds().light.fewest_of_a_kind

    def kinds(self) -> Iterator[int]:
        return (kind for kind in _NAMES if self.has(kind))

    @property
    def moved(self) -> Doubles:
        """By how many L* each witness changed."""
        return 100 * np.sqrt((self.change**2).mean(axis=0))

    def stood_still(self, kind: int) -> bool:
        thresholds = load_thresholds().light
        return self.share(self.moved <= thresholds.still, self.kind == kind) >= thresholds.kept

    def share(self, which: Mask, among: Mask) -> float:
        """The share of these witnesses among those, by weight."""
        return float(np.average(which[among], weights=self.steady[among]))

    def is_unchanged(self) -> bool:
        """Whether the background, and hair or clothes, show that the light is the same."""
        return self._shows_none(_BACKGROUND) and (self._shows_none(_HAIR) or self._shows_none(_CLOTHES))

    def is_calm(self) -> bool:
        """Whether no kind of witness moved, and one of them is bright enough to show it."""
        kinds = list(self.kinds())
        return all(self.stood_still(kind) for kind in kinds) and any(self._shows_none(kind) for kind in kinds)

    def _shows_none(self, kind: int) -> bool:
        """In stops as well, as dark tones hardly move; the darkest show nothing."""
        thresholds = load_thresholds().light
        telling = (self.kind == kind) & (self.tones.mean(axis=1) > thresholds.telling)
        if np.count_nonzero(telling) < thresholds.fewest_of_a_kind:
            return False
        stops = np.abs(tones.in_stops(self.change[:, telling], self.tones[telling]))
        calm = self.share(self.moved <= thresholds.unchanged, telling) >= thresholds.kept
        return calm and float(np.median(stops)) <= thresholds.unchanged_stops


def _tried(trial: _Trial, skin: Skin) -> Light:
    """Learn from these witnesses, and check whether that can be trusted at the skin."""
    thresholds = load_thresholds().light
    # Hair above and clothes below do not show how light varies over the face between them.
    learnt = tones.learn(
        trial.features, trial.change, trial.tones, trial.steady, calm=trial.is_calm(), uneven=trial.has(_BACKGROUND)
    )
    explained = tones.errors(learnt, trial.features, trial.change) <= thresholds.inlier
    kept = trial.share(explained, np.ones_like(explained))
    if kept < thresholds.kept:
        return _unknown(f"only {kept:.0%} of the background, hair and clothes changed alike")
    left = tones.in_stops(trial.change - learnt.change(trial.features), trial.tones)
    for kind in trial.kinds():
        if abs(float(np.median(left[trial.kind == kind]))) > thresholds.regions:
            return _unknown(f"the {_NAMES[kind]} changed differently from the rest")
    skin_tones = tones.to_tones(skin.linear)
    low, high = np.quantile(skin_tones, (0.1, 0.9), axis=0)
    slopes = learnt.slopes(low - 0.05, high + 0.05)
    if slopes.min() < thresholds.slope[0] or slopes.max() > thresholds.slope[1]:
        return _unknown("the change of tones near the skin's is too steep or too flat to be one of light")
    some = np.linspace(0, len(skin_tones) - 1, _SPOTS).astype(np.int64)
    spots = tones.describe(skin_tones[some], skin.place[some])
    deviation = learnt.deviation(spots, skin_tones[some])
    if deviation > thresholds.deviation:
        return _unknown(f"nothing like the skin shows it: ± {deviation:.2f} stop, of at most {thresholds.deviation}")
    change = learnt.change(spots)
    if (doubtful := _hangs_on(trial, learnt, spots, change)) is not None:
        return _unknown(f"only the {_NAMES[doubtful]} would show it")
    return Light(
        known=True,
        note="",
        stops=float(np.median(tones.in_stops(change, skin_tones[some]))),
        deviation=deviation,
        kept=kept,
        witnesses=", ".join(_NAMES[kind] for kind in trial.kinds()),
        change=learnt,
    )


def _hangs_on(trial: _Trial, learnt: ToneChange, spots: Doubles, change: Doubles) -> int | None:
    """The witnesses without which another light would be found, if there are such."""
    limit = load_thresholds().light.alone / 100
    for kind in (_BACKGROUND, _CLOTHES):
        rest = trial.kind != kind
        if not trial.has(kind) or np.count_nonzero(rest) < load_thresholds().light.fewest_of_a_kind:
            continue
        other = learnt.without(trial.features, trial.change, rest).change(spots)
        if abs(float(np.median(tones.LUMINANCE @ (other - change)))) > limit:
            return kind
    return None


def _unknown(note: str) -> Light:
    return Light(known=False, note=note)


def unlit(why: Abstained) -> Light:
    """The light where there is no skin to be lit."""
    return _unknown(why.reason)


def _spread(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return rows if len(rows) <= most else rows[np.arange(most) * len(rows) // most]


def _neck(person: Person, shape: tuple[int, ...]) -> Mask:
    """Under the chin, as wide as the face: with the neck among the witnesses, lightened skin passes for light."""
    scale = shape[1] / person.rgb.shape[1]
    left, top = person.mesh.points.min(axis=0) * scale
    right, chin = person.mesh.points.max(axis=0) * scale
    tall = chin - top
    neck = np.zeros(shape[:2], dtype=np.bool_)
    neck[max(int(chin - 0.3 * tall), 0) : max(int(chin + 0.35 * tall), 0), max(int(left), 0) : max(int(right), 0)] = (
        True
    )
    return neck


def _skin_coloured(lab: Floats, skin: Skin) -> Mask:
    thresholds = load_thresholds().light
    light, red, yellow = skin.lab
    near = thresholds.skin_hue * float(np.hypot(red, yellow)) + thresholds.skin_chroma
    alike = np.hypot(lab[..., 1] - red, lab[..., 2] - yellow) < near
    return alike & (np.abs(lab[..., 0] - light) < thresholds.skin_lightness)


def _pattern(small: View) -> Floats:
    light = np.ascontiguousarray(small.lab[..., 0])
    return light - blur(light, _PATTERN)


def _redrawn(witnesses: Witnesses, edited: View) -> Mask:
    """Where the pattern is another one; plain spots have none to tell by."""
    thresholds = load_thresholds().light
    pattern = _pattern(edited)
    energy = blur(pattern**2, _AROUND)
    shared = blur(pattern * witnesses.pattern, _AROUND)
    patterned = np.maximum(energy, witnesses.energy) > thresholds.patterned**2
    return patterned & (shared < thresholds.same_pattern * np.sqrt(np.maximum(energy * witnesses.energy, 1e-6)))
