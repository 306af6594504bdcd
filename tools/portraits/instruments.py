# SPDX-License-Identifier: GPL-3.0-or-later
"""Independent eyes on the pictures: a face detector and two age and gender estimators.

The estimators were taught on photographs; on renders they are judges of order,
not of years. Their weights are not part of this tool (see README.md).
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnxruntime

_DETECTION_SIZE = 320
_CONFIDENCE = 0.6


@dataclass(frozen=True)
class Face:
    """A detected face, in pixels of the picture."""

    box: np.ndarray
    eyes: np.ndarray
    confidence: float


@dataclass(frozen=True)
class Reading:
    """What the instruments read in one picture."""

    faces: int
    years: float
    """Mean of both estimators."""
    masculine: float
    """Mean probability of both estimators, 0…1."""


class Instruments:
    """The detector and estimators, loaded once."""

    def __init__(self, models: Path) -> None:
        self.detector = cv2.FaceDetectorYN.create(
            str(models / "yunet_2023mar.onnx"), "", (_DETECTION_SIZE, _DETECTION_SIZE), _CONFIDENCE
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1

        def session(name: str) -> onnxruntime.InferenceSession:
            return onnxruntime.InferenceSession(str(models / name), options, providers=["CPUExecutionProvider"])

        self.age, self.gender, self.both = (
            session("age-v1.onnx"),
            session("gender-v1.onnx"),
            session("faceapi_agegender.onnx"),
        )

    def faces(self, rgb: np.ndarray) -> list[Face]:
        scale = rgb.shape[0] / _DETECTION_SIZE
        small = cv2.resize(rgb, (_DETECTION_SIZE, _DETECTION_SIZE), interpolation=cv2.INTER_AREA)
        found = self.detector.detect(cv2.cvtColor(small, cv2.COLOR_RGB2BGR))[1]
        rows = [] if found is None else found
        return [Face(row[:4] * scale, row[4:8].reshape(2, 2) * scale, float(row[14])) for row in rows]

    def read(self, rgb: np.ndarray) -> Reading | None:
        """None if no face is found: then there is nothing to read."""
        faces = self.faces(rgb)
        if not faces:
            return None
        face = max(faces, key=lambda one: one.confidence)
        age = self.age.run(None, {"images": _cydral_input(rgb, face, 64)})[0][0]
        gender = self.gender.run(None, {"images": _cydral_input(rgb, face, 32)})[0][0]
        years, sexes = self.both.run(None, {"x": _square(rgb, face, 112)})
        return Reading(
            faces=len(faces),
            years=(float(age @ np.arange(81)) + float(years[0, 0])) / 2,
            masculine=(float(gender[1]) + float(sexes[0, 0])) / 2,
        )


def _cydral_input(rgb: np.ndarray, face: Face, size: int) -> np.ndarray:
    """dlib's aligned chip with padding 0.2, from the eyes alone; normalised as the models' manifest says."""
    # Where dlib's mean face has its eyes, in a chip of that padding.
    goal = np.array([[0.3052, 0.3009], [0.6806, 0.3009]]) * size
    eyes = face.eyes[np.argsort(face.eyes[:, 0])]
    turn, stretch = eyes[1] - eyes[0], goal[1] - goal[0]
    ratio = complex(*stretch) / complex(*turn)
    rotation = np.array([[ratio.real, -ratio.imag], [ratio.imag, ratio.real]])
    matrix = np.c_[rotation, goal[0] - rotation @ eyes[0]]
    # Warping shrinks by skipping pixels, so the picture is first blurred to the chip's scale.
    blurred = cv2.GaussianBlur(rgb, (0, 0), max(0.1, 0.4 / abs(ratio)))
    chip = cv2.warpAffine(blurred, matrix, (size, size)).astype(np.float32)
    chip = (chip - np.array([122.782, 117.001, 104.298], np.float32)) / 256
    return chip.transpose(2, 0, 1)[None]


def _square(rgb: np.ndarray, face: Face, size: int) -> np.ndarray:
    """The face's box grown to a square, as face-api crops it; the network normalises itself."""
    x, y, width, height = face.box
    half, cx, cy = max(width, height) * 0.55, x + width / 2, y + height / 2
    padded = cv2.copyMakeBorder(rgb, 200, 200, 200, 200, cv2.BORDER_REPLICATE)
    left, top, side = int(cx - half) + 200, int(cy - half) + 200, int(2 * half)
    crop = cv2.resize(padded[top : top + side, left : left + side], (size, size), interpolation=cv2.INTER_AREA)
    return crop.astype(np.float32).transpose(2, 0, 1)[None]
