# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the Blender scene of one portrait: meshes, materials, lamps, camera."""

import math
from dataclasses import dataclass, replace

import bpy
import mathutils
import numpy as np

from . import eyes, garment, hair, light
from .chart import chart_uv
from .colour import hex_to_srgb, srgb_to_linear
from .identity import shaped_vertices
from .mesh import base_mesh, head_frame, part
from .parameters import Hair, Parameters
from .skin import DEEPEST, HIGHEST, paint_skin

_METRES = 0.1
_FOCAL, _SENSOR = 105.0, 36.0
_DISTANCE = 1.12
"""Camera to eyes in metres for a head of base size; heads are framed by the distance of their eyes."""
_EYE_LEVEL = 0.025
"""How far the camera's axis runs under the eyes, in metres."""


@dataclass(frozen=True)
class SkinPatch:
    """A box in the picture (fractions of its side) that shows only skin."""

    name: str
    left: float
    top: float
    right: float
    bottom: float


def _to_blender(points: np.ndarray) -> np.ndarray:
    """MakeHuman looks along +z with y up, Blender along -y with z up."""
    points = np.asarray(points, float)
    return np.stack([points[..., 0], -points[..., 2], points[..., 1]], -1) * _METRES


def _add_mesh(name: str, vertices: np.ndarray, faces: np.ndarray, uv: np.ndarray | None, subdivisions: int):
    mesh = bpy.data.meshes.new(name)
    mesh.from_pydata(_to_blender(vertices).tolist(), [], faces.tolist())
    if uv is not None:
        mesh.uv_layers.new(name="UV").data.foreach_set("uv", np.asarray(uv, np.float32).ravel())
    mesh.polygons.foreach_set("use_smooth", [True] * len(mesh.polygons))
    mesh.update()
    thing = bpy.data.objects.new(name, mesh)
    bpy.context.scene.collection.objects.link(thing)
    if subdivisions:
        modifier = thing.modifiers.new("subdivide", "SUBSURF")
        modifier.levels = modifier.render_levels = subdivisions
    return thing


def _add_attribute(thing, name: str, values: np.ndarray) -> None:
    thing.data.attributes.new(name, "FLOAT", "POINT").data.foreach_set("value", values.astype(np.float32))


def _add_strands(name: str, strands: hair.Strands, material) -> None:
    count, points = strands.points.shape[:2]
    curves = bpy.data.hair_curves.new(name)
    curves.add_curves([points] * count)
    curves.attributes["position"].data.foreach_set("vector", _to_blender(strands.points).astype(np.float32).ravel())
    radii = np.tile(np.linspace(1, 0.3, points), count) * strands.radius * _METRES
    radius = curves.attributes.get("radius") or curves.attributes.new("radius", "FLOAT", "POINT")
    radius.data.foreach_set("value", radii.astype(np.float32))
    curves.materials.append(material)
    bpy.context.scene.collection.objects.link(bpy.data.objects.new(name, curves))


class _Nodes:
    """A material's nodes, made and wired in few words."""

    def __init__(self, name: str) -> None:
        self.material = bpy.data.materials.new(name)
        if not self.material.node_tree:
            self.material.use_nodes = True
        self.tree = self.material.node_tree
        self.shader = self.tree.nodes["Principled BSDF"]

    def add(self, kind: str, **inputs):
        node = self.tree.nodes.new(kind)
        for name, value in inputs.items():
            self.set(node, name.replace("_", " "), value)
        return node

    def set(self, node, name: str, value) -> None:
        if isinstance(value, bpy.types.NodeSocket):
            self.tree.links.new(value, node.inputs[name])
        else:
            node.inputs[name].default_value = value

    def shade(self, **inputs) -> None:
        for name, value in inputs.items():
            self.set(self.shader, name.replace("_", " "), value)

    def picture(self, name: str, pixels: np.ndarray):
        """A texture from an array with row 0 at the top; values are linear."""
        height, width = pixels.shape[:2]
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, -1)
        rgba = np.ones((height, width, 4), np.float32)
        rgba[..., :3] = pixels[::-1]
        image = bpy.data.images.new(name, width, height, alpha=False, float_buffer=True)
        image.colorspace_settings.name = "Non-Color"
        image.pixels.foreach_set(rgba.ravel())
        image.update()
        node = self.tree.nodes.new("ShaderNodeTexImage")
        node.image, node.interpolation, node.extension = image, "Cubic", "EXTEND"
        return node.outputs["Color"]


