"""Bases by online dictionary learning [JGSC, step 1]: SPAMS `trainDL`, fed batch by batch.

    min_{D, a_i}  Σ_i ½‖x_i − D a_i‖² + λ₁‖a_i‖₁      with ‖d_k‖₂ ≤ 1 for each atom (corrected: not their sum)

SPAMS keeps A = Σ a_i a_iᵀ (m × m) and B = Σ x_i a_iᵀ (d × m) of every sample it has seen, so a batch and the
statistics before it are all it needs: no n × d array exists, and a killed run goes on from (D, A, B).

Batches are rows [0, b), [b, 2b), … whatever the tiles of the store are, and each is one call of SPAMS, so
the atoms depend on the seed and on `batch_rows`, not on the chunks, the cluster, or an interruption.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bigfs import blocks
from bigfs.matrix import Matrix
from bigfs.result import Result, iterate

Array = NDArray[np.float64]
WORKING_COPIES = 6  # d × m arrays alive at once inside one call: D and B in, D and B out, and SPAMS's own two
MAX_ATOMS = 256
THREADS = 2  # of SPAMS; part of the last bits of the answer, so a constant


class NoSpams(ImportError):
    """SPAMS is not installed."""


class Learned(NamedTuple):
    """Atoms, and what SPAMS needs to go on."""

    D: Array  # d × m, Fortran order, columns of norm at most one
    A: Array  # m × m
    B: Array  # d × m
    updates: int  # of the dictionary, one a batch
    change: float  # ‖D − D_before‖ / ‖D‖ of the last update


def default_atoms(n: int, d: int) -> int:
    """m = min(d, n, 256), fewer where d × m dense would not fit: the paper takes m = d, which text cannot."""
    room = blocks.memory_limit() // 2
    return max(1, min(d, n, MAX_ATOMS, room // (WORKING_COPIES * 8 * d)))


def learn_atoms(
    X: Matrix,
    n_atoms: int,
    *,
    lam: float = 0.1,
    epochs: int = 1,
    batch_rows: int = 1024,
    seed: Any = None,
) -> Result[Learned]:
    """Learn m atoms from the rows of `X` (n × d).

    Parameters
    ----------
    lam : λ₁ in units of the root mean square row norm, so that scaling the data scales nothing else.
    epochs : times that every row is fed.
    batch_rows : rows a call; part of the answer, unlike the tiles.
    seed : int or `RandomState`: which rows the atoms start from.

    Returns
    -------
    Result of a `Learned`. Online learning has no certificate: the run ends when every batch was fed,
    and `change` in the history says how much the last batch still moved the atoms.

    Raises
    ------
    NoSpams : with what to install.
    ValueError : for rows that are all zero, or NaN or infinity in `X`.
    blocks.NotEnoughMemory : if the working copies of d × m do not fit.
    """
    train = _spams().trainDL
    n, d = X.shape
    blocks.require_memory(WORKING_COPIES * 8 * d * n_atoms, f"a dictionary of {n_atoms} atoms over {d} features")
    lam_data = lam * _rms_row_norm(X)
    starts = range(0, n, batch_rows)
    D = _data_rows(X, n_atoms, np.random.RandomState(seed) if not isinstance(seed, np.random.RandomState) else seed)

    def step(now: Learned) -> Learned:
        start = starts[now.updates % len(starts)]
        M = _columns_of(X.rows(np.arange(start, min(start + batch_rows, n))))
        warm = {"A": np.asfortranarray(now.A), "B": np.asfortranarray(now.B), "iter": now.updates} if now.updates else None
        D, model = train(
            M,
            D=np.asfortranarray(now.D),
            model=warm,
            lambda1=lam_data,
            iter=1,
            batchsize=M.shape[1],
            numThreads=THREADS,
            verbose=False,
            return_model=True,
        )
        change = float(np.linalg.norm(D - now.D) / np.linalg.norm(D))
        return Learned(D, model["A"], model["B"], now.updates + 1, change)

    total = epochs * len(starts)
    first = Learned(D, np.zeros((n_atoms, n_atoms)), np.zeros((d, n_atoms)), 0, np.inf)
    return iterate(
        step,
        first,
        measure=lambda now: {"batches_left": total - now.updates, "change": now.change},
        stop="batches_left",
        tol=0,
        max_iter=total,
        name="dictionary learning",
    )


def _spams() -> Any:
    try:
        import spams
    except ImportError as error:
        raise NoSpams("dictionary learning needs SPAMS (GPL-3.0), which is not installed: pip install 'bigfs[jgsc]'") from error
    return spams


def _rms_row_norm(X: Matrix) -> float:
    """√(Σ‖x_i‖²/n), from the column statistics; SPAMS itself turns NaN into a dictionary of NaN."""
    norm = float(np.sqrt(X.stats.squares.sum() / X.shape[0]))
    if not np.isfinite(norm):
        raise ValueError("dictionary learning needs finite values; X holds NaN or infinity (or values too large to square)")
    if norm == 0:
        raise ValueError("dictionary learning needs rows that are not all zero; X is zero everywhere")
    return norm


def _data_rows(X: Matrix, m: int, rng: np.random.RandomState) -> Array:
    """d × m: random rows of `X` at unit length, as SPAMS starts; Gaussian where rows are zero or too few."""
    n, d = X.shape
    rows = np.sort(rng.permutation(n)[:m])
    D = np.zeros((d, m), order="F")
    block = X.rows(rows)
    D[:, : len(rows)] = (block.toarray() if sp.issparse(block) else block).T
    norms = np.linalg.norm(D, axis=0)
    D[:, norms == 0] = rng.standard_normal((d, int(np.sum(norms == 0))))
    return np.asfortranarray(D / np.linalg.norm(D, axis=0))


def _columns_of(block: Any) -> Any:
    """b × d rows as what `trainDL` takes: d × b, float64, Fortran or csc (csr crashes it). csrᵀ is csc as it lies."""
    if sp.issparse(block):
        return sp.csc_matrix(sp.csr_array(block, dtype=np.float64).T)
    return np.asfortranarray(np.asarray(block, dtype=np.float64).T)
