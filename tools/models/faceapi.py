"""face-api.js weights to ONNX: dlib's face recognition ResNet, and the tiny Xception for age and gender."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from graph import Graph, Stored, split

_MEAN = np.array([122.782, 117.001, 104.298], dtype=np.float32).reshape(1, 3, 1, 1)


def dlib_resnet(manifest: Path, target: Path) -> None:
    """Write the network that turns a 150-pixel face chip into 128 numbers."""
    net = _Net(manifest)
    made = net.scaled_convolution(net.normalised("chips"), "conv32_down", stride=2, padded=False)
    made = net.graph.add("Relu", [made])
    made = net.graph.add("MaxPool", [made], kernel_shape=[3, 3], strides=[2, 2])
    side = ((150 - 7) // 2 + 1 - 3) // 2 + 1
    channels = 32
    for width, blocks in ((32, 3), (64, 3), (128, 2), (256, 2)):
        if width != 32:
            made, side = net.shrinking_block(made, f"conv{width}_down", side, channels, width)
            channels = width
        for block in range(1, blocks + 1):
            made = net.residual_block(made, f"conv{width}_{block}")
    made, side = net.shrinking_block(made, "conv256_down_out", side, channels, 256)
    made = net.mean(made)
    net.graph.add("MatMul", [made, net.weights("fc")], "embedding")
    net.graph.save(target, "chips", ["n", 3, 150, 150], ["embedding"])


def tiny_xception(manifest: Path, target: Path) -> None:
    """Write the network that reads age in years and gender (male, female) off a 112-pixel face."""
    net = _Net(manifest)
    add = net.graph.add
    made = add("Relu", [net.convolution(net.normalised("chips"), "entry_flow/conv_in", stride=2)])
    made = net.reduction(made, "entry_flow/reduction_block_0", activate=False)
    made = net.reduction(made, "entry_flow/reduction_block_1")
    for block in range(2):
        branch = made
        for layer in range(3):
            branch = net.separable(add("Relu", [branch]), f"middle_flow/main_block_{block}/separable_conv{layer}")
        made = add("Add", [branch, made])
    made = net.reduction(made, "exit_flow/reduction_block")
    made = net.mean(add("Relu", [net.separable(made, "exit_flow/separable_conv")]))
    add("Add", [add("MatMul", [made, net.weights("fc/age/weights")]), net.weights("fc/age/bias")], "age")
    scores = add("Add", [add("MatMul", [made, net.weights("fc/gender/weights")]), net.weights("fc/gender/bias")])
    add("Softmax", [scores], "gender", axis=-1)
    net.graph.save(target, "chips", ["n", 3, 112, 112], ["age", "gender"])


class _Net:
    def __init__(self, manifest: Path) -> None:
        self.graph = Graph()
        self._arrays: dict[str, Stored] = {}
        for group in json.loads(manifest.read_text()):
            buffer = b"".join((manifest.parent / name).read_bytes() for name in group["paths"])
            self._arrays |= split(buffer, group["weights"])

    def weights(self, name: str) -> str:
        return self.graph.weights(self._arrays[name])

    def kernel(self, name: str, axes: tuple[int, int, int, int] = (3, 2, 0, 1)) -> tuple[str, list[int]]:
        stored = self._arrays[name]
        array = np.ascontiguousarray(stored.array.transpose(axes))
        return self.graph.weights(Stored(array, stored.scale, stored.minimum)), list(array.shape)

    def normalised(self, pixels: str) -> str:
        centred = self.graph.add("Sub", [pixels, self.graph.constant(_MEAN)])
        return self.graph.add("Div", [centred, self.graph.constant(np.float32(255))])

    def mean(self, made: str) -> str:
        return self.graph.add("ReduceMean", [made, self.graph.constant(np.array([2, 3]))], keepdims=0)

    def scaled_convolution(self, made: str, name: str, *, stride: int, padded: bool) -> str:
        """A convolution followed by dlib's affine layer, folded into one when the file is opened."""
        kernel, shape = self.kernel(f"{name}/conv/filters")
        scale = self._arrays[f"{name}/scale/weights"].values
        bias = self._arrays[f"{name}/conv/bias"].values * scale + self._arrays[f"{name}/scale/biases"].values
        kernel = self.graph.add("Mul", [kernel, self.graph.constant(scale.reshape(-1, 1, 1, 1))])
        pads = [shape[2] // 2] * 4 if padded else [0] * 4
        operands = [made, kernel, self.graph.constant(bias)]
        return self.graph.add("Conv", operands, strides=[stride] * 2, kernel_shape=shape[2:], pads=pads)

    def residual_block(self, made: str, name: str) -> str:
        first = self.graph.add("Relu", [self.scaled_convolution(made, f"{name}/conv1", stride=1, padded=True)])
        second = self.scaled_convolution(first, f"{name}/conv2", stride=1, padded=True)
        return self.graph.add("Relu", [self.graph.add("Add", [second, made])])

    def shrinking_block(self, made: str, name: str, side: int, channels: int, width: int) -> tuple[str, int]:
        """Halve the picture; dlib fills the shorter branch with zeros, at the end of each axis."""
        first = self.graph.add("Relu", [self.scaled_convolution(made, f"{name}/conv1", stride=2, padded=False)])
        second = self.scaled_convolution(first, f"{name}/conv2", stride=1, padded=True)
        pooled = self.graph.add("AveragePool", [made], kernel_shape=[2, 2], strides=[2, 2])
        convolved, halved = (side - 3) // 2 + 1, side // 2
        if halved != convolved:
            missing = halved - convolved
            pads = self.graph.constant(np.array([0, 0, 0, 0, 0, 0, missing, missing]))
            second = self.graph.add("Pad", [second, pads])
        if channels != width:
            pads = self.graph.constant(np.array([0, 0, 0, 0, 0, width - channels, 0, 0]))
            pooled = self.graph.add("Pad", [pooled, pads])
        return self.graph.add("Relu", [self.graph.add("Add", [second, pooled])]), halved

    def convolution(self, made: str, name: str, *, stride: int) -> str:
        kernel, shape = self.kernel(f"{name}/filters")
        operands = [made, kernel, self.weights(f"{name}/bias")]
        return self.graph.add("Conv", operands, strides=[stride] * 2, kernel_shape=shape[2:], auto_pad="SAME_UPPER")

    def separable(self, made: str, name: str) -> str:
        depthwise, shape = self.kernel(f"{name}/depthwise_filter", (2, 3, 0, 1))
        made = self.graph.add("Conv", [made, depthwise], group=shape[0], kernel_shape=[3, 3], pads=[1] * 4)
        pointwise, _ = self.kernel(f"{name}/pointwise_filter")
        return self.graph.add("Conv", [made, pointwise, self.weights(f"{name}/bias")], kernel_shape=[1, 1])

    def reduction(self, made: str, name: str, *, activate: bool = True) -> str:
        branch = self.graph.add("Relu", [made]) if activate else made
        branch = self.separable(branch, f"{name}/separable_conv0")
        branch = self.separable(self.graph.add("Relu", [branch]), f"{name}/separable_conv1")
        branch = self.graph.add("MaxPool", [branch], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
        return self.graph.add("Add", [branch, self.convolution(made, f"{name}/expansion_conv", stride=2)])
