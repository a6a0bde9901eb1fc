"""Bases by online dictionary learning [JGSC, step 1; Mairal, Bach, Ponce, Sapiro, JMLR 2010], coded
by SPAMS.

    min_{D, a_i}  Σ_i ½‖x_i − D a_i‖² + λ₁‖a_i‖₁      with ‖d_k‖₂ ≤ 1 for each atom (corrected: not
        their sum)

A batch of rows is coded by SPAMS, then joins the statistics A = Σ a aᵀ (m × m) and B = Σ x aᵀ (d ×
m), and the atoms take their best values given the others, one after the other (their Alg. 2), a few
times over. The statistics are all that is kept of the past: no n × d array exists, and a killed run
goes on from (D, A, B). Codes of older atoms fade, so that from the second pass on the statistics
are close to those of the whole data at the present atoms.

This is what `spams.trainDL` does in one call on data in memory; the tests hold it to trainDL's
error. Fed batch by batch through `model=`, trainDL itself does not reach that error. SPAMS here
codes m-dimensional signals, not d-dimensional ones, and so needs no dense rows: with DᵀD = RᵀR, the
lasso of x on D is that of R⁻ᵀDᵀx on R.

A batch is a few runs of rows spread evenly over the corpus, so that one sorted by class does not
come class by class. They are the same whatever the tiles of the store are: the atoms depend on the
seed and on `batch_rows`, not on the chunks, the cluster, or an interruption.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.result import Result, iterate
from bigfs.types import FloatArray, IntArray

WORKING_COPIES = 5  # d × m arrays alive at once: D and B before and after an update, a difference
MAX_ATOMS = 256
RUNS = 16  # of consecutive rows in a batch
FORGET = 5  # ρ: before update t, the past counts for (1 − 1/t)^ρ
UPDATES = 32  # at least, by default: fewer passes over more rows
SWEEPS = 2  # over the atoms, an update
GROUP = 16  # atoms whose changes are applied to the others at once
RIDGE = 1e-10  # on DᵀD, so that equal atoms have a Cholesky factor too
UNUSED = 1e-10  # an atom whose A_kk is below this share of the largest was not used, and stays


class NoSpams(ImportError):
    """SPAMS is not installed."""


class Learned(NamedTuple):
    """Atoms, and what is kept of the rows they were learned from."""

    D: FloatArray  # d × m, Fortran order, columns of norm at most one
    A: FloatArray  # m × m
    B: FloatArray  # d × m
    updates: int  # of the dictionary, one a batch
    change: float  # ‖D − D_before‖ / ‖D‖ of the last update


def default_atoms(n: int, d: int) -> int:
    """m = min(d, n, 256), fewer where d × m dense would not fit: the paper takes m = d, which text
    cannot.
    """
    room = engine.memory_limit() // 2
    return max(1, min(d, n, MAX_ATOMS, room // (WORKING_COPIES * 8 * d)))


def learn_atoms(
    X: Matrix,
    n_atoms: int,
    *,
    lam: float = 0.05,
    epochs: int | None = None,
    batch_rows: int = 512,
    seed: Any = None,
) -> Result[Learned]:
    """Learn m atoms from the rows of `X` (n × d).

    Parameters
    ----------
    lam : λ₁ in units of the root mean square row norm, so that scaling the data scales nothing
        else.
    epochs : times that every row is fed; None is once, and on less than UPDATES batches often
        enough for as many updates.
    batch_rows : rows an update; part of the answer, unlike the tiles.
    seed : int or `RandomState`: which rows the atoms start from.

    Returns ------- Result of a `Learned`. Online learning has no certificate: the run ends when
    every batch was fed, and `change` in the history says how much the last batch still moved the
    atoms.

    Raises
    ------
    NoSpams : with what to install.
    ValueError : for rows that are all zero, or NaN or infinity in `X`.
    blocks.NotEnoughMemory : if the working copies of d × m do not fit.
    """
    lasso = _spams().lasso
    n, d = X.shape
    engine.require_memory(
        WORKING_COPIES * 8 * d * n_atoms, f"a dictionary of {n_atoms} atoms over {d} features"
    )
    lam_data = lam * _rms_row_norm(X)
    batches = cut(n, batch_rows)
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)

    def step(now: Learned) -> Learned:
        rows = X.rows(batches[now.updates % len(batches)])
        codes = encode(lasso, rows, now.D, lam_data)
        fade = (1 - 1 / (now.updates + 1)) ** FORGET
        A, B = fade * now.A + codes.T @ codes, fade * now.B
        for group in _groups(n_atoms, 4 * GROUP):
            B[:, group] += rows.T @ codes[:, group]
        D = update_atoms(now.D, A, B)
        return Learned(
            D, A, B, now.updates + 1, float(np.linalg.norm(D - now.D) / np.linalg.norm(D))
        )

    total = (epochs or -(-UPDATES // len(batches))) * len(batches)
    return iterate(
        step,
        Learned(
            _data_rows(X, n_atoms, rng),
            np.zeros((n_atoms, n_atoms)),
            np.zeros((d, n_atoms), order="F"),
            0,
            np.inf,
        ),
        measure=lambda now: {"batches_left": total - now.updates, "change": now.change},
        stop="batches_left",
        tol=0,
        max_iter=total,
        name="dictionary learning",
    )


def cut(n: int, batch_rows: int) -> list[IntArray]:
    """The rows of each batch: the t-th slice of each of RUNS stretches of the corpus."""
    count = -(-n // batch_rows)
    stretches = np.array_split(np.arange(n), min(RUNS, max(1, batch_rows // RUNS)))
    slices = [np.array_split(stretch, count) for stretch in stretches]
    return [np.concatenate(parts) for parts in zip(*slices, strict=True)]


def encode(lasso: Any, rows: Any, D: FloatArray, lam: float) -> FloatArray:
    """b × m codes, the minimizers of ½‖x − Da‖² + λ‖a‖₁.

    SPAMS wants Fortran float64 and gets two m-dimensional arrays.
    """
    G = D.T @ D
    G[np.diag_indices_from(G)] += RIDGE * np.trace(G) / len(G)
    R = scipy.linalg.cholesky(G)
    signals = scipy.linalg.solve_triangular(R, np.asarray(rows @ D).T, trans="T")
    codes = lasso(
        np.asfortranarray(signals), D=np.asfortranarray(R), lambda1=lam, mode=2, numThreads=1
    )
    return np.asarray(codes.toarray().T)


def update_atoms(D: FloatArray, A: FloatArray, B: FloatArray) -> FloatArray:
    """Sweeps of Alg.

    2: d_k ← the point of the unit ball nearest to d_k + (b_k − D a_k) / A_kk, one after the other.

    The residual B − DA is brought up to date for GROUP atoms at a time, so D is read m / GROUP
    times a sweep, not m times.
    """
    D, m = D.copy(order="F"), len(A)
    used = np.diag(A) > UNUSED * np.diag(A).max()
    for group in SWEEPS * _groups(m, GROUP):
        residual = B[:, group] - D @ A[:, group]
        moves = np.zeros_like(residual, order="F")  # of the group's atoms so far
        for i, k in enumerate(range(group.start, group.stop)):
            if used[k]:
                atom = D[:, k] + (residual[:, i] - moves[:, :i] @ A[group.start : k, k]) / A[k, k]
                atom /= max(1.0, float(np.linalg.norm(atom)))
                moves[:, i] = atom - D[:, k]
                D[:, k] = atom
    return D


def _groups(m: int, size: int) -> list[slice]:
    return [slice(a, min(a + size, m)) for a in range(0, m, size)]


def _spams() -> Any:
    try:
        import spams
    except ImportError as error:
        raise NoSpams(
            "dictionary learning needs SPAMS (GPL-3.0), which is not "
            "installed: pip install 'bigfs[jgsc]'"
        ) from error
    return spams


def _rms_row_norm(X: Matrix) -> float:
    """√(Σ‖x_i‖²/n), from the column statistics."""
    norm = float(np.sqrt(X.stats.sums_of_squares.sum() / X.shape[0]))
    if norm == 0:
        raise ValueError(
            "dictionary learning needs a row with a non-zero value; X is zero everywhere"
        )
    return norm


def _data_rows(X: Matrix, m: int, rng: np.random.RandomState) -> FloatArray:
    """d × m: random rows of `X` at unit length, as SPAMS starts; Gaussian where rows are zero or
    too few.
    """
    n, d = X.shape
    rows = np.sort(rng.permutation(n)[:m])
    D = np.zeros((d, m), order="F")
    block = X.rows(rows)
    D[:, : len(rows)] = (block.toarray() if sp.issparse(block) else block).T
    norms = np.linalg.norm(D, axis=0)
    D[:, norms == 0] = rng.standard_normal((d, int(np.sum(norms == 0))))
    return np.asfortranarray(D / np.linalg.norm(D, axis=0))
