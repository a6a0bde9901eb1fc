"""The false discovery rate of ANOVA(mode="fdr"): the share of the chosen features that have nothing
to do with the classes, in the mean of the draws.

python benchmarks/fdr.py --draws 20
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from shared import table

from bigfs import ANOVA


def main(
    draws: Annotated[int, typer.Option(help="of the data")] = 20,
    n: Annotated[int, typer.Option(help="samples of two classes")] = 200,
    d: Annotated[int, typer.Option(help="features")] = 100_000,
    informative: Annotated[int, typer.Option(help="features that follow the classes")] = 1000,
    shift: Annotated[float, typer.Option(help="of their means, in standard deviations")] = 0.6,
) -> None:
    """Mean rate and power per level; fails if a rate is above its level by more than two standard
    errors. Its expectation is 0.99 of the level: the share of features that are not informative.
    """
    levels, y = (0.01, 0.05, 0.1, 0.2), np.arange(n) % 2
    rates, powers = (np.zeros((draws, len(levels))) for _ in range(2))
    for seed in range(draws):
        X = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
        X[:, :informative] += np.float32(shift) * y[:, None]
        for k, level in enumerate(levels):
            chosen = ANOVA(mode="fdr", param=level).fit(X, y).selected_
            is_false = chosen >= informative
            rates[seed, k] = is_false.mean() if len(chosen) else 0.0
            powers[seed, k] = np.count_nonzero(~is_false) / informative
    means, errors = rates.mean(axis=0), rates.std(axis=0, ddof=1) / np.sqrt(draws)
    rows = [
        (f"{level}", f"{rate:.4f}", f"{error:.4f}", f"{power:.3f}")
        for level, rate, error, power in zip(
            levels, means, errors, powers.mean(axis=0), strict=True
        )
    ]
    table(
        f"False discoveries, {draws} draws of {n} × {d:,}, {informative:,} informative",
        ["level", "false discovery rate", "standard error", "informative found"],
        rows,
    )
    if np.any(means - 2 * errors > levels):
        raise SystemExit("a rate is above its level")


if __name__ == "__main__":
    typer.run(main)
