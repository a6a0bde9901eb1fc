"""The convex relaxation of `bigfs.cutting_plane.loop`: what a cutting plane asks of it.

Kept features have p_j = 1 and forbidden ones p_j = 0 in every set, which changes the domain of p
alone. So the bounds hold for the choices that obey them. A `Loss` has all that depends on the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfs import engine
from bigfs.cards import brief
from bigfs.constraints import NO_CONSTRAINTS, Constraints
from bigfs.cutting_plane.columns import LARGE_SIZE, Columns, Residual
from bigfs.cutting_plane.elimination import Elimination, eliminate
from bigfs.cutting_plane.exchanges import exchange, with_choice
from bigfs.cutting_plane.newton import MasterSolution, newton
from bigfs.cutting_plane.restricted_master import Factor, RestrictedMaster, times
from bigfs.linalg.prox import row_norms
from bigfs.settings import Setting
from bigfs.types import FloatArray, IntArray

CANDIDATES = 4  # times m: how many of the union's features, by weight, elimination starts from
ALL_GATHERED_SHARE = 0.75  # a master whose sets hold this share takes all gathered features
FLOAT32_ROUNDING = float(np.finfo(np.float32).eps) / 2  # relative, of each number
MIN_PASS_NNZ = Setting(100_000)  # a pass over fewer entries is not worth saving
# Seconds (measured), to weigh a cut on the gathered columns against a pass: per u³, per u²(r + 3);
# for a pass with its gather: in all, and per entry · (r + 4).
FACTOR_SECONDS, PRODUCT_SECONDS = 1e-11, 1.5e-9
PASS_SECONDS, ENTRY_SECONDS = 0.1, 2.5e-9


class CuttingPlaneState(NamedTuple):
    """The cutting plane after some cuts, with its certificate."""

    sets: tuple[IntArray, ...]  # the feature sets pᵗ that carry weight, each best first
    eta: FloatArray  # (κ,): their weights on the simplex
    features: IntArray  # (u,): the features in those sets
    W: FloatArray  # u × r: Σ_t Ωᵗ
    next_set: IntArray  # from the last pass
    gathered: IntArray  # the features that the passes have found, and the likely ones
    upper: float  # bounds of the relaxation's optimum
    lower: float  # the best so far

    def __repr__(self) -> str:
        return brief(self)

    @property
    def gap(self) -> float:
        """The relative gap between the bounds."""
        return relative_gap(self.upper, self.lower)


def relative_gap(upper: float, lower: float) -> float:
    return max(upper - lower, 0.0) / upper if upper > 0 else 0.0


class Loss:
    """The loss ½‖T − XcW‖² on gathered columns."""

    def __init__(self, data: Columns) -> None:
        self.data = data

    @property
    def at_zero(self) -> float:
        """The loss at W = 0."""
        return self.data.T_norm2 / 2

    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        """Return the residual V of the weights W of gathered features."""
        return self.data.residual(W, features)

    def products(
        self, W: FloatArray, features: IntArray, gathered: IntArray
    ) -> tuple[FloatArray, Residual]:
        """Return XcᵀV over gathered columns, and the residual of the weights W of some of them.

        It needs no pass, because XcᵀV = B − GW, a = ‖T‖² − tr(BᵀW) and ‖V‖² = a − tr(Wᵀ(B − GW)).
        """
        G, B = self.data.gram(gathered)
        positions = np.searchsorted(gathered, features)
        W_gathered = np.zeros_like(B)
        W_gathered[positions] = W
        C = B - times(G, W_gathered)
        return C, Residual.from_products(self.data.T_norm2, B[positions], C[positions], W)

    def solve_master(
        self,
        features: IntArray,
        sets: tuple[IntArray, ...],
        gamma: float,
        eta: FloatArray,
        W: FloatArray,
        tol: float,
        factor: Factor | None,
    ) -> MasterSolution:
        """Solve the master over sets of positions among `features`, from `eta` and W."""
        master = RestrictedMaster(*self.data.gram(features), self.data.T_norm2, gamma, sets)
        return newton(master, eta, tol, factor, W)

    def eliminate(
        self, features: IntArray, W: FloatArray, gamma: float, m: int, kept: IntArray
    ) -> Elimination:
        """Return the order of elimination of gathered features, which the relaxation weighs by W.

        J is exact at m features. Those at the positions `kept` stay until no others are left.
        """
        G, B = self.data.gram(features)
        return eliminate(G, B, self.data.T_norm2, gamma, pauses=(m,), removed_last=kept)

    def exchange(
        self, features: IntArray, elimination: Elimination, gamma: float, m: int, kept: IntArray
    ) -> Elimination:
        """Return the order after exchanges of chosen features for others, while J at m falls."""
        return exchange(*self.data.gram(features), self.data.T_norm2, gamma, elimination, m, kept)


class Relaxation:
    """The convex relaxation for m features and penalty γ (unscaled).

    Several relaxations may share `data`. Without a loss it is the squared one.
    """

    def __init__(
        self,
        data: Columns,
        m: int,
        gamma: float,
        constraints: Constraints = NO_CONSTRAINTS,
        loss: Loss | None = None,
    ) -> None:
        self.data, self.m, self.gamma = data, m, gamma
        self.constraints, self.loss = constraints, loss or Loss(data)
        self.likely = np.setdiff1d(data.likely_features(m), constraints.absent)
        self.last_factor: tuple[IntArray, Factor] | None = None  # and the features it stands for
        self.seconds = 0.0  # that its part of a joint solution took

    def start(self) -> CuttingPlaneState:
        """Return the state at W = 0, without any set, with the likely features gathered."""
        empty = np.empty(0, dtype=np.int64)
        W, upper = np.empty((0, self.data.r)), self.loss.at_zero
        return CuttingPlaneState((), np.empty(0), empty, W, empty, self.likely, upper, 0.0)

    def restore(self, state: CuttingPlaneState) -> CuttingPlaneState:
        """Gather the features of a final state, which a resumed run has not done yet.

        No master follows, so the kept factor leaves its memory to the elimination.
        """
        self.last_factor = None
        engine.trim_memory()
        self.data.add(state.features)
        return state

    def is_rounded(self) -> bool:
        """Return whether the rounding of G, held in single precision, may be as large as γ."""
        G = self.data.G
        is_single = G.dtype == np.float32
        return is_single and self.gamma < FLOAT32_ROUNDING * float(np.linalg.norm(G))

    def residual(self, state: CuttingPlaneState) -> Residual:
        return self.loss.residual(state.W, state.features)

    def add_set(self, state: CuttingPlaneState, new_set: IntArray, tol: float) -> CuttingPlaneState:
        """Add a set, solve the master to `tol`, and drop the sets without weight."""
        sets = (*state.sets, new_set)
        features = self.master_features(sets, state.gathered)
        positions = tuple(np.searchsorted(features, np.sort(s)) for s in sets)
        eta = np.append(state.eta, 0.0 if state.sets else 1.0)
        W = np.zeros((len(features), self.data.r))
        W[np.searchsorted(features, state.features)] = state.W
        factor = self.factor_for(features)
        solution = self.loss.solve_master(features, positions, self.gamma, eta, W, tol, factor)
        self.keep_factor(features, solution.factor)
        kept_sets = np.flatnonzero(solution.eta > 0)
        kept_rows = np.unique(np.concatenate([positions[t] for t in kept_sets]))
        return state._replace(
            sets=tuple(sets[t] for t in kept_sets),
            eta=solution.eta[kept_sets],
            features=features[kept_rows],
            W=solution.W[kept_rows],
            upper=solution.value,
        )

    def master_features(self, sets: Sequence[IntArray], gathered: IntArray) -> IntArray:
        """Return the features that the rows of the master over `sets` stand for.

        These are all gathered ones if the sets hold most of them, or if they are many, because G is
        not copied then.
        """
        features = np.unique(np.concatenate(sets))
        self.data.add(features)
        is_most = len(features) >= ALL_GATHERED_SHARE * len(gathered)
        return gathered if is_most or len(gathered) >= LARGE_SIZE.value else features

    def keep_factor(self, features: IntArray, factor: Factor) -> None:
        """Keep the last factor of a master over `features`."""
        self.last_factor = (features[factor.active], factor)

    def factor_for(self, features: IntArray) -> Factor | None:
        """Return the kept factor, for a master over `features`, if they include all of its own."""
        if self.last_factor is None:
            return None
        factor_features, factor = self.last_factor
        if not factor.kept or not np.isin(factor_features, features).all():
            return None
        return factor._replace(active=np.searchsorted(features, factor_features))

    def make_room(self) -> None:
        """Free the kept factor before a pass, where its memory is short."""
        if not self.data.keeps_factor and self.last_factor is not None:
            self.last_factor = None
            engine.trim_memory()  # what the master's arrays have left

    def heaviest(self, state: CuttingPlaneState) -> IntArray:
        """Return the positions in the union of the features of largest weight, in their order."""
        order = self.constraints.within(state.features).order(row_norms(state.W))
        return np.sort(order[: CANDIDATES * self.m])

    def eliminate_to_m(self, state: CuttingPlaneState) -> tuple[IntArray, Elimination]:
        """Return the features of largest weight in the union, and their order of elimination.

        The m best are then improved by exchanges for others of the union.
        """
        heaviest = self.heaviest(state)
        features, W = state.features[heaviest], state.W[heaviest]
        kept = self.constraints.within(features).kept
        elimination = self.loss.eliminate(features, W, self.gamma, self.m, kept)
        return features, self.loss.exchange(features, elimination, self.gamma, self.m, kept)

    def with_choice(
        self, features: IntArray, elimination: Elimination, chosen: IntArray
    ) -> tuple[IntArray, Elimination]:
        """Return the features and their order of elimination, with the chosen ones first."""
        union = np.union1d(features, chosen)
        new = np.setdiff1d(chosen, features)
        order = np.searchsorted(union, np.append(features[elimination.order], new))
        extended = elimination._replace(
            order=order, costs=np.append(elimination.costs, np.zeros(len(new)))
        )
        G, B = self.data.gram(union)
        inside, kept = np.searchsorted(union, chosen), self.constraints.within(union).kept
        given = (G, B, self.data.T_norm2, self.gamma, extended, inside, kept)
        return union, with_choice(*given)

    def lower_bound(self, residual: Residual, s: FloatArray) -> float:
        """Return a²/(2b), a = tr(VᵀT), b = ‖V‖² + (Σ s_j)/γ over the set of largest Σ s_j."""
        b = residual.norm2 + float(s.sum()) / self.gamma
        return residual.a**2 / (2 * b) if b > 0 else 0.0

    def inner_certificate(self, state: CuttingPlaneState) -> tuple[IntArray, float]:
        """Return the next set among the gathered features, and a bound on their relaxation."""
        C, residual = self.loss.products(state.W, state.features, state.gathered)
        s = row_norms(C) ** 2
        best = self.constraints.within(state.gathered).order(s)[: self.m]
        return state.gathered[best], self.lower_bound(residual, s[best])

    def is_cheap_inside(self, state: CuttingPlaneState) -> bool:
        """Return whether a cut on the gathered columns takes less than twice the time of a pass.

        Both are predicted from counts alone, so the answer does not depend on a clock.
        """
        nnz = self.data.X.nnz
        if nnz < MIN_PASS_NNZ.value:
            return False
        u, r = len(state.gathered), self.data.r
        cut = FACTOR_SECONDS * u**3 + PRODUCT_SECONDS * u**2 * (r + 3)
        one_pass = PASS_SECONDS + ENTRY_SECONDS * nnz * (r + 4)
        return cut < 2 * one_pass
