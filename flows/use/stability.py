"""The stability of a selection, as a table (`bigfs stability`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import storage
from bigfs.flows.evaluation import selection
from bigfs.flows.use.files import is_table, require_ours, with_suffix, write_table
from bigfs.selectors.stability import Stability, stability

HEADER = ("rank", "index", "name", "frequency")


def measure_stability(
    store: str,
    out: str | Path,
    *,
    method: str,
    features: int | None,
    parameters: dict[str, Any] | None = None,
    subsamples: int = 50,
    share: float = 0.5,
) -> Stability:
    """Write how often each feature of a store is chosen from subsamples of the training samples."""
    corpus, file = storage.open(store), with_suffix(out, (".csv",))
    require_ours(file, partial(is_table, header=HEADER))
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
    )
    order = np.argsort(-found.frequencies, kind="stable")[: np.count_nonzero(found.frequencies)]
    ranks, shares = range(1, len(order) + 1), found.frequencies[order].tolist()
    rows = zip(ranks, order.tolist(), corpus.feature_names[order], shares, strict=True)
    write_table(file, HEADER, rows)
    return found
