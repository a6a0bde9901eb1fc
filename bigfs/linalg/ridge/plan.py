"""Which way to solve: projected time and memory of the three, and why one was chosen.

woodbury   n²·(non-zeros a column) to build, n³/3 to factor      n × n in memory
primal     d²·(non-zeros a row) to build, d³/3 to factor         d × d in memory
cg         4·nnz·r for each of its iterations                    8 blocks of d × r in memory
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs import engine
from bigfs.engine import format_bytes
from bigfs.types import IntArray

DENSE = 2e10  # flops a second of a Cholesky factorization, on two cores of 2024
SPARSE = 3e8  # flops a second of products of sparse matrices
TASK = 3e-3  # seconds to hand one tile to a worker
# of CG, with its diagonal preconditioner, when nothing is known of the conditioning
ITERATIONS = 50
WAYS = ("woodbury", "primal", "cg")


class Cost(NamedTuple):
    """Projected seconds of one prepare and solve, and bytes in one process."""

    seconds: float
    bytes: int


class Plan(NamedTuple):
    """The way chosen, what it is projected to take, the same of every way, and the reason in
    words.
    """

    way: str
    cost: Cost
    costs: dict[str, Cost]
    why: str


def project(
    n: int,
    d: int,
    counts: IntArray,
    r: int,
    tiles: int = 0,
    workers: int = 1,
    e: int = 0,
    root: bool = False,
    iterations: int = ITERATIONS,
) -> dict[str, Cost]:
    """Time and memory of each way: n × d with `counts` non-zeros a column, r right-hand sides,
    `tiles` tiles that are not in this process, e non-zeros in F; `root`: M has to be factored for
    Woodbury; `iterations` of CG to expect.
    """
    nnz = float(counts.sum())
    # multiply-adds of XXᵀ; those of XᵀX are nnz²/n or more
    overlap = float(np.sum(counts.astype(float) ** 2))
    wait = TASK * tiles / workers
    low = (e * nnz / n) ** 2 / n if root else 0.0  # (FᵀX)ᵀ(FᵀX), with as many columns in F as rows
    product = 4 * (nnz + e) * r / SPARSE + 2 * wait
    return {
        "woodbury": Cost(
            2 * min(overlap / SPARSE, n * n * d / DENSE)
            + (5 if root else 1) * n**3 / 3 / DENSE
            + 3 * product,
            (40 if root else 24) * n * n,
        ),
        "primal": Cost(
            2 * min((nnz**2 / n + low) / SPARSE, n * d * d / DENSE)
            + d**3 / 3 / DENSE
            + 2 * product,
            24 * d * d,
        ),
        "cg": Cost((1 + iterations) * product, 64 * d * r + 16 * n * r),
    }


def choose(costs: dict[str, Cost], solver: str = "auto", limit: int | None = None) -> Plan:
    """The quickest way that fits in `limit` bytes, or the way asked for.

    Raises
    ------
    NotEnoughMemory : the way asked for, or every way, passes the limit.
    """
    if solver not in (*WAYS, "auto"):
        raise ValueError(f"solver must be one of {', '.join(WAYS)} or auto; got {solver!r}")
    limit = engine.memory_limit() if limit is None else limit
    fitting = {way: cost for way, cost in costs.items() if cost.bytes <= limit}
    way = (
        solver
        if solver != "auto"
        else min(fitting or costs, key=lambda w: costs[w].seconds if fitting else costs[w].bytes)
    )
    engine.require_memory(costs[way].bytes, f"the ridge solve by {way}", limit)
    table = ", ".join(f"{w} {c.seconds:.2g} s in {format_bytes(c.bytes)}" for w, c in costs.items())
    left = [w for w in costs if w not in fitting]
    why = f"{'requested' if solver != 'auto' else 'the least time'} among {table}" + (
        f". Does not fit in memory: {', '.join(left)}" if left else ""
    )
    return Plan(way, costs[way], costs, why)
