"""The stability of a selection, as a table (`bigfs stability`)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import storage
from bigfs.selectors.stability import Stability, stability
from flows.evaluation import selection
from flows.use.files import with_suffix
from storage import atomic
from storage.runs.runs import write_csv

HEADER = ("rank", "index", "name", "frequency")


def measure_stability(
    store: str,
    out: str | Path,
    *,
    method: str,
    features: int,
    parameters: dict[str, Any] | None = None,
    subsamples: int = 50,
    share: float = 0.5,
) -> Stability:
    """Write how often each feature of a store is chosen from subsamples of the training samples."""
    corpus, file = storage.open(store), with_suffix(out, (".csv",))
    _require_table(file)
    selector = selection.selector_for(corpus, method, features, parameters or {})
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
    names = corpus.feature_names[order]
    rows = zip(
        range(1, len(order) + 1),
        order.tolist(),
        names,
        found.frequencies[order].tolist(),
        strict=True,
    )
    with atomic.write(file) as part:
        write_csv(part, HEADER, rows)
    return found


def _require_table(file: Path) -> None:
    """Check that the file is missing or is a table of this kind."""
    if os.path.lexists(file):
        first = b""
        with contextlib.suppress(OSError), file.open("rb") as stream:
            first = stream.readline(80)
        if first.strip() != ",".join(HEADER).encode():
            raise atomic.name_taken(file)
