"""The cutting plane: the convex relaxation of choosing m features, solved by a few sets of m at a time.

    max_V min_p  tr(VᵀT) − ½‖V‖² − 1/(2γ) ‖diag(p) Xcᵀ V‖²,    p ∈ {0,1}^d, 1ᵀp = m        [SparGE, eq. 10]

V = T at first. Each cut (a) scores every feature by s_j = ‖(XcᵀV)_j‖², one pass over X, (b) takes the m
largest as the next set (SparGE, Alg. 1 step 2b corrected: the most violated constraint is the arg min of
f), (c) gathers their columns, (d) solves the restricted master, V = its residual T − XcW (`master`).

Any V bounds the relaxation from below: with a = tr(VᵀT) and b = ‖V‖² + (Σ of the m largest s_j)/γ, the
best scaling of V gives a²/(2b). The master's value bounds it from above. Their relative gap is the stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bigfs import master
from bigfs.matrix import Matrix
from bigfs.result import Record, Result, iterate

Array = NDArray[np.float64]
Index = NDArray[np.int64]
INEXACT = 0.5  # of the gap that is left: how well the next master is solved; half the factorizations of 0.05, a cut more


# --- the problem ----------------------------------------------------------------------------------


class Problem:
    """X, T, m and γ, with the passes and gathers they need. `features` are the columns gathered so far.

    Parameters
    ----------
    X : n × d Matrix.
    T : (n, r) response, TᵀT = I.
    m : the size of a set.
    gamma : γ, absolute.
    omega : (n,) weights of the samples' residuals, or None for all one.
    """

    def __init__(self, X: Matrix, T: Array, m: int, gamma: float, omega: Array | None = None) -> None:
        self.X, self.T, self.m, self.gamma, self.omega = X, T, m, gamma, omega
        self.tt = float(np.vdot(T, T))
        self.mu = X.means if omega is None else (X.T @ omega**2) / np.sum(omega**2)
        self.features = np.empty(0, dtype=np.int64)  # gathered, sorted
        self.Z = sp.csc_array((X.shape[0], 0))  # the gathered columns, uncentred
        self.G = np.empty((0, 0))
        self.B = np.empty((0, T.shape[1]))
        self.last: tuple[Index, master.Factor] | None = None

    def score(self, V: Array) -> tuple[Index, Array]:
        """The m largest s_j = ‖(XcᵀV)_j‖² and their features, best first. One pass."""
        V = V if self.omega is None else self.omega[:, None] * V
        shift = V.sum(axis=0)
        if self.X.column_tiles:
            means = [self.mu[t.start : t.stop] for t in self.X.column_tiles]
            found = self.X.map_columns(_best_of_block, V, shift, self.m, each=[means])
        else:
            found = [_best(self.X.T @ V, 0, self.m, self.mu, shift)]
        index, s = (np.concatenate(part) for part in zip(*found, strict=True))
        best = np.lexsort((index, -s))[: self.m]
        return index[best], s[best]

    def gather(self, index: Index) -> None:
        """Extend Z, G and B by the columns `index` that are not there yet."""
        new = np.setdiff1d(index, self.features)
        if not len(new):
            return
        Z = self.X.columns(new).astype(np.float64)
        if self.omega is not None:
            Z = sp.csc_array(sp.diags_array(self.omega) @ Z)
        before, self.features = self.features, np.union1d(self.features, new)
        old, at = np.searchsorted(self.features, before), np.searchsorted(self.features, new)
        self.Z = sp.hstack([self.Z, Z], format="csc")[:, np.argsort(np.append(old, at))]
        across = (self.Z.T @ Z).toarray() - self._mass() * np.outer(self.mu[self.features], self.mu[new])
        G, B = self.G, self.B
        self.G, self.B = np.empty((len(self.features), len(self.features))), np.empty((len(self.features), B.shape[1]))
        self.G[np.ix_(old, old)] = G
        self.G[:, at] = across
        self.G[at] = across.T
        self.B[old], self.B[at] = B, self._centred_products(Z, new, self.T)

    def residual(self, W: Array, features: Index) -> Array:
        """V = T − Xc W."""
        spread = np.zeros((self.Z.shape[1], W.shape[1]))
        spread[self.positions(features)] = W
        shift = self.mu[features] @ W
        return self.T - self.Z @ spread + (shift if self.omega is None else np.outer(self.omega, shift))

    def restricted(self, sets: Sequence[Index]) -> tuple[master.Master, Index]:
        """The master over `sets`, and the features that its rows stand for."""
        features = np.unique(np.concatenate(sets))
        place = self.positions(features)
        members = tuple(np.searchsorted(features, np.sort(s)) for s in sets)
        G = self.G if len(place) == len(self.features) else self.G[np.ix_(place, place)]
        return master.Master(G, self.B[place], self.tt, self.gamma, members), features

    def keep(self, features: Index, factor: master.Factor) -> None:
        """Remember the master's last factor, by the features it stands for."""
        self.last = (features[factor.alive], factor)

    def fitting(self, features: Index) -> master.Factor | None:
        """The remembered factor, for a master over `features`."""
        if self.last is None:
            return None
        own, factor = self.last
        return factor._replace(alive=np.searchsorted(features, own)) if np.isin(own, features).all() else None

    def positions(self, features: Index) -> Index:
        """Where gathered features are in G and B."""
        return np.searchsorted(self.features, features)

    def _centred_products(self, Z: Any, index: Index, V: Array) -> Array:
        """ZcᵀV, the weights already in Z."""
        weighted = V if self.omega is None else self.omega[:, None] * V
        return Z.T @ V - np.outer(self.mu[index], weighted.sum(axis=0))

    def _mass(self) -> float:
        return self.X.shape[0] if self.omega is None else float(np.sum(self.omega**2))