def _skin_material(person):
    nodes = _Nodes("skin")
    skin = paint_skin(person)
    lightness = person.skin_lab[0] / 100
    relief = nodes.picture("relief", (skin.relief - DEEPEST) / (HIGHEST - DEEPEST))
    bump = nodes.add("ShaderNodeBump", Strength=1.0, Distance=(HIGHEST - DEEPEST) / 1000, Height=relief)
    gloss = nodes.picture("gloss", skin.gloss)
    roughness = nodes.add("ShaderNodeMapRange", Value=gloss)
    roughness.inputs["To Min"].default_value, roughness.inputs["To Max"].default_value = 0.56, 0.42
    nodes.shade(
        Base_Color=nodes.picture("albedo", skin.albedo),
        Normal=bump.outputs["Normal"],
        Roughness=roughness.outputs["Result"],
        IOR=1.4,
        Specular_IOR_Level=0.46,
        # Light travels further in light skin, which softens its shadows.
        Subsurface_Weight=0.50 + 0.40 * lightness,
        Subsurface_Radius=(1.0, 0.32, 0.18),
        Subsurface_Scale=0.0040 * (0.45 + 0.6 * lightness),
    )
    nodes.shader.subsurface_method = "BURLEY"
    return nodes.material


def _hair_material(name: str, own: Hair, grey: float):
    nodes = _Nodes(name)
    tree = nodes.tree
    tree.nodes.remove(nodes.shader)

    def strand(melanin: float, redness: float):
        shader = tree.nodes.new("ShaderNodeBsdfHairPrincipled")
        shader.parametrization = "MELANIN"
        values = {"Melanin": melanin, "Melanin Redness": redness, "Roughness": 0.34, "Radial Roughness": 0.45,
                  "Random Color": 0.18, "Random Roughness": 0.2}  # fmt: skip
        for key, value in values.items():
            shader.inputs[key].default_value = value
        return shader.outputs[0]

    surface = strand(own.melanin, own.redness)
    if grey > 0:
        chance = nodes.add("ShaderNodeMath")
        chance.operation = "LESS_THAN"
        tree.links.new(tree.nodes.new("ShaderNodeHairInfo").outputs["Random"], chance.inputs[0])
        chance.inputs[1].default_value = grey
        mix = tree.nodes.new("ShaderNodeMixShader")
        tree.links.new(chance.outputs[0], mix.inputs[0])
        tree.links.new(surface, mix.inputs[1])
        tree.links.new(strand(0.05, 0.0), mix.inputs[2])
        surface = mix.outputs[0]
    tree.links.new(surface, tree.nodes["Material Output"].inputs["Surface"])
    return nodes.material


def _eye_material(person):
    nodes = _Nodes("eye")
    nodes.shade(
        Base_Color=nodes.picture("eye", eyes.paint_eye(person.iris, person.age, person.seed)),
        Roughness=0.35,
        Specular_IOR_Level=0.2,
        Coat_Weight=1.0,
        Coat_Roughness=0.03,
        Coat_IOR=1.36,
        Subsurface_Weight=0.12,
        Subsurface_Radius=(1.0, 0.4, 0.3),
        Subsurface_Scale=0.001,
    )
    nodes.shader.subsurface_method = "BURLEY"
    return nodes.material


def _cloth_material(name: str, colour: str, pattern: str, cut: bool):
    nodes = _Nodes(name)
    dye = srgb_to_linear(hex_to_srgb(garment.GARMENT_COLOURS[colour]))
    place = nodes.add("ShaderNodeTexCoord").outputs["Object"]
    folds = nodes.add("ShaderNodeTexNoise", Vector=place, Scale=14.0, Detail=2.0)
    weave = nodes.add("ShaderNodeTexNoise", Vector=place, Scale=1400.0, Detail=1.0)
    fold_bump = nodes.add("ShaderNodeBump", Strength=0.6, Distance=0.012, Height=folds.outputs[0])
    weave_bump = nodes.add(
        "ShaderNodeBump", Strength=0.35, Distance=0.0008, Height=weave.outputs[0], Normal=fold_bump.outputs["Normal"]
    )
    other = {"plain": dye * 0.86, "heather": dye * 0.45 + 0.20, "stripes": dye * 0.25 + 0.45}[pattern]
    mix = nodes.tree.nodes.new("ShaderNodeMix")
    mix.data_type = "RGBA"
    mix.inputs["A"].default_value, mix.inputs["B"].default_value = (*dye, 1), (*other, 1)
    if pattern == "stripes":
        height = nodes.add("ShaderNodeAttribute")
        height.attribute_name = "stripe"
        wave = nodes.add("ShaderNodeMath")
        wave.operation = "PINGPONG"
        nodes.tree.links.new(height.outputs["Fac"], wave.inputs[0])
        wave.inputs[1].default_value = 0.16
        step = nodes.add("ShaderNodeMath")
        step.operation = "GREATER_THAN"
        nodes.tree.links.new(wave.outputs[0], step.inputs[0])
        step.inputs[1].default_value = 0.115
        nodes.tree.links.new(step.outputs[0], mix.inputs["Factor"])
    else:
        grain = nodes.add("ShaderNodeTexNoise", Vector=place, Scale=500.0 if pattern == "heather" else 40.0, Detail=3.0)
        nodes.tree.links.new(grain.outputs[0], mix.inputs["Factor"])
    nodes.shade(
        Base_Color=mix.outputs["Result"],
        Normal=weave_bump.outputs["Normal"],
        Roughness=0.9,
        Specular_IOR_Level=0.12,
        Sheen_Weight=0.12,
    )
    if cut:
        field = nodes.add("ShaderNodeAttribute")
        field.attribute_name = "cut"
        keep = nodes.add("ShaderNodeMath")
        keep.name = "keep"
        keep.operation = "GREATER_THAN"
        nodes.tree.links.new(field.outputs["Fac"], keep.inputs[0])
        keep.inputs[1].default_value = 1.0
        nodes.shade(Alpha=keep.outputs[0])
    return nodes.material


