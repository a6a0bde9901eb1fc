"""Online dictionary learning with SPAMS [JGSC, step 1; Mairal, Bach, Ponce, Sapiro, JMLR 2010].

    min_{D, a_i}  Σ_i ½‖x_i − D a_i‖² + λ₁‖a_i‖₁      with ‖d_k‖₂ ≤ 1 for each atom

The constraint is corrected: the print bounds the sum of the norms.

SPAMS codes a batch of rows. The codes are added to the statistics A = Σ a aᵀ (m × m) and B = Σ x aᵀ
(d × m), and each atom in turn takes its best value given the others (Mairal's Alg. 2), a few times
over. The statistics are all that is kept of earlier batches, so a killed run continues from (D, A,
B). Codes of older atoms fade, so that from the second pass on the statistics are close to those of
all data at the current atoms.

SPAMS gets m-dimensional signals and no dense rows: with DᵀD = RᵀR, the lasso of x on D equals the
lasso of R⁻ᵀDᵀx on R. `spams.trainDL` does all this in one call on data in memory, and the tests
hold this module to its error. Called batch by batch through `model=`, trainDL itself does not reach
it.

A batch is a few runs of rows spread over the corpus, so that classes do not come one by one. The
atoms depend on the seed and on `batch_rows`, but not on the tiles, the cluster or an interruption.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bigfs import engine
from bigfs.advice import install_command
from bigfs.matrix import Matrix
from bigfs.result import Result, Status, iterate
from bigfs.types import FloatArray, IntArray

WORKING_COPIES = 8  # d × m arrays alive at once: D and B before and after an update, SPAMS's own
ATOMS_SHARE = 0.8  # of the planned memory, for these copies of the default number of atoms
MAX_ATOMS = 256
RUNS_PER_BATCH = 16  # runs of consecutive rows
FORGETTING = 5  # ρ: before update t, the statistics are multiplied by (1 − 1/t)^ρ
MIN_UPDATES = 32  # by default: a corpus of fewer batches is read more than once
SWEEPS = 2  # over the atoms, per update
GROUP = 16  # atoms whose changes are applied to the others at once
RIDGE = 1e-10  # on DᵀD, so that equal atoms have a Cholesky factor too
UNUSED = 1e-10  # an atom whose A_kk is below this share of the largest is unused, and stays


class SpamsMissingError(ImportError):
    """SPAMS is not installed."""


class DictionaryState(NamedTuple):
    """The atoms, and the statistics of the rows they were learned from."""

    D: FloatArray  # d × m, Fortran order, columns of norm at most one
    A: FloatArray  # m × m
    B: FloatArray  # d × m
    updates: int  # number of updates, one per batch
    change: float  # ‖D − D_before‖ / ‖D‖ of the last update


def default_atoms(n: int, d: int) -> int:
    """Return m = min(d, n, 256), or fewer atoms where the working copies of d × m would not fit.

    The paper takes m = d, which text does not allow.
    """
    available = int(ATOMS_SHARE * engine.planned_memory())
    return max(1, min(d, n, MAX_ATOMS, available // (WORKING_COPIES * 8 * d)))


def learn_atoms(
    X: Matrix,
    n_atoms: int,
    *,
    lam: float = 0.05,
    epochs: int | None = None,
    batch_rows: int = 512,
    seed: Any = None,
) -> Result[DictionaryState]:
    """Learn m atoms from the rows of X (n × d).

    Online learning has no certificate. The run ends when every batch was used, and `change` in the
    history says how much the last one still moved the atoms. λ₁ is in units of the root mean square
    row norm, so that the scale of the data does not matter. Without `epochs` every row is used
    once, or as often as `MIN_UPDATES` updates need.
    """
    try:
        from spams import lasso
    except ImportError as error:
        raise SpamsMissingError(
            f"dictionary learning needs SPAMS (GPL-3.0), which is not "
            f"installed: {install_command('jgsc')}"
        ) from error
    n, d = X.shape
    engine.require_memory(
        8 * n_atoms * (WORKING_COPIES * d + 3 * batch_rows + 2 * n_atoms),
        f"a dictionary of {n_atoms} atoms over {d} features",
    )
    row_norm = float(np.sqrt(X.stats.sums_of_squares.sum() / n))  # root mean square
    if row_norm == 0:
        raise ValueError(
            "dictionary learning needs a row with a non-zero value; X is zero everywhere"
        )
    batches = spread_batches(n, batch_rows)
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)

    @engine.session()  # SPAMS brings a BLAS of its own
    def step(state: DictionaryState) -> DictionaryState:
        rows = X.rows(batches[state.updates % len(batches)])
        codes = encode(lasso, rows, state.D, lam * row_norm)
        fading = (1 - 1 / (state.updates + 1)) ** FORGETTING
        A, B = fading * state.A + codes.T @ codes, fading * state.B
        for group in _groups(n_atoms, 4 * GROUP):
            B[:, group] += rows.T @ codes[:, group]
        D = update_atoms(state.D, A, B)
        change = float(np.linalg.norm(D - state.D) / np.linalg.norm(D))
        return DictionaryState(D, A, B, state.updates + 1, change)

    default_epochs = -(-MIN_UPDATES // len(batches))
    n_updates = (epochs or default_epochs) * len(batches)
    start = DictionaryState(
        _data_rows(X, n_atoms, rng),
        np.zeros((n_atoms, n_atoms)),
        np.zeros((d, n_atoms), order="F"),
        0,
        np.inf,
    )
    return iterate(
        step,
        start,
        measure=lambda state: {"batches_left": n_updates - state.updates, "change": state.change},
        stop="batches_left",
        tol=0,
        max_iter=n_updates,
        name="dictionary learning",
        reached=Status.FINISHED,
    )


def spread_batches(n: int, batch_rows: int) -> list[IntArray]:
    """Return the rows of each batch: slice t of each of a few stretches of the corpus."""
    n_batches = -(-n // batch_rows)
    n_stretches = min(RUNS_PER_BATCH, max(1, batch_rows // RUNS_PER_BATCH))
    stretches = np.array_split(np.arange(n), n_stretches)
    slices = [np.array_split(stretch, n_batches) for stretch in stretches]
    return [np.concatenate(parts) for parts in zip(*slices, strict=True)]


def encode(lasso: Any, rows: Any, D: FloatArray, lam: float) -> FloatArray:
    """Return the codes (b × m) of b rows, the minimizers of ½‖x − Da‖² + λ‖a‖₁."""
    G = D.T @ D
    G[np.diag_indices_from(G)] += RIDGE * np.trace(G) / len(G)
    R = scipy.linalg.cholesky(G)
    signals = scipy.linalg.solve_triangular(R, np.asarray(rows @ D).T, trans="T")
    codes = lasso(
        np.asfortranarray(signals), D=np.asfortranarray(R), lambda1=lam, mode=2, numThreads=1
    )
    return np.asarray(codes.toarray().T)


def update_atoms(D: FloatArray, A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the atoms after `SWEEPS` sweeps of Mairal's Alg. 2.

    Each atom in turn becomes the point of the unit ball nearest to d_k + (b_k − D a_k) / A_kk. The
    residual B − DA is updated for `GROUP` atoms at a time, so that D is read m / GROUP times per
    sweep and not m times.
    """
    D, m = D.copy(order="F"), len(A)
    used = np.diag(A) > UNUSED * np.diag(A).max()
    for group in SWEEPS * _groups(m, GROUP):
        residual = B[:, group] - D @ A[:, group]
        moves = np.zeros_like(residual, order="F")  # changes of the group's atoms so far
        for i, k in enumerate(range(group.start, group.stop)):
            if used[k]:
                atom = D[:, k] + (residual[:, i] - moves[:, :i] @ A[group.start : k, k]) / A[k, k]
                atom /= max(1.0, float(np.linalg.norm(atom)))
                moves[:, i] = atom - D[:, k]
                D[:, k] = atom
    return D


def _groups(m: int, size: int) -> list[slice]:
    """Return slices of `size` atoms."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]


def _data_rows(X: Matrix, m: int, rng: np.random.RandomState) -> FloatArray:
    """Return m random rows of `X` at unit length (d × m), as SPAMS starts.

    Gaussian vectors stand in where rows are zero or too few.
    """
    n, d = X.shape
    rows = np.sort(rng.permutation(n)[:m])
    D = np.zeros((d, m), order="F")
    block = X.rows(rows)
    D[:, : len(rows)] = (block.toarray() if sp.issparse(block) else block).T
    norms = np.linalg.norm(D, axis=0)
    D[:, norms == 0] = rng.standard_normal((d, int(np.sum(norms == 0))))
    return np.asfortranarray(D / np.linalg.norm(D, axis=0))
