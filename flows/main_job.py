"""The main job as a function: `bigfs.run`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bigfs.flows import run as runs
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions, RunScoring, SourceOptions
from bigfs.storage.runs.runs import Run


def run(
    source: str | os.PathLike[str],
    method: str | None = None,
    features: int | str | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    settings: SourceOptions | Mapping[str, Any] | None = None,
    scoring: RunScoring | Mapping[str, Any] | None = None,
    engine: ClusterOptions | Mapping[str, Any] | None = None,
    fresh: bool = False,
) -> Run:
    """Stage a source, select features, score them, and write the report, as `bigfs run` does.

    Results on disk from an earlier run of the same content, settings and program are
    reused. A killed run continues from its last step.

    Parameters
    ----------
    source : str or path-like
        Path, URL, or the name of a corpus, with options as in ``wine.csv?columns=*&label=kind``.
    method : str or None, default=None
        A method that `bigfs methods` lists, or the name of its class. None takes SparGE by the
        kind of target: "sparge-lda", "sparge-cca" for several labels or real targets, "sparge-pca"
        without labels.
    features : int or {"auto", "percentile", "fpr", "fdr", "fwe"}, default=None
        Number of features, or how it is chosen. None selects 500, or half of the features of a
        corpus with fewer than 1,000.
    store : str, path-like or None, default=None
        Path or URL of the staged corpus. None makes one in the folder .bigfs.
    out : str, path-like or None, default=None
        Directory of the run. None makes one in the folder runs.
    parameters : mapping or None, default=None
        Parameters of the method.
    settings : mapping or None, default=None
        Options of `bigfs stage`, such as ``{"scale": "standard"}``.
    scoring : mapping or None, default=None
        How the selection is scored: metrics, sizes, against, cv, classifier, test_size, controls,
        draws.
    engine : mapping or None, default=None
        Where the work is done: workers, memory_limit, scheduler, cluster, tls, dashboard. None
        starts a process per core.
    fresh : bool, default=False
        Whether to select again, and to replace another result in the directory.

    Returns
    -------
    Run
        The finished run: `selected`, `scores`, `metadata`, `read_table` and `model`.

    Raises
    ------
    ValueError
        An option is wrong, or the directory holds another result.

    See Also
    --------
    SelectorCV : Choose the number of features of any selector.

    Examples
    --------
    >>> import tempfile
    >>> import bigfs
    >>> folder = tempfile.TemporaryDirectory()
    >>> found = bigfs.run(
    ...     "synthetic:newswire?rows=60",
    ...     "anova",
    ...     5,
    ...     store=f"{folder.name}/news.zarr",
    ...     out=f"{folder.name}/run",
    ...     engine={"workers": 0},
    ... )
    >>> len(found.selected)
    5
    >>> folder.cleanup()
    """
    given: dict[str, Any] = {"source": os.fspath(source), "method": method, "features": features}
    given |= {name: os.fspath(place) for name, place in (("store", store), ("out", out)) if place}
    parts = {"parameters": parameters, "settings": settings, "scoring": scoring, "engine": engine}
    given |= {name: part for name, part in parts.items() if part is not None}
    job = Job(**given, fresh=fresh).with_out()
    if not runs.is_done(job):
        runs.run(runs.prepare(job))
    return Run.open(job.folder)
