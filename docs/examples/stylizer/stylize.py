"""Redraw the face of a portrait with MediaPipe's face stylizer: stylize.py MODEL SOURCE OUTPUT INSTRUCTION.

It reads no instruction. MediaPipe returns the face alone, 256 pixels, turned upright; it goes back to its place.
"""

import sys

import cv2
import mediapipe as mp
import numpy as np
from mediapipe.tasks.python import BaseOptions, vision

LEFT_EYE, RIGHT_EYE, MOUTH = (33, 133), (263, 362), (61, 291)


def draw(model: str, rgb: np.ndarray) -> np.ndarray | None:
    """What MediaPipe draws; None where it finds no face."""
    options = vision.FaceStylizerOptions(base_options=BaseOptions(model_asset_path=model))
    with vision.FaceStylizer.create_from_options(options) as stylizer:
        drawn = stylizer.stylize(mp.Image(image_format=mp.ImageFormat.SRGB, data=rgb))
        return None if drawn is None else drawn.numpy_view().copy()


def find_square(rgb: np.ndarray, side: int) -> np.ndarray | None:
    """From the picture's pixels into the square that MediaPipe cuts around eyes and mouth."""
    with mp.solutions.face_mesh.FaceMesh(static_image_mode=True, refine_landmarks=True) as mesh:
        found = mesh.process(rgb).multi_face_landmarks
    if not found:
        return None
    points = np.array([(point.x, point.y) for point in found[0].landmark]) * rgb.shape[1::-1]
    left, right, mouth = (points[list(part)].mean(axis=0) for part in (LEFT_EYE, RIGHT_EYE, MOUTH))
    between = (left + right) / 2
    across, down = right - left, mouth - between
    level = across + np.array([down[1], -down[0]])
    size = max(np.linalg.norm(down) * 3.6, np.linalg.norm(across) * 4.0)
    cosine, sine = level / np.linalg.norm(level) * side / size
    turn = np.array([[cosine, sine], [-sine, cosine]])
    return np.column_stack([turn, side / 2 - turn @ (between + 0.1 * down)])


def place(rgb: np.ndarray, drawn: np.ndarray, square: np.ndarray) -> np.ndarray:
    """The portrait with the drawing where the face was."""
    size = rgb.shape[1::-1]
    laid = cv2.warpAffine(drawn, square, size, flags=cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE)
    inside = cv2.warpAffine(np.ones(drawn.shape[:2], np.uint8), square, size, flags=cv2.WARP_INVERSE_MAP)
    return np.where(inside[..., None] > 0, laid, rgb)


if __name__ == "__main__":
    model, source, output, _instruction = sys.argv[1:]
    rgb = cv2.cvtColor(cv2.imread(source), cv2.COLOR_BGR2RGB)
    drawn = draw(model, rgb)
    square = None if drawn is None else find_square(rgb, drawn.shape[0])
    if drawn is None or square is None:
        sys.exit("no face found: MediaPipe sees none in this portrait")
    cv2.imwrite(output, cv2.cvtColor(place(rgb, drawn, square), cv2.COLOR_RGB2BGR))
