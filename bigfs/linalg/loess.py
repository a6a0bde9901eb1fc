"""Loess of one variable: local quadratics with tricube weights, interpolated between the vertices.

    w_i(v) = (1 − (|x_i − v| / r)³)³,  r the distance of the ⌊span · n⌋-th nearest x to v
    a, b, c = argmin Σ_i w_i (y_i − a − b (x_i − v) − c (x_i − v)²)²
    fit     = the cubic with the values a and the slopes b at the vertices on either side

The vertices follow Cleveland and Grosse, "Computational methods for local regression",
Statistics and Computing, 1991: the range of x, a little wider, is halved at the median until a cell
has at most ⌊0.2 · span · n⌋ samples. So the fit equals R's `loess` and scikit-misc's.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from bigfs.types import FloatArray

CELL = 0.2  # samples of a cell, as a share of the samples of a local fit
MARGIN = 0.005  # that the cells reach beyond the samples, as a share of their range


def loess(x: FloatArray, y: FloatArray, span: float) -> FloatArray:
    """Return the fit at each x (n,). It costs a least-squares fit of span · n samples a vertex."""
    if not len(x):
        return np.empty(0)
    near = min(len(x), int(len(x) * span + 1e-5))
    cells = _vertices(np.sort(x), int(len(x) * span * CELL))
    values, slopes = np.transpose([_local_fit(x, y, v, near) for v in cells])
    return np.asarray(CubicHermiteSpline(cells, values, slopes)(x))


def _vertices(x: FloatArray, most: int) -> FloatArray:
    """Return the ends of the cells of sorted samples. A cell has at most `most` of them."""
    width = max(x[-1] - x[0], 1e-10 * max(abs(x[0]), abs(x[-1])) + 1e-30)
    low, high = x[0] - MARGIN * width, x[-1] + MARGIN * width
    vertices, cells = {low, high}, [(0, len(x) - 1, low, high)]
    while cells:
        first, last, low, high = cells.pop()
        middle = _middle(x, first, last)
        if last - first + 1 > most and low != x[middle] != high:
            vertices.add(x[middle])
            cells += [(first, middle, low, x[middle]), (middle + 1, last, x[middle], high)]
    return np.sort(list(vertices))


def _middle(x: FloatArray, first: int, last: int) -> int:
    """Return the last sample of the lower half, near the median where equal samples are parted."""
    middle = (first + last + 2) // 2 - 1  # as if samples were counted from 1
    offset = 0
    while first <= middle + offset < last:
        if x[middle + offset] != x[middle + offset + 1]:
            return middle + offset
        offset = 1 - offset if offset <= 0 else -offset
    return middle


def _local_fit(x: FloatArray, y: FloatArray, v: float, near: int) -> tuple[float, float]:
    """Return the value and the slope at v of the quadratic through the nearest samples."""
    distance = np.abs(x - v)
    radius = np.partition(distance, near - 1)[near - 1] if near else 0.0
    if radius <= 0:
        raise ValueError("span is too small for so few different values: give a larger one")
    inside = distance < radius
    root = np.sqrt((1 - (distance[inside] / radius) ** 3) ** 3)
    columns = root[:, None] * np.vander((x[inside] - v) / radius, 3, increasing=True)
    scale = np.linalg.norm(columns, axis=0)
    scale[scale == 0] = 1
    tolerance = 100 * np.finfo(np.float64).eps
    solution = np.linalg.lstsq(columns / scale, root * y[inside], rcond=tolerance)[0] / scale
    return solution[0], solution[1] / radius
