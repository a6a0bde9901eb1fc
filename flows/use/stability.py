"""The stability of a selection, as a table (`bigfs stability`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import storage
from bigfs.flows.evaluation import selection
from bigfs.flows.use.files import is_table, require_ours, with_suffix, write_table
from bigfs.selectors.stability import Stability, stability

HEADER = ("rank", "index", "name", "frequency")
THRESHOLDS = (0.6, 0.75, 0.9, 1.0)  # of frequencies, whose bounds are printed
MOST_GROUPS, MOST_NAMES = 5, 10  # of near copies that are printed
PAIRED_HEADER = (*HEADER, "false_choices", "group")


def measure_stability(
    store: str,
    out: str | Path,
    *,
    method: str,
    features: int | None,
    parameters: dict[str, Any] | None = None,
    subsamples: int = 50,
    share: float = 0.5,
    pairs: bool = False,
) -> Stability:
    """Write how often each feature of a store is chosen from subsamples of the training samples.

    With pairs, each feature has the bound on false choices among those up to it, where its
    frequency is above one half, and the number of its group of near copies.
    """
    corpus, file = storage.open(store), with_suffix(out, (".csv",))
    require_ours(file, lambda path: any(is_table(path, h) for h in (HEADER, PAIRED_HEADER)))
    m = selection.number_of(features, corpus)
    selector = selection.selector_for(corpus, method, m, parameters or {})
    if selection.get_method(method).scores != "scores_":
        raise ValueError(f"{method} does not choose features, so it has no stability")
    train = selection.training_part(corpus)
    found = stability(
        selector,
        *selection.usable(selector, method, train.X, train.y),
        n_subsamples=subsamples,
        train_size=share,
        pairs=pairs,
    )
    order = np.argsort(-found.frequencies, kind="stable")[: np.count_nonzero(found.frequencies)]
    ranks, shares = range(1, len(order) + 1), found.frequencies[order].tolist()
    columns = [ranks, order.tolist(), corpus.feature_names[order], shares]
    if pairs:
        columns.append([found.false_choices(p) if p > 0.5 else "" for p in shares])
        group_of = {j: k for k, group in enumerate(found.groups, 1) for j in group.features}
        columns.append([group_of.get(j, "") for j in order])
    write_table(file, PAIRED_HEADER if pairs else HEADER, zip(*columns, strict=True))
    return found


def describe_pairs(found: Stability, names: Sequence[str]) -> list[str]:
    """Return the sentences on false choices and on groups of near copies."""
    lines = []
    for threshold in THRESHOLDS:
        n, bound = len(found.chosen(threshold)), found.false_choices(threshold)
        lines.append(
            f"{n:,} features are in {threshold:.0%} of the halves or more; by chance at most "
            f"{bound:.2g} are expected there"
        )
    for group in found.groups[:MOST_GROUPS]:
        some = ", ".join(str(names[j]) for j in group.features[:MOST_NAMES])
        more = len(group.features) - MOST_NAMES
        lines.append(
            f"near copies, at least one of them in {group.frequency:.0%} of the halves: {some}"
            + (f" and {more} others" if more > 0 else "")
        )
    return lines
