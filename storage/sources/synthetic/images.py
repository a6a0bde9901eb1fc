"""Generated images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray
from storage.sources.synthetic.text import SHAPE_STREAM, stream


class ImageSpec(NamedTuple):
    """Constants of one generated stack of images."""

    n: int
    shape: tuple[int, int]
    classes: Sequence[str]
    block: int = 512


class ImageGenerator:
    """Generate smooth faces under changing light. Only an oval of pixels depends on the class."""

    feature_names = None

    def __init__(self, spec: ImageSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        M, N = spec.shape
        self.n_features, self.bytes_per_row = M * N, 8.0 * M * N
        down, right = np.meshgrid(np.linspace(-1, 1, M), np.linspace(-1, 1, N), indexing="ij")
        oval = (down / 0.9) ** 2 + (right / 0.7) ** 2 < 1
        waves = np.array(
            [
                np.cos(i * np.pi * (down + 1) / 2) * np.cos(j * np.pi * (right + 1) / 2)
                for i in range(6)
                for j in range(6)
            ]
        )
        amplitude = np.array([1 / (1 + i + j) for i in range(6) for j in range(6)])
        rng = stream(seed, SHAPE_STREAM)
        # (c, M, N)
        faces = np.tensordot(rng.normal(size=(len(spec.classes), 36)) * amplitude, waves, 1)
        # columns first, as in MATLAB
        self.faces = (0.5 + 0.12 * faces * oval).reshape(len(spec.classes), -1, order="F")
        self.light = np.stack([down, right]).reshape(2, -1, order="F")
        self.planted = np.flatnonzero(oval.ravel(order="F"))

    def block(self, b: int) -> tuple[sp.csr_array, AnyArray]:
        rng, rows = stream(self.seed, b), self.spec.block
        y = rng.integers(len(self.spec.classes), size=rows)
        images = (
            self.faces[y] * rng.uniform(0.6, 1.2, (rows, 1))
            + rng.normal(0, 0.15, (rows, 2)) @ self.light
        )
        images += rng.normal(0, 0.05, images.shape)
        return sp.csr_array(np.clip(images, 0, 1).astype(np.float32)), y
