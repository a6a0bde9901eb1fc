"""The bench of a comparison: every method chooses on the same samples and is scored on the same.

A method's result is kept in the folder of the comparison as `results/METHOD.npz`, arrays and JSON
without pickles. A second comparison with the same samples, sizes and program takes it from there.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import storage
from bigfs import engine
from bigfs.evaluation import FoldTally, Point, fits_in_memory, judge, pool, redundancy_rate
from bigfs.graph import Neighbors, knn
from bigfs.matrix import Matrix
from bigfs.metrics import require_metrics
from bigfs.result import ALL, NotConverged, observed
from bigfs.splits import Split, target_kind
from bigfs.types import AnyArray
from flows import evaluation, selection
from flows.outcomes import Outcome, Sets, read_outcome, write_outcome
from flows.reuse import content_key, digest
from storage.checkpoints import Checkpoint, plain
from storage.ownership import claim, discard


class Chosen(NamedTuple):
    """The sets of a method, with how its runs ended."""

    sets: Sets
    statuses: list[str]  # of the runs that ended before their tolerance
    fits: int
    passes: int


class Bench:
    """What the methods of a comparison share: samples, splits, sizes, metrics and graphs.

    Parameters
    ----------
    store : str
        Path or URL of a staged corpus.
    folder : Path
        The folder of the comparison.
    methods : sequence of str
        All methods of the comparison. The one with most work decides how they are measured.
    sizes : sequence of int
        Numbers of features.
    metrics : sequence of str, default=()
        Metrics, without any those of the kind of target.

    Raises
    ------
    ValueError
        The corpus has nothing to predict, a metric does not suit its target, or a size is above its
        number of features.
    """

    def __init__(
        self,
        store: str,
        folder: Path,
        methods: Sequence[str],
        sizes: Sequence[int],
        metrics: Sequence[str] = (),
    ) -> None:
        self.corpus, self.folder, self.sizes = storage.open(store), folder, tuple(sizes)
        d = self.corpus.X.shape[1]
        if max(sizes) > d:
            raise ValueError(
                f"sizes must be at most {d}, the number of features in {self.corpus.uri}; "
                f"got {max(sizes)}"
            )
        require_metrics(self.corpus.spec["target"] or "class", metrics)
        self.train = selection.training_part(self.corpus)
        heaviest = max(
            (selection.get_method(name) for name in methods),
            key=lambda method: evaluation.selection_work(self.train.X, method),
        )
        plan = evaluation.make_plan(self.corpus, self.train, heaviest, metrics=metrics)
        if not plan.splits:
            raise ValueError(f"nothing can be compared on {store}: {plan.measured['why']}")
        self.splits, self.measured = plan.splits, plan.measured
        self.metrics = tuple(plan.measured["metrics"])
        self.graph_seconds = 0.0  # of all graphs that this bench made or read
        self._neighbors: dict[Any, Neighbors] = {}

    def key(self, method: str) -> str:
        """Return the key of a method's result: a hash of all that it follows from."""
        content = self.corpus.spec["content"]
        return content_key(content, self.corpus.uri, method, self.sizes, self.measured)

    def file(self, method: str) -> Path:
        """Return the file of a method's result."""
        return self.folder / "results" / f"{method.replace(' ', '-')}.npz"

    def find(self, method: str) -> Outcome | None:
        """Return the result of an earlier comparison, or None if there is none that still holds."""
        file = self.file(method)
        if not file.exists():
            return None
        outcome, key = read_outcome(file)
        return outcome if key == self.key(method) else None

    def run(self, method: str) -> Outcome:
        """Choose by a method, score its choices, and keep the result.

        A killed or late run goes on from its last checkpoint.

        Raises
        ------
        ValueError
            The method cannot learn from the corpus.
        MemoryError
            Its projected memory is above the limit.
        """
        folder = self.folder / ".work" / self.key(method)
        claim(folder)
        try:
            outcome = self._run(method, folder)
            self.file(method).parent.mkdir(exist_ok=True)
            write_outcome(self.file(method), outcome, self.key(method))
        except BaseException:
            if not any(folder.glob("*.npz")):  # there is nothing to go on from
                _discard(folder)
            raise
        _discard(folder)
        return outcome

    def _run(self, method: str, folder: Path) -> Outcome:
        used: dict[str, Any] = {}
        if method == ALL:
            chosen = self._everything()
        else:
            chosen, used = self._measured_choice(method, folder)
        began = time.perf_counter()
        points, losses, late = self._score(method, chosen, folder)
        figures = {
            **used,
            "scoring_seconds": time.perf_counter() - began,
            "passes": chosen.passes,
            "fits": chosen.fits,
            "not_converged": [*chosen.statuses, *late],
        }
        return Outcome(method, chosen.sets, points, losses, plain(figures))

    # --- choosing ---

    def _measured_choice(self, method: str, folder: Path) -> tuple[Chosen, dict[str, Any]]:
        """Choose on all training samples, with time, processor time and peak memory."""
        if not selection.accepts_target(self.corpus, method):
            kind = self.corpus.spec["target"]
            raise ValueError(f"it cannot learn from {selection.TARGET_NAMES[kind]}")
        selector = selection.selector_for(self.corpus, method, max(self.sizes), {})
        X, y = selection.usable(selector, method, self.train.X, self.train.y)
        self._give_graph(selector, method, None)
        checkpoints: list[Checkpoint] = []

        def keep(fit: int) -> Checkpoint:
            checkpoints.append(self._keep(folder, "all")(fit))
            return checkpoints[-1]

        is_reset = engine.reset_peak_memory()
        began, used = time.perf_counter(), engine.processor_time()
        chosen = choose(selector, method, X, y, self.sizes, keep)
        figures = {
            "seconds": time.perf_counter() - began,
            "processor_seconds": engine.processor_time_since(used),
            "peak_memory": max(engine.peak_memory().values()) if is_reset else None,
            "resumed": any(checkpoint.resumed for checkpoint in checkpoints),
        }
        return chosen, figures

    def _give_graph(self, selector: Any, method: str, number: int | None) -> None:
        """Give a method on the kNN graph that of all training samples, or of a split's."""
        if not selection.get_method(method).graph:
            return
        k, metric = selector.n_neighbors, selector.metric
        if (number, k, metric) not in self._neighbors:
            began = time.perf_counter()
            self._neighbors[number, k, metric] = (
                storage.graph(self.train, k, metric=metric).neighbors()
                if number is None
                else knn(self.splits[number].X_train, k, metric=metric)
            )
            self.graph_seconds += time.perf_counter() - began
        selector.set_params(graph=self._neighbors[number, k, metric])

    def _everything(self) -> Chosen:
        d = self.train.X.shape[1]
        return Chosen({d: np.arange(d)}, [], 0, 0)

    def _keep(self, folder: Path, part: str) -> Callable[[int], Checkpoint]:
        """Return the checkpoints of a part of the work, by the number of the fit."""
        return lambda fit: Checkpoint(folder, digest([part, fit])[:12])

    # --- scoring ---

    def _score(
        self, method: str, chosen: Chosen, folder: Path
    ) -> tuple[list[dict[str, Any]], AnyArray, list[str]]:
        """Return the points of the curve, the losses, and how unfinished runs in splits ended."""
        with_auc, tallies, losses, late = "auc" in self.metrics, [], [], []
        for number, split in enumerate(self.splits):
            sets = chosen.sets
            if method != ALL and self.measured["how"] != "test half":
                again = self._choose_in_split(method, number, split, folder)
                sets = again.sets
                late += again.statuses
            judged = judge(split, [np.sort(index) for index in sets.values()], with_auc=with_auc)
            names, sizes = (method,) * len(sets), tuple(sets)
            tallies.append(FoldTally(names, sizes, tuple(j.tally for j in judged), 0))
            losses.append([j.losses for j in judged])
        points = pool(tallies, target_kind(self.train.y), with_auc)
        whole = np.stack([np.concatenate(parts) for parts in zip(*losses, strict=True)])
        redundancy = {} if method == ALL else self._redundancies(chosen.sets)
        return [self._point(point, redundancy) for point in points], whole, late

    def _choose_in_split(self, method: str, number: int, split: Split, folder: Path) -> Chosen:
        selector = selection.selector_for(self.corpus, method, max(self.sizes), {})
        X, y = selection.usable(selector, method, split.X_train, split.y_train)
        self._give_graph(selector, method, number)
        return choose(selector, method, X, y, self.sizes, self._keep(folder, f"split {number}"))

    def _point(self, point: Point, redundancy: Mapping[int, float | None]) -> dict[str, Any]:
        scores = {name: point.scores[name] for name in self.metrics}
        m = point.n_features
        return {"n_features": m, **scores, "redundancy": redundancy.get(m)}

    def _redundancies(self, sets: Sets) -> dict[int, float | None]:
        """Return the redundancy of each choice, None where its m × m correlations do not fit."""
        union = np.unique(np.concatenate(list(sets.values())))
        Z = self.train.X.columns(union).tocsc().astype(np.float64)
        found: dict[int, float | None] = {}
        for m, index in sets.items():
            try:
                found[m] = redundancy_rate(Z[:, np.searchsorted(union, np.sort(index))])
            except engine.NotEnoughMemory:
                found[m] = None
        return found

    def can_take_all(self) -> bool:
        """Return whether a model on every feature fits in memory."""
        return fits_in_memory(self.train.X)


