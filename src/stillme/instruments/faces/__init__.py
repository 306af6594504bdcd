"""Find faces and people in a picture, on a CPU, with the networks in `weights/`.

    faces = find(rgb)                       # boxes and five points, the most prominent first
    face = mesh(rgb, faces[0])              # 468 points
    face_oval(face, rgb.shape)              # masks of the picture's size
    skin_mask(face, rgb.shape)
    person_mask(rgb) > 0.5

Pictures are 8-bit RGB arrays. All functions may be called from several threads and are deterministic.
"""

from stillme.instruments.faces.detection import Face, person_mask, prominence
from stillme.instruments.faces.landmarks import Mesh, face_oval, skin_mask
from stillme.instruments.faces.memory import find, mesh
from stillme.instruments.faces.raster import Mask, Picture, blur

__all__ = [
    "Face",
    "Mask",
    "Mesh",
    "Picture",
    "blur",
    "face_oval",
    "find",
    "mesh",
    "person_mask",
    "prominence",
    "skin_mask",
]