def _add_garment(clothes: garment.Garment, colour: str) -> None:
    body = _add_mesh("garment", clothes.body.vertices, clothes.body.faces, None, 2)
    _add_attribute(body, "cut", clothes.cut)
    _add_attribute(body, "stripe", clothes.stripe)
    body.data.materials.append(_cloth_material("cloth", colour, clothes.pattern, cut=True))
    collar = _add_mesh("collar", clothes.collar_vertices, clothes.collar_faces, None, 1)
    pattern = "plain" if clothes.pattern == "stripes" else clothes.pattern
    collar.data.materials.append(_cloth_material("collar", colour, pattern, cut=False))
    thickness = collar.modifiers.new("thickness", "SOLIDIFY")
    thickness.thickness, thickness.offset = 0.0012, 0.0


def _add_lamps(rig: light.Rig, target: np.ndarray) -> None:
    scene = bpy.context.scene
    for lamp in rig.lamps:
        azimuth, elevation = math.radians(lamp.azimuth), math.radians(lamp.elevation)
        flat = lamp.distance * math.cos(elevation)
        location = mathutils.Vector(target) + mathutils.Vector(
            (flat * math.sin(azimuth), -flat * math.cos(azimuth), lamp.distance * math.sin(elevation))
        )
        data = bpy.data.lights.new("lamp", "AREA")
        data.shape, data.size, data.energy, data.color = "DISK", lamp.size, lamp.power * rig.gain, lamp.colour
        thing = bpy.data.objects.new("lamp", data)
        thing.location = location
        thing.rotation_euler = (mathutils.Vector(target) - location).to_track_quat("-Z", "Y").to_euler()
        scene.collection.objects.link(thing)
    world = bpy.data.worlds.new("sky")
    scene.world = world
    if not world.node_tree:
        world.use_nodes = True
    sky = world.node_tree.nodes["Background"]
    sky.inputs["Color"].default_value = (0.97, 0.99, 1.0, 1)
    sky.inputs["Strength"].default_value = rig.sky * rig.gain


def _add_camera(eyes_at: np.ndarray, scale: float):
    scene = bpy.context.scene
    data = bpy.data.cameras.new("camera")
    data.lens, data.sensor_width = _FOCAL, _SENSOR
    camera = bpy.data.objects.new("camera", data)
    camera.location = (0, eyes_at[1] - _DISTANCE * scale, eyes_at[2] - _EYE_LEVEL * scale)
    camera.rotation_euler = (math.pi / 2, 0, 0)
    scene.collection.objects.link(camera)
    scene.camera = camera
    return camera


# Boxes of the base head that are free of beard, brows and hair: |x| and y from…to, in front of z.
_PATCHES = {
    "left cheek": ((0.33, 0.52), (6.90, 7.07)),
    "right cheek": ((-0.52, -0.33), (6.90, 7.07)),
    "forehead": ((-0.22, 0.22), (7.60, 7.76)),
}


def _skin_patches(vertices: np.ndarray, camera) -> tuple[SkinPatch, ...]:
    base = base_mesh()
    patches = []
    body = np.unique(base.faces[base.groups == "body"])
    x, y, z = base.vertices[body].T
    for name, ((left, right), (low, high)) in _PATCHES.items():
        chosen = body[(x > left) & (x < right) & (y > low) & (y < high) & (z > 1.0)]
        points = _to_blender(vertices[chosen])
        depth = points[:, 1] - camera.location[1]
        across = 0.5 + _FOCAL / _SENSOR * points[:, 0] / depth
        down = 0.5 - _FOCAL / _SENSOR * (points[:, 2] - camera.location[2]) / depth
        patches.append(
            SkinPatch(name, *(round(float(v), 5) for v in (across.min(), down.min(), across.max(), down.max())))
        )
    return tuple(patches)


