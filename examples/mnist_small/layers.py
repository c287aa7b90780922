"""The layers that train.py needs, forward and backward in numpy: convolution, batch norm, ReLU, dense, Adam.
Pictures are f32 [N,H,W,C]. Each layer keeps its parameters in `values` and their gradients in `gradients`."""

from __future__ import annotations

import numpy as np


class Layer:
    """A step of the net; `backward` takes the gradient of the output and returns the gradient of the input."""

    def __init__(self, **values: np.ndarray) -> None:
        self.values = {name: value.astype(np.float32) for name, value in values.items()}
        self.gradients: dict[str, np.ndarray] = {}

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        raise NotImplementedError

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class Conv(Layer):
    """3x3 convolution, padding 1; `weight` [9 * C_in, C_out], rows in the order (ky, kx, c)."""

    def __init__(self, rng: np.random.Generator, channels: int, out: int, stride: int) -> None:
        super().__init__(weight=rng.normal(0, np.sqrt(2 / (9 * channels)), (9 * channels, out)))
        self.stride, self.out = stride, out

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        n, height, width, channels = self.shape = x.shape
        s, oh, ow = self.stride, -(-height // self.stride), -(-width // self.stride)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        self.columns = np.empty((n, oh, ow, 9, channels), np.float32)
        for tap in range(9):
            ky, kx = divmod(tap, 3)
            self.columns[:, :, :, tap] = padded[:, ky : ky + s * oh : s, kx : kx + s * ow : s]
        return (self.columns.reshape(-1, 9 * channels) @ self.values["weight"]).reshape(n, oh, ow, self.out)

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        n, height, width, channels = self.shape
        s, (oh, ow) = self.stride, gradient.shape[1:3]
        flat = gradient.reshape(-1, self.out)
        self.gradients["weight"] = self.columns.reshape(-1, 9 * channels).T @ flat
        columns = (flat @ self.values["weight"].T).reshape(n, oh, ow, 9, channels)
        padded = np.zeros((n, height + 2, width + 2, channels), np.float32)
        for tap in range(9):
            ky, kx = divmod(tap, 3)
            padded[:, ky : ky + s * oh : s, kx : kx + s * ow : s] += columns[:, :, :, tap]
        return padded[:, 1:-1, 1:-1]


class Depthwise(Layer):
    """3x3 depthwise convolution, stride 1, padding 1; `weight` [9, C]."""

    def __init__(self, rng: np.random.Generator, channels: int) -> None:
        super().__init__(weight=rng.normal(0, np.sqrt(2 / 9), (9, channels)))

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        self.padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        out = np.zeros_like(x)
        for tap, window in enumerate(_windows(self.padded)):
            out += window * self.values["weight"][tap]
        return out

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        padded = np.zeros_like(self.padded)
        weight = np.empty_like(self.values["weight"])
        for tap, (window, into) in enumerate(zip(_windows(self.padded), _windows(padded), strict=True)):
            weight[tap] = np.einsum("nhwc,nhwc->c", window, gradient)
            into += gradient * self.values["weight"][tap]
        self.gradients["weight"] = weight
        return padded[:, 1:-1, 1:-1]


class Pointwise(Layer):
    """1x1 convolution; `weight` [C_in, C_out]."""

    def __init__(self, rng: np.random.Generator, channels: int, out: int) -> None:
        super().__init__(weight=rng.normal(0, np.sqrt(2 / channels), (channels, out)))

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        self.x = x
        return x @ self.values["weight"]

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        weight = self.values["weight"]
        self.gradients["weight"] = self.x.reshape(-1, weight.shape[0]).T @ gradient.reshape(-1, weight.shape[1])
        return gradient @ weight.T


class BatchNormRelu(Layer):
    """Batch normalization over (N, H, W), then ReLU; running statistics are stored with the parameters."""

    EPSILON = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__(scale=np.ones(channels), bias=np.zeros(channels))
        self.mean, self.variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        mean, variance = self.mean, self.variance
        if train:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            self.mean = 0.95 * self.mean + 0.05 * mean
            self.variance = 0.95 * self.variance + 0.05 * variance
        self.deviation = np.sqrt(variance + np.float32(self.EPSILON))
        self.normal = (x - mean) / self.deviation
        self.result = np.maximum(self.normal * self.values["scale"] + self.values["bias"], 0)
        return self.result

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        gradient = gradient * (self.result > 0)
        count = np.float32(gradient.size / gradient.shape[-1])
        self.gradients["bias"] = gradient.sum((0, 1, 2))
        self.gradients["scale"] = np.einsum("nhwc,nhwc->c", gradient, self.normal)
        centred = gradient - self.gradients["bias"] / count - self.normal * (self.gradients["scale"] / count)
        return centred * (self.values["scale"] / self.deviation)


class Dense(Layer):
    """Flattens and multiplies; `weight` [H*W*C, out], `bias` [out]."""

    def __init__(self, rng: np.random.Generator, features: int, out: int) -> None:
        super().__init__(weight=rng.normal(0, np.sqrt(1 / features), (features, out)), bias=np.zeros(out))

    def forward(self, x: np.ndarray, train: bool) -> np.ndarray:
        self.x = x
        return x.reshape(len(x), -1) @ self.values["weight"] + self.values["bias"]

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        self.gradients = {"weight": self.x.reshape(len(self.x), -1).T @ gradient, "bias": gradient.sum(0)}
        return (gradient @ self.values["weight"].T).reshape(self.x.shape)


class Adam:
    """Adam over all parameters of the layers, with decoupled weight decay on the weights."""

    def __init__(self, layers: list[Layer], decay: float = 1e-3) -> None:
        self.layers, self.decay, self.count = layers, decay, 0
        self.state = [{name: (np.zeros_like(v), np.zeros_like(v)) for name, v in la.values.items()} for la in layers]

    def step(self, rate: float) -> None:
        """Makes one update at learning rate `rate` from the layers' gradients."""
        self.count += 1
        rate_now = np.float32(rate * np.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count))
        for layer, state in zip(self.layers, self.state, strict=True):
            for name, (first, second) in state.items():
                gradient = layer.gradients[name]
                first += np.float32(0.1) * (gradient - first)
                second += np.float32(0.001) * (gradient * gradient - second)
                if name == "weight":
                    layer.values[name] *= np.float32(1 - rate * self.decay)
                layer.values[name] -= rate_now * first / (np.sqrt(second) + np.float32(1e-8))


def _windows(padded: np.ndarray) -> list[np.ndarray]:
    """Returns the nine shifted views [N,H,W,C] of a picture padded by 1."""
    height, width = padded.shape[1] - 2, padded.shape[2] - 2
    return [padded[:, ky : ky + height, kx : kx + width] for ky in range(3) for kx in range(3)]