def choose(
    selector: Any,
    method: str,
    X: Matrix,
    y: Any,
    sizes: Sequence[int],
    keep: Callable[[int], Checkpoint],
) -> Chosen:
    """Choose each number of features by a method.

    One fit serves all sizes where the method has `fit_path` or its choices are nested. Otherwise
    each size is fitted.

    Parameters
    ----------
    selector : estimator
        The method with its parameters, for the largest size.
    method : str
        Its name.
    X : Matrix of shape (n, d)
        The samples.
    y : ndarray, sparse array or None
        The target.
    sizes : sequence of int
        Numbers of features in increasing order.
    keep : callable
        ``keep(i)`` returns the checkpoint of the i-th fit.

    Returns
    -------
    Chosen
        The sets, and how the runs ended.
    """
    before, fitted = X.passes, {}
    with warnings.catch_warnings():
        # the status of each run says so
        warnings.simplefilter("ignore", NotConverged)
        if hasattr(selector, "fit_path"):
            with observed(checkpoint=keep(0)):
                fitted = selector.fit_path(X, y, list(sizes))
            passes = max(_own_passes(s) for s in fitted.values())  # each counts those of all
        elif selector._nested:
            with observed(checkpoint=keep(0)):
                fitted = dict.fromkeys(sizes, selector.fit(X, y))
            passes = _own_passes(selector)
        else:
            for i, m in enumerate(sizes):
                with observed(checkpoint=keep(i)):
                    fitted[m] = copy(selector).set_params(n_features_to_select=m).fit(X, y)
            passes = sum(map(_own_passes, fitted.values()))
    runs = list({id(run): run for run in fitted.values()}.values())
    return Chosen(
        {m: selection.ranking(run, method, m) for m, run in fitted.items()},
        [str(run.result_.status) for run in runs if not run.result_.converged],
        1 if hasattr(selector, "fit_path") else len(runs),
        max(X.passes - before, passes),  # a method may read a part of X that counts by itself
    )


def _own_passes(selector: Any) -> int:
    return int(selector.result_.stats.get("passes", 0))


def _discard(folder: Path) -> None:
    """Delete the work folder of a method, and the folder around it if it is empty."""
    discard(folder)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()
