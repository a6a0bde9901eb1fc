"""How much a function of the samples varies over a hypergraph, as a function of the weights w.

    tr(Pᵀ L_H(w) P) = ‖P‖² − Σ_e (w_e/δ_e) ‖r_e‖²,    r_e = Σ_v h(v, e) d_v^-½ P_v

for P (n × r) and L_H(w) = I − D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½. The degrees d_v have two readings
(JHLSR, sections 3.1 and 3.2):

weighted    d_v = Σ_e w_e h(v, e)      [Zhou, Huang, Schölkopf, NIPS 2006]
incidence   d_v = Σ_e h(v, e)

Weighted degrees leave L_H unchanged when w is scaled, and a vertex whose hyperedges all have weight
zero is isolated: its entry of D_v^-½ is zero. With incidence degrees L_H is linear in w.

With g_v = d_v^-½ P_vᵀ Σ_e h(v, e) (w_e/δ_e) r_e, the gradient is

    ∂/∂w_k = −‖r_k‖²/δ_k + Σ_v h(v, k) g_v/d_v                   (without the sum for incidence)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.linalg.prox import inverse_root, project_simplex
from bigfs.matrix.panels import ColumnStrips
from bigfs.types import FloatArray

Degrees = Literal["weighted", "incidence"]

ARMIJO = 1e-4  # share of the predicted decrease that the line search asks for
MIN_STEP = 1e-10  # at which the line search gives up
MAX_STEPS = 20  # of the projected gradient
LEAST_SHARE = 1e-2  # of the least degree of its samples: how far a weight of zero moves


class Trace(NamedTuple):
    """tr(Pᵀ L_H(w) P) at some w, with its gradient."""

    value: float
    gradient: FloatArray  # (e,) in w
    root: FloatArray  # (n,) the diagonal of D_v^-½


@dataclass(frozen=True)
class Smoothness:
    """tr(Pᵀ L_H(w) P) with weighted or with incidence degrees, and r_e once per set of samples."""

    hypergraph: Hypergraph
    degrees: Degrees = "weighted"

    def root(self, w: FloatArray) -> FloatArray:
        """Return the diagonal of D_v^-½ (n)."""
        if self.degrees == "incidence":
            return self.hypergraph.root
        members = self.hypergraph.members
        return inverse_root(members.vertex_sums(members.total_weights(w)))

    def trace(self, P: FloatArray | ColumnStrips, w: FloatArray) -> Trace:
        """Return tr(Pᵀ L_H(w) P) and its gradient, for P (n × r) or its strips."""
        hypergraph, root = self.hypergraph, self.root(w)
        members, delta = hypergraph.members, hypergraph.edge_degrees
        weights = members.total_weights(w / delta)  # w/δ of the distinct hyperedges
        norm2, squares, g = 0.0, np.zeros(len(weights)), np.zeros(len(root))
        for _, strip in ColumnStrips.of(P) if isinstance(P, np.ndarray) else P:
            P_strip = np.ascontiguousarray(strip)
            norm2 += float(np.vdot(P_strip, P_strip))
            R = hypergraph.edge_rows(root, np.ones(len(weights)), P_strip)  # rows r_e
            squares += np.einsum("er,er->e", R, R)
            R *= weights[:, None]
            g += hypergraph.edge_row_products(root, R, P_strip)
        q = squares[members.number] / delta
        gradient = -q if self.degrees == "incidence" else members.edge_sums(root**2 * g) - q
        return Trace(norm2 - float(w @ q), gradient, root)

    def least_degrees(self, root: FloatArray) -> FloatArray:
        """Return the least degree of the connected samples of each hyperedge (e), at most 1."""
        return 1 / np.maximum(self.hypergraph.members.edge_maxima(root) ** 2, 1.0)


class WeightStep(NamedTuple):
    """The weights of the hyperedges after a step, with the smoothness there."""

    w: FloatArray  # (e,)
    smoothness: float  # tr(Pᵀ L_H(w) P)
    promise: float  # what the linear model of the objective still promises (`_promise`)


def choose_weights(
    smoothness: Smoothness,
    P: ColumnStrips,
    w: FloatArray,
    mu: float,
    gamma: float,
    promise: float,
) -> WeightStep:
    """Lower μ tr(Pᵀ L_H(w) P) + γ‖w‖² over the simplex, from w, for P (n × r).

    With incidence degrees it is quadratic: its minimum projects μq/2γ on the simplex. With weighted
    degrees it is not convex, and its curvature in w_k is about 1/b_k², where b_k ≥ w_k is the least
    degree of the samples of k. So a step is one of the gradient, projected in the metric
    diag(b w)⁻¹, with Barzilai and Borwein's length and a line search. The steps end when the linear
    model promises at most `promise`.
    """
    if smoothness.degrees == "incidence":
        trace = smoothness.trace(P, w)
        new_w = project_simplex(-mu * trace.gradient / (2 * gamma))
        return WeightStep(new_w, trace.value + float((new_w - w) @ trace.gradient), 0.0)

    def objective(trace: Trace, w: FloatArray) -> float:
        return mu * trace.value + gamma * float(w @ w)

    def slopes(trace: Trace, w: FloatArray) -> FloatArray:
        return mu * trace.gradient + 2 * gamma * w

    trace, length = smoothness.trace(P, w), 0.0
    value, gradient = objective(trace, w), slopes(trace, w)
    for _ in range(MAX_STEPS):
        b = smoothness.least_degrees(trace.root)
        reach = _reach(w, b)
        if _promise(gradient, w, reach) <= promise:
            break
        m = b * reach
        # the first step would at most double a weight, without the projection
        length = length or 1 / float(np.max(b * np.abs(gradient - gradient @ w)))
        direction = _scaled_projection(w - length * m * gradient, m) - w
        slope, share = float(gradient @ direction), 1.0
        while share >= MIN_STEP:
            trial_w = np.maximum(w + share * direction, 0)
            trial_trace = smoothness.trace(P, trial_w)
            trial = objective(trial_trace, trial_w)
            if trial <= value + ARMIJO * share * slope:
                break
            share /= 2
        else:
            break
        moved, trial_gradient = trial_w - w, slopes(trial_trace, trial_w)
        curvature = float(moved @ (trial_gradient - gradient))
        length = float(moved @ (moved / m)) / curvature if curvature > 0 else 0.0
        w, value, trace, gradient = trial_w, trial, trial_trace, trial_gradient
    reach = _reach(w, smoothness.least_degrees(trace.root))
    return WeightStep(w, trace.value, _promise(gradient, w, reach))


def _reach(w: FloatArray, b: FloatArray) -> FloatArray:
    """Return how far the weights may move in proportion to themselves. A weight of zero moves too,
    by a share of the least degree that it adds to."""
    return w + LEAST_SHARE * b


def _promise(gradient: FloatArray, w: FloatArray, reach: FloatArray) -> float:
    """Return what the linear model gains if each weight may shrink to zero, or grow by its reach.
    The slopes count from their weighted mean, because the weights keep their sum."""
    slopes = gradient - gradient @ w
    return float(w @ np.maximum(slopes, 0) + reach @ np.maximum(-slopes, 0))


def _scaled_projection(v: FloatArray, m: FloatArray) -> FloatArray:
    """Return the x on the simplex of least Σ (x_k − v_k)²/m_k: x = (v − τm)₊."""
    order = np.argsort(-v / m)
    taus = (np.cumsum(v[order]) - 1) / np.cumsum(m[order])
    rho = np.flatnonzero(v[order] > taus * m[order])[-1]
    return np.maximum(v - taus[rho] * m, 0)
