"""Put blocks in the units that the training rows decide.

It takes up to two passes over scratch for the units, and one to rewrite. A block
is written anew under another name, because a task may run twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.matrix.statistics import FAR_SCALE, Stats, is_table, scale_ratios
from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.scaling import (
    LOGNORM,
    MAX,
    NONE,
    SCALES,
    STANDARD,
    TFIDF,
    WEIGHTS,
    Scaling,
    require_counts,
    row_totals,
)
from bigfs.storage.staging.scratch import (
    BY_ROW,
    SAMPLES,
    RowBlock,
    delete,
    forget,
    map_columns,
    open_array,
    read_block,
    read_entries,
    save,
    write_block,
)
from bigfs.types import AnyArray, FloatArray

GROUP = Setting(64)  # blocks whose columns are in the driving process at a time


def unit_settings(
    weight: str | None,
    scale: str,
    sublinear_tf: bool,
    target_sum: float | None,
    is_text: bool,
    place: str,
) -> dict[str, Any]:
    """Return the settings of the units of a source, none for its own values."""
    if weight not in (None, *WEIGHTS):
        raise SourceError(f"weight must be {' or '.join(WEIGHTS)}; got {weight!r}")
    if scale not in SCALES:
        raise SourceError(f"scale must be {', '.join(SCALES[:-1])} or none; got {scale!r}")
    is_given = scale in (STANDARD, MAX)
    if weight is not None and is_given:
        raise SourceError("weight and scale exclude one another: give one of them")
    if is_text and (weight == LOGNORM or is_given):
        unfit = f"scale={scale}" if is_given else f"weight={weight}"
        raise SourceError(f"{place} is text, whose tf-idf rows have unit length: leave out {unfit}")
    if target_sum is not None and weight != LOGNORM:
        raise SourceError("target_sum is for weight=lognorm: give both, or leave it out")
    if target_sum is not None and not (target_sum > 0 and np.isfinite(target_sum)):
        raise SourceError(f"target_sum must be a number above 0; got {target_sum}")
    if is_text or weight is None:
        return {} if is_text or scale == NONE else {"scale": scale}
    if weight == TFIDF:
        return {"weight": weight, "sublinear_tf": sublinear_tf}
    return {"weight": weight} | ({} if target_sum is None else {"target_sum": target_sum})


def put_in_units(
    blocks: Sequence[RowBlock], settings: dict[str, Any], d: int, scratch: Path, place: str
) -> tuple[list[RowBlock], Scaling | None]:
    """Return the blocks in the units of `settings`, and the units.

    They are None where the scale "auto" finds that the columns have one unit.
    """
    training = [s for s in blocks if s.split != "test"] or list(blocks)
    n = sum(s.rows for s in training)
    if settings.get("weight") == LOGNORM:
        factors = np.full(d, settings.get("target_sum") or _median_total(training, place))
    elif "weight" in settings:
        factors = np.log((1.0 + n) / (1.0 + _combine(training, d, "counts")[0])) + 1.0
    elif settings["scale"] == MAX:
        factors = _combine(training, d, "largest")[0]
    elif settings["scale"] == STANDARD:
        counts, sums = _combine(training, d, "counts", "sums")
        factors = _deviations(training, n, counts, sums, scratch)
    elif (found := _deviations_of_table(training, d, n, scratch)) is not None:
        settings, factors = {"scale": STANDARD}, found
    else:
        return list(blocks), None
    if "scale" in settings:
        factors[factors == 0] = 1
    units = Scaling(settings, factors)
    forget(scratch)
    return rewrite(blocks, units, scratch, place), units


def _deviations(
    blocks: Sequence[RowBlock], n: int, counts: FloatArray, sums: FloatArray, scratch: Path
) -> FloatArray:
    """Return the standard deviation of each column, 0 of a constant one."""
    means, path = sums / n, str(scratch / "means")
    save(path, means=means)
    squares = _combine(blocks, len(sums), "deviations", path=path)[0] + (n - counts) * means**2
    deviations = np.sqrt(squares / n)
    deviations[deviations <= 1e-12 * np.abs(means)] = 0  # rounding of a constant column
    return deviations


def _deviations_of_table(
    blocks: Sequence[RowBlock], d: int, n: int, scratch: Path
) -> FloatArray | None:
    """Return the standard deviation of each measured column of a table in several units.

    It is 0 for columns of 0 and 1. None if the source is no table, or in one unit.
    """
    (counts,) = _combine(blocks, d, "counts")
    dense = 2 * counts > n
    if not dense.any():
        return None  # without a look at the entries
    for some in (blocks[:1], blocks) if len(blocks) > 1 else (blocks,):
        seen, sums, squares = _combine(some, d, "counts", "sums", "squares")
        # columns of numbers other than 0 and 1, which vary where most samples have none
        sparse = ~dense & (seen > 0) & ~((sums == seen) & (squares == seen))
        if dense.sum() <= sparse.sum():
            return None  # no table, whatever the deviations, and one block may tell
    deviations, stats = _deviations(blocks, n, counts, sums, scratch), Stats(sums, squares, counts)
    if not is_table(stats, deviations, n):
        return None
    ratios = scale_ratios(stats, deviations**2, n)
    return np.where(ratios > 0, deviations, 0) if (ratios > FAR_SCALE).any() else None


def rewrite(
    blocks: Sequence[RowBlock], units: Scaling, scratch: Path, place: str
) -> list[RowBlock]:
    """Write the blocks anew, in these units."""
    path = str(scratch / "units")
    save(path, factors=units.factors)
    new = engine.map_tiles(_rewrite, blocks, units.settings, path, place, label="weigh values")
    delete(blocks, *BY_ROW, "columns")
    return new


def _rewrite(block: RowBlock, settings: dict[str, Any], path: str, place: str) -> RowBlock:
    units = Scaling(settings, np.asarray(open_array(path, "factors")))
    X = read_block(block, len(units.factors))
    if units.weighs_rows:
        require_counts(X, place, units.settings["weight"])
    target = f"{block.path}-units"
    if os.path.exists(f"{block.path}.{SAMPLES}") and not os.path.exists(f"{target}.{SAMPLES}"):
        os.link(f"{block.path}.{SAMPLES}", f"{target}.{SAMPLES}")
    return write_block(target, units.apply(X), block.split, block.told)


def _median_total(blocks: Sequence[RowBlock], place: str) -> float:
    """Return the median of the sums of the rows that hold something, as scanpy takes it."""
    totals = np.concatenate(engine.map_tiles(_totals, blocks, label="sum rows"))
    if not (totals > 0).any():
        raise SourceError(f"{place} holds no counts, so no sum to normalize them to")
    return float(np.median(totals[totals > 0]))


def _totals(block: RowBlock) -> FloatArray:
    return row_totals(read_block(block, block.width))


# --- sums of the columns --------------------------------------------------------------------------


def _combine(blocks: Sequence[RowBlock], d: int, *kinds: str, path: str = "") -> FloatArray:
    """Combine figures of the columns of all blocks, in the order of the blocks."""
    combine, total = np.maximum if "largest" in kinds else np.add, np.zeros((len(kinds), d))
    for first in range(0, len(blocks), GROUP.value):
        for columns, values in engine.map_tiles(
            _figures, blocks[first : first + GROUP.value], kinds, path
        ):
            total[:, columns] = combine(total[:, columns], values)
    return total


def _figures(block: RowBlock, kinds: Sequence[str], path: str) -> tuple[AnyArray, FloatArray]:
    """Return the columns that occur in a block, and a row of figures of each kind."""
    columns, starts = map_columns(block.path, block.present)
    columns, begins, sizes = np.array(columns), starts[:-1], np.diff(starts)
    figures, values = np.empty((len(kinds), len(columns))), np.empty(0)
    if kinds != ("counts",):
        values = read_entries(block.path, block.present, block.nnz, 0, block.nnz)[1].astype(float)
    for figure, kind in zip(figures, kinds, strict=True):
        if kind == "counts":
            figure[:] = sizes
        elif kind == "sums":
            np.add.reduceat(values, begins, out=figure)
        elif kind == "largest":
            np.maximum.reduceat(np.abs(values), begins, out=figure)
        elif kind == "squares":
            np.add.reduceat(values**2, begins, out=figure)
        else:  # of the deviations from the means
            means = np.repeat(open_array(path, "means")[columns], sizes)
            np.add.reduceat((values - means) ** 2, begins, out=figure)
    return columns, figures