def _configure(parameters: Parameters, threads: int) -> None:
    scene = bpy.context.scene
    scene.render.engine = "CYCLES"
    cycles = scene.cycles
    cycles.device = "CPU"
    cycles.samples, cycles.seed = parameters.quality.samples, parameters.person.seed
    cycles.use_adaptive_sampling, cycles.adaptive_threshold = True, 0.03
    cycles.use_denoising, cycles.denoiser = True, "OPENIMAGEDENOISE"
    # The best denoiser settings cost as much as ten samples and do not show.
    cycles.denoising_quality, cycles.denoising_prefilter = "BALANCED", "FAST"
    cycles.max_bounces, cycles.diffuse_bounces, cycles.glossy_bounces, cycles.transmission_bounces = 3, 1, 1, 3
    cycles.transparent_max_bounces = 12
    cycles.use_light_tree = False
    cycles.sample_clamp_indirect = 4
    render = scene.render
    render.threads_mode, render.threads = "FIXED", threads
    render.resolution_x = render.resolution_y = parameters.quality.size
    render.film_transparent = True
    render.use_persistent_data = True
    render.image_settings.file_format = "OPEN_EXR"
    render.image_settings.color_depth = "32"
    render.image_settings.color_mode = "RGBA"
    scene.view_settings.view_transform = "Raw"


def use_coverage_pass() -> None:
    """Set the built scene to glow evenly, so that its red channel is how much of a pixel the person covers.

    The denoiser smooths colour but not coverage, which would leave hair ends
    speckled; rendered as a colour, coverage is smoothed in the same way.
    """
    for material in bpy.data.materials:
        tree = material.node_tree
        surface = tree.nodes.new("ShaderNodeEmission").outputs[0]
        if keep := tree.nodes.get("keep"):
            mix = tree.nodes.new("ShaderNodeMixShader")
            tree.links.new(keep.outputs[0], mix.inputs[0])
            tree.links.new(tree.nodes.new("ShaderNodeBsdfTransparent").outputs[0], mix.inputs[1])
            tree.links.new(surface, mix.inputs[2])
            surface = mix.outputs[0]
        tree.links.new(surface, tree.nodes["Material Output"].inputs["Surface"])
    bpy.context.scene.cycles.samples = 8
    bpy.context.scene.cycles.denoising_input_passes = "RGB"
    bpy.context.scene.cycles.use_adaptive_sampling = False


def build_scene(parameters: Parameters, threads: int) -> tuple[SkinPatch, ...]:
    """Replace the current scene by this portrait's; returns where skin can be measured."""
    person, setting = parameters.person, parameters.setting
    bpy.ops.wm.read_factory_settings(use_empty=True)
    _configure(parameters, threads)
    vertices = shaped_vertices(person, setting.expression)
    frame = head_frame(vertices)

    head = part(vertices, "body", 3.0)
    body = _add_mesh("body", head.vertices, head.faces, chart_uv(head.loop_uv), 2)
    body.data.materials.append(_skin_material(person))
    eye_material = _eye_material(person)
    for centre in frame.eye_centres:
        ball = eyes.eyeball(centre, frame.eye_radius)
        _add_mesh("eye", ball.vertices, ball.faces, ball.loop_uv, 0).data.materials.append(eye_material)

    clothes = garment.make_garment(vertices, base_mesh().vertices, setting.garment)
    _add_garment(clothes, setting.garment_colour)

    own = person.hair
    _add_strands("hair", hair.head_hair(vertices, clothes.body, person), _hair_material("hair", own, own.grey))
    _add_strands("brows", hair.brows(vertices, person), _hair_material("brows", own, 0.75 * own.grey))
    dark = replace(own, melanin=0.97, redness=0.1)
    _add_strands("lashes", hair.lashes(vertices, person), _hair_material("lashes", dark, 0.0))
    if beard := hair.beard(vertices, person):
        _add_strands("beard", beard, _hair_material("beard", own, min(1.0, 1.15 * own.grey)))

    eyes_at = _to_blender(frame.midpoint)
    camera = _add_camera(eyes_at, frame.scale)
    _add_lamps(light.RIGS[setting.light], eyes_at + np.array([0, 0, -0.02]))
    return _skin_patches(vertices, camera)