def _best_of_block(block: Any, start: int, stop: int, mu: Array, V: Array, shift: Array, m: int) -> tuple[Index, Array]:
    return _best(block.T @ V, start, m, mu, shift)


def _best(P: Array, start: int, m: int, mu: Array, shift: Array) -> tuple[Index, Array]:
    """The m largest rows of XᵀV − μ(1ᵀV); equal ones by lower index. Nothing d × r leaves the block."""
    P = P - np.outer(mu, shift)
    s = np.einsum("jr,jr->j", P, P)
    least = np.partition(s, len(s) - m)[len(s) - m] if len(s) > m else -np.inf
    candidates = np.flatnonzero(s >= least)
    best = candidates[np.argsort(-s[candidates], kind="stable")][:m]
    return best + start, s[best]


# --- the step -------------------------------------------------------------------------------------


class Cuts(NamedTuple):
    """The cutting plane after some cuts, with its certificate.

    sets : the feature sets pᵗ that carry weight, each sorted by score.
    eta : (κ,) their weights on the simplex.
    features, W : the u features in those sets, and Σ_t Ωᵗ (u × r).
    following : the next set, found by the last pass.
    upper, lower : bounds of the relaxation's optimum; `lower` is the best so far.
    """

    sets: tuple[Index, ...]
    eta: Array
    features: Index
    W: Array
    following: Index
    upper: float
    lower: float


def start(problem: Problem) -> Cuts:
    """V = T: no set yet, one pass for the first."""
    none = np.empty(0, dtype=np.int64)
    following, s = problem.score(problem.T)
    return Cuts((), np.empty(0), none, np.empty((0, problem.T.shape[1])), following, problem.tt / 2, _bound(problem, problem.T, s))


def cut(problem: Problem, state: Cuts, solver: str, tol: float) -> Cuts:
    """Add the violated set, solve the master, and certify the new residual by one pass."""
    sets = (*state.sets, state.following)
    for each in sets:
        problem.gather(each)
    restricted, features = problem.restricted(sets)
    eta = np.append(state.eta, 0.0 if state.sets else 1.0)
    solution = master.solve(restricted, eta, solver, max(tol, INEXACT * gap(state)), problem.fitting(features))
    kept = solution.eta > 0
    used = np.isin(np.arange(len(features)), np.concatenate([s for s, k in zip(restricted.sets, kept, strict=True) if k]))
    sets = tuple(s for s, k in zip(sets, kept, strict=True) if k)
    problem.keep(features, solution.factor)
    features, W = features[used], solution.W[used]
    V = problem.residual(W, features)
    following, s = problem.score(V)
    lower = max(state.lower, _bound(problem, V, s))
    return Cuts(sets, solution.eta[kept], features, W, following, solution.value, lower)


def _bound(problem: Problem, V: Array, s: Array) -> float:
    """a²/(2b), a = tr(VᵀT), b = ‖V‖² + (Σ of the m largest s_j)/γ."""
    a, b = np.vdot(V, problem.T), np.vdot(V, V) + s.sum() / problem.gamma
    return float(a**2 / (2 * b)) if b > 0 else 0.0


def gap(state: Cuts) -> float:
    return max(state.upper - state.lower, 0.0) / state.upper if state.upper > 0 else 0.0


def record(state: Cuts) -> Record:
    return {"upper": state.upper, "lower": state.lower, "gap": gap(state), "sets": len(state.sets), "features": len(state.features)}


def cutting_plane(problem: Problem, *, solver: str, tol: float, max_iter: int) -> Result[Cuts]:
    """Cut until the relative gap is `tol`: κ cuts are κ + 1 passes."""
    return iterate(
        lambda state: cut(problem, state, solver, tol=1e-2 * tol),
        start(problem),
        measure=record,
        stop="gap",
        tol=tol,
        max_iter=max_iter,
        name="SparGE",
    )
