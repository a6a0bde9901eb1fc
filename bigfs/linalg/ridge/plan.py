"""The choice of a solver: projected time and memory of the three, and the reason for one.

The choice depends on the layouts, the shapes and the non-zeros alone, so that the answer is the
same with any number of workers, with any tiles, and in any process of 1.4 GB or more: the planned
memory on top of an idle process.

solver     flops                                                   memory
woodbury   n²·(non-zeros per column) to build, n³/3 to factor      n × n
primal     d²·(non-zeros per row) to build, d³/3 to factor         d × d
cg         4·nnz·r per iteration                                   9 blocks of d × r

Where the tiles are in workers, a d × d part is in a worker together with the bytes that it sends.
CG also holds two arrays of n × r where X has only the layout by columns, or of n × a strip of the r
columns where M has a diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs import engine
from bigfs.engine import format_bytes
from bigfs.matrix import Matrix
from bigfs.types import IntArray

DENSE_FLOPS = 2e10  # flops per second of a Cholesky factorization, on one core of 2024
SPARSE_FLOPS = 3e8  # flops per second of products of sparse matrices
# Iterations to expect of CG with its diagonal preconditioner if the conditioning is unknown.
ITERATIONS = 50
SOLVERS = ("woodbury", "primal", "cg")
CG_BYTES = 72  # of CG per feature and right-hand side: nine arrays of d × r


class SolverCost(NamedTuple):
    """Projected seconds of one `prepare` and `solve`, and bytes in one process."""

    seconds: float
    bytes: int


class RidgePlan(NamedTuple):
    """The chosen solver, its cost, the costs of all solvers, and the reason in words."""

    solver: str
    cost: SolverCost
    costs: dict[str, SolverCost]
    why: str


def project_costs(
    n: int,
    d: int,
    counts: IntArray,
    r: int,
    e: int = 0,
    root: bool = False,
    iterations: int = ITERATIONS,
    width: int | None = None,
    local: bool = True,
) -> dict[str, SolverCost]:
    """Project the cost of each solver, where CG forms `width` columns of XW, or all, at a time.

    `local` says whether this process has the tiles.
    """
    nnz = float(counts.sum())
    # multiply-adds of XXᵀ; XᵀX takes nnz²/n or more
    overlap = float(np.sum(counts.astype(float) ** 2))
    low = (e * nnz / n) ** 2 / n if root else 0.0  # (FᵀX)ᵀ(FᵀX), for F of n columns
    product = 4 * (nnz + e) * r / SPARSE_FLOPS
    return {
        "woodbury": SolverCost(
            2 * min(overlap / SPARSE_FLOPS, n * n * d / DENSE_FLOPS)
            + (5 if root else 1) * n**3 / 3 / DENSE_FLOPS
            + 3 * product,
            kernel_bytes(n, root),
        ),
        "primal": SolverCost(
            2 * min((nnz**2 / n + low) / SPARSE_FLOPS, n * d * d / DENSE_FLOPS)
            + d**3 / 3 / DENSE_FLOPS
            + 2 * product,
            (24 if local else 40) * d * d,
        ),
        "cg": SolverCost(
            (1 + iterations) * product,
            CG_BYTES * d * r + 16 * n * (r if width is None else min(r, width)),
        ),
    }


def kernel_bytes(n: int, root: bool) -> int:
    """Return the bytes that Woodbury takes, which makes a root of M or has it in closed form."""
    return (40 if root else 24) * n * n


def planned_bytes() -> int:
    """Return the bytes by which a solver is chosen."""
    return min(engine.spare_memory(), engine.planned_memory())


def has_layout(X: Matrix, solver: str) -> bool:
    if solver == "woodbury":
        return X.local or bool(X.column_tiles)
    return bool(X.row_tiles) if solver == "primal" else True


def choose_solver(costs: dict[str, SolverCost], solver: str = "auto") -> RidgePlan:
    """Return a plan with the fastest solver, or with the requested one."""
    planned = planned_bytes()
    fitting = {name: cost for name, cost in costs.items() if cost.bytes <= planned}
    if solver != "auto":
        chosen = solver
    elif fitting:
        chosen = min(fitting, key=lambda name: fitting[name].seconds)
    else:
        chosen = min(costs, key=lambda name: costs[name].bytes)
    engine.require_memory(costs[chosen].bytes, f"the ridge solve by {chosen}")
    table = ", ".join(
        f"{name} {cost.seconds:.2g} s in {format_bytes(cost.bytes)}" for name, cost in costs.items()
    )
    too_large = [name for name in costs if name not in fitting]
    why = f"{'requested' if solver != 'auto' else 'the least time'} among {table}" + (
        f". Too large for {format_bytes(planned)}: {', '.join(too_large)}" if too_large else ""
    )
    return RidgePlan(chosen, costs[chosen], costs, why)
