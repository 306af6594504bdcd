from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stillme.instruments import faces
from stillme.instruments.faces import detection, landmarks
from stillme.instruments.faces.chips import chip
from stillme.instruments.faces.raster import warp
from tests.instruments.known_changes import one, some


def test_every_portrait_has_exactly_one_face() -> None:
    for rgb in some(7):
        assert len(faces.find(rgb)) == 1


def test_the_box_holds_the_five_points_and_the_eyes_are_in_order() -> None:
    face = faces.find(one())[0]
    assert (face.points > [face.left, face.top]).all()
    assert (face.points < [face.left + face.width, face.top + face.height]).all()
    assert face.points[0, 0] < face.points[1, 0]  # the person's right eye is on the left of the picture


FACELESS = {
    "black": np.zeros((300, 300, 3)),
    "noise": np.random.default_rng(0).integers(0, 256, (300, 300, 3)),
    "stripes": np.tile(np.repeat([255, 0], 10)[:, None, None], (15, 300, 3)),
    "one pixel": np.zeros((1, 1, 3)),
    "a line": np.zeros((2, 900, 3)),
}


@pytest.mark.parametrize("picture", FACELESS)
def test_no_face_is_found_where_there_is_none(picture: str) -> None:
    assert faces.find(FACELESS[picture].astype(np.uint8)) == []


@pytest.mark.parametrize("share", [0.12, 0.3, 1.0])
def test_a_face_is_found_whether_it_is_small_or_fills_the_frame(share: float) -> None:
    face = faces.find(one())[0]
    room = (1 / share - 1) / 2
    rgb = np.pad(one(), [(round(face.height * room),) * 2, (round(face.height * room),) * 2, (0, 0)], mode="edge")
    if share == 1.0:
        rgb = one()[int(face.top) : int(face.top + face.height), int(face.left) : int(face.left + face.width)]
    assert len(faces.find(rgb)) == 1


def test_of_two_faces_the_large_central_one_comes_first() -> None:
    rgb = one().copy()
    small = one()[::4, ::4]
    rgb[: small.shape[0], : small.shape[1]] = small
    detected = faces.find(rgb)
    assert len(detected) == 2
    assert detected[0].size > detected[1].size


def test_the_mesh_follows_a_turned_and_shrunk_face() -> None:
    rgb = one()
    height, width = rgb.shape[:2]
    angle, scale = np.radians(20), 0.5
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array([width / 2, height / 2])
    matrix = np.hstack([turn, (middle - turn @ middle)[:, None]])
    turned = warp(rgb, matrix, width, height, outside="edge")
    before = faces.mesh(rgb, faces.find(rgb)[0])
    after = faces.mesh(turned, faces.find(turned)[0])
    expected = before.points @ matrix[:, :2].T + matrix[:, 2]
    error = np.linalg.norm(after.points - expected, axis=1).mean() / after.eye_distance
    assert error < 0.05


def test_skin_is_part_of_the_face_and_leaves_out_eyes_and_mouth() -> None:
    rgb = one()
    mesh = faces.mesh(rgb, faces.find(rgb)[0])
    skin, oval = faces.skin_mask(mesh, rgb.shape), faces.face_oval(mesh, rgb.shape)
    assert 0.2 < skin.sum() / oval.sum() < 0.7
    assert not (skin & ~oval).any()
    for point in (159, 386, 13, 14, 152):  # eyes, lips, chin
        x, y = np.round(mesh.points[point]).astype(int)
        assert not skin[y, x]


def test_the_person_mask_tells_the_person_from_the_wall() -> None:
    mask = faces.person_mask(one())
    height, width = mask.shape
    assert mask.shape == one().shape[:2]
    assert mask[height // 2, width // 2] > 0.9
    assert mask[2, 2] < 0.1


def test_a_chip_is_upright_and_centred() -> None:
    rgb = one()
    cut = chip(rgb, faces.mesh(rgb, faces.find(rgb)[0]), 150, 0.25)
    eyes = faces.find(np.pad(cut, ((60, 60), (60, 60), (0, 0)), mode="edge"))[0].points[:2] - 60
    assert abs(eyes[0, 1] - eyes[1, 1]) < 6
    assert abs(eyes[:, 0].mean() - 75) < 8


def test_threads_get_the_same_numbers_as_one_alone() -> None:
    pictures = some(4) * 3

    def look(rgb: np.ndarray) -> bytes:
        face = detection.find(rgb)[0]  # nothing is recalled
        return face.points.tobytes() + landmarks.mesh(rgb, face).points.tobytes() + faces.person_mask(rgb).tobytes()

    alone = [look(rgb) for rgb in pictures]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, pictures)) == alone


def test_importing_the_judge_loads_neither_opencv_nor_onnxruntime() -> None:
    code = "import sys, stillme.instruments.judge; print({'cv2', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
