"""The bench of a comparison: every method chooses on the same samples and is scored on the same.

A method's result is kept in the folder of the comparison as `results/METHOD.npz`, arrays and JSON
without pickles. A second comparison with the same samples, sizes and program takes it from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine, storage
from bigfs.evaluation.curves import choose_full_strategy, measure
from bigfs.evaluation.metrics import TARGETS
from bigfs.evaluation.quality import absolute_correlations, mean_of_pairs
from bigfs.evaluation.splits import Samples, draw_subsamples, target_kind
from bigfs.flows.comparison.external import ExternalSelector
from bigfs.flows.comparison.lists import read_lists
from bigfs.flows.comparison.outcomes import Outcome, mean_outcome, read_outcome, write_outcome
from bigfs.flows.comparison.request import LIST, Comparison
from bigfs.flows.evaluation import controls, selection
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation.choosing import Chooser, ChosenSets, Keep, Sets
from bigfs.flows.evaluation.curves import SHARES
from bigfs.flows.job import default_method
from bigfs.flows.reuse import content_key
from bigfs.graph import Neighbors, knn
from bigfs.matrix import Matrix
from bigfs.result import ALL, Status
from bigfs.selectors.registry import decided_by
from bigfs.storage import atomic
from bigfs.storage.runs.checkpoints import Checkpoint, digest, to_json_types

LARGEST = 500  # number of features of a comparison that names no sizes
HALF = 0.5  # share of the training samples in a subsample, as in stability selection


class Bench:
    """The common ground of the methods of a comparison: samples, splits, sizes, metrics and
    graphs."""

    def __init__(self, request: Comparison) -> None:
        self.corpus, self.folder = storage.open(str(request.store)), Path(request.folder)
        self.train = selection.training_part(self.corpus)
        request = self.request = self._with_defaults(request)
        self.sizes, self.subsamples = tuple(request.sizes or ()), request.subsamples or 0
        given = request.constraints or {}
        self.constraints: dict[str, Any] = {name: given[name] for name in given}
        variants = request.variants()
        self.parameters = {name: given for name, given in variants.items() if given}
        d = self.corpus.X.shape[1]
        names = self.corpus.X.feature_names
        self.lists = {
            LIST.format(name): index
            for name, index in read_lists(request.lists or [], d, names).items()
        }
        self.external = {one.name: one for one in map(ExternalSelector, request.selectors or [])}
        if self.sizes[-1] > d:
            raise ValueError(
                f"sizes must be at most {d}, the number of features in {self.corpus.uri}; "
                f"got {self.sizes[-1]}"
            )
        for m in (self.sizes[0], self.sizes[-1]):
            selection.constraints_of(self.corpus.X, self.constraints).require(m, d)
        self.draws = controls.draws_of(request.scoring.choices())
        self.first = next(iter(variants))  # which chooses from shuffled labels
        heaviest = max(
            (selection.get_method(_method_of(name)) for name in variants),
            key=lambda method: evaluation.selection_work(self.train.X, method),
        )
        plan = evaluation.make_plan(
            self.corpus, self.train, heaviest, self.sizes[-1], request.scoring.protocol
        )
        if not plan.splits:
            raise ValueError(f"nothing can be compared on {request.store}: {plan.measured['why']}")
        self.splits, self.measured = plan.splits, plan.measured
        sizes_of = [(s.X_test.shape[0], s.X_train.shape[0]) for s in self.splits]
        self.test_ratio = float(np.mean([test / train for test, train in sizes_of]))
        self.metrics = tuple(plan.measured["metrics"])
        self.graph_seconds = 0.0  # of all graphs that this bench made or read
        self._neighbors: dict[Any, Neighbors] = {}

    def _with_defaults(self, request: Comparison) -> Comparison:
        """Return the comparison with its methods and sizes, which follow from the corpus."""
        method, most = default_method(self.corpus), min(LARGEST, self.corpus.X.shape[1])
        shares = {max(1, round(share * most)) for share in SHARES}
        return request.model_copy(
            update={
                "methods": request.methods
                or [method, *evaluation.default_baselines(self.train, method)],
                "sizes": request.sizes or sorted(shares),
            }
        )

    def key(self, method: str) -> str:
        """Return the key of a method's result: a hash of all that it follows from."""
        content = self.corpus.spec["content"]
        choices = [self.sizes, self.measured, self.subsamples]
        if self.constraints and method != ALL:
            choices.append(self.constraints)
        if method in self.parameters:
            choices.append(self.parameters[method])
        if method in self.lists:
            choices.append(self.lists[method].tolist())
        if method in self.external:
            choices.append(self.external[method].identity())
        if method in self.draws:
            choices += [self.draws[method], self.first]
        return content_key(content, method, *choices)

    def file(self, method: str) -> Path:
        """Return the file of a method's result."""
        name = method.replace(" ", "-")
        if method in self.parameters:
            name = f"{_method_of(method)}-{digest(self.parameters[method])[:8]}"
        return self.folder / "results" / f"{name}.npz"

    def find(self, method: str) -> Outcome | None:
        """Return the result of an earlier comparison, or None if no result still holds."""
        file = self.file(method)
        if not file.exists() or (found := read_outcome(file)) is None:
            return None
        outcome, key = found
        lacked_memory = Status.MEMORY in outcome.figures["not_converged"]
        return outcome if key == self.key(method) and not lacked_memory else None

    def run(self, method: str) -> Outcome:
        """Choose by a method, score its choices, and keep the result.

        A killed or late run continues from its last checkpoint.
        """
        folder = self.folder / ".work" / self.key(method)
        atomic.write_marker(folder)
        try:
            outcome = self._run(method, folder)
            self.file(method).parent.mkdir(exist_ok=True)
            write_outcome(self.file(method), outcome, self.key(method))
        except BaseException:
            if not atomic.paths_in(folder, "*.npz"):  # there is no checkpoint to continue from
                _discard(folder)
            raise
        _discard(folder)
        engine.trim_memory()  # so that the next method begins with the memory that it needs
        return outcome

    def _run(self, name: str, folder: Path) -> Outcome:
        if name in self.draws:
            draws = [self._run(draw, folder) for draw in self.draws[name]]
            return mean_outcome(name, draws, self.metrics)
        used: dict[str, Any] = {}
        if name == ALL:
            everything = np.arange(self.train.X.shape[1])
            chosen = ChosenSets({len(everything): everything}, [], 0, 0)
        else:
            chosen, used = self._measured_choice(name, folder)
        began = time.perf_counter()
        control = controls.control_of(name)
        # whatever the samples
        is_given = name == ALL or name in self.lists or control == controls.RANDOM
        again = [] if is_given else self._choose_in_splits(name, folder)
        sets = [part.sets for part in again] or [chosen.sets] * len(self.splits)
        found = measure(
            self.splits,
            lambda number, split: {name: sets[number - 1]},
            with_all=False,
            scorer=evaluation.scorer_of(self.measured),
            label=f"folds of {name}",
        )
        redundancy = {} if name == ALL else self._redundancies(chosen.sets)
        if self.subsamples and not is_given and control is None:
            again = self._choose_from_subsamples(name, folder)
        figures = {
            **used,
            "scoring_seconds": time.perf_counter() - began,
            "passes": chosen.passes,
            "fits": chosen.fits,
            "not_converged": [*chosen.statuses, *(s for part in again for s in part.statuses)],
        }
        points = [
            {
                "n_features": point.n_features,
                **{metric: point.scores[metric] for metric in self.metrics},
                "redundancy": redundancy.get(point.n_features),
            }
            for point in found.points
        ]
        by_split = [[point.scores[self.metrics[0]] for point in fold] for fold in found.by_split]
        return Outcome(
            name,
            chosen.sets,
            points,
            np.stack(found.losses),
            to_json_types(figures),
            np.array(by_split),
            [part.sets for part in again],
        )

    # --- choosing ---

    def _measured_choice(self, name: str, folder: Path) -> tuple[ChosenSets, dict[str, Any]]:
        """Choose on all training samples, with time, processor time and peak memory."""
        checkpoints: list[Checkpoint] = []

        def keep(fit: int) -> Checkpoint:
            checkpoints.append(self._keep(folder, name, "all", fit))
            return checkpoints[-1]

        samples = selection.samples_of(self.train)
        choose_now = self._chooser(name, "all", self.train.X, self.train.y, samples)
        is_reset = engine.reset_peak_memory()
        began, used = time.perf_counter(), engine.processor_time()
        chosen = choose_now(keep)
        figures: dict[str, Any] = {
            "seconds": time.perf_counter() - began,
            "processor_seconds": engine.processor_time_since(used),
            "peak_memory": max(engine.peak_memory().values()) if is_reset else None,
            "resumed": any(checkpoint.resumed for checkpoint in checkpoints),
            **chosen.used,
        }
        return chosen, figures

    def _choose_in_splits(self, name: str, folder: Path) -> list[ChosenSets]:
        """Choose again on the training rows of each split, unless they are all training samples."""
        if self.measured["how"] == "test half":
            return []
        chosen = []
        for number, split in enumerate(self.splits):
            try:
                part = f"split {number}", *split[:2], split.samples
                chosen.append(self._choose(name, *part, folder))
            except ValueError as error:
                raise ValueError(f"in fold {number + 1} of {len(self.splits)}: {error}") from error
        return chosen

    def _choose_from_subsamples(self, name: str, folder: Path) -> list[ChosenSets]:
        """Choose on random halves of the training samples, the same for every method."""
        X, y = self.train.X, self.train.y
        groups = y if target_kind(y) == "class" else np.zeros(X.shape[0], dtype=np.int64)
        samples = selection.samples_of(self.train)
        return [
            self._choose(
                *(name, f"subsample {number}", X.take_rows(rows), y[rows]),
                *(samples.take(rows), folder),
            )
            for number, rows in enumerate(draw_subsamples(groups, self.subsamples, HALF, 0))
        ]

    def _choose(
        self, name: str, part: str, X: Matrix, y: Any, samples: Samples, folder: Path
    ) -> ChosenSets:
        """Choose on a part of the training samples, which has a name."""
        return self._chooser(name, part, X, y, samples)(partial(self._keep, folder, name, part))

    def _chooser(
        self, name: str, part: str, X: Matrix, y: Any, samples: Samples
    ) -> Callable[[Keep], ChosenSets]:
        """Return what chooses every number of features from a part of the samples."""
        if self.constraints and (name in self.lists or name in self.external):
            raise ValueError(f"it takes no features to {' or to '.join(self.constraints)}")
        if name in self.lists:
            index = self.lists[name]
            if len(index) < self.sizes[-1]:
                raise ValueError(
                    f"it holds {len(index):,} features, and the sizes go up to {self.sizes[-1]:,}"
                )
            return lambda _: ChosenSets({m: index[:m] for m in self.sizes}, [], 0, 0)
        if name in self.external:
            return lambda _: self.external[name].choose(copy(X), y, self.sizes)
        control = controls.control_of(name)
        if control == controls.RANDOM:
            order = controls.draw_list(
                name, X, self.parameters.get(self.first, {}) | self.constraints
            )
            return lambda _: ChosenSets({m: order[:m] for m in self.sizes}, [], 0, 0)
        if control is not None:
            y = controls.shuffle_labels(y, name, self.parameters.get(self.first, {}))
            name = self.first
        chooser = self._prepare(name, part, X, y, samples)
        if control is not None and chooser.y is None:
            raise ValueError(f"{name} learns from no labels: name a method that does first")
        return lambda keep: chooser.sets(self.sizes, keep)

    def _keep(self, folder: Path, *names: Any) -> Checkpoint:
        return Checkpoint(folder, digest(names)[:12])

    def _prepare(self, name: str, part: str, X: Matrix, y: Any, samples: Samples) -> Chooser:
        """Return the chooser of a method, for the most features.

        A method on the kNN graph gets the graph of the part, which all of them share. It is a graph
        of all features. With forbidden ones the method makes its own.
        """
        method = _method_of(name)
        if not selection.accepts_target(self.corpus, method):
            kind = self.corpus.spec["target"]
            raise ValueError(f"it cannot learn from {TARGETS[kind]}")
        parameters = self.parameters.get(name, {}) | selection.constraints_for(
            method, self.constraints
        )
        if missing := sorted(set(self.constraints) - set(parameters)):
            raise ValueError(f"it takes no features to {' or to '.join(missing)}")
        parameters = decided_by(method, parameters, self.metrics[0])
        request = self.corpus, method, self.sizes[-1], parameters
        # a copy counts its own passes
        chooser = Chooser(*request, copy(X), y, samples)
        selector = chooser.selector
        if selection.get_method(method).graph and selector.forbid is None:
            of_graph = part, selector.n_neighbors, selector.metric
            if of_graph not in self._neighbors:
                self._neighbors[of_graph] = self._make_graph(chooser.X, *of_graph)
            selector.set_params(graph=self._neighbors[of_graph])
        return chooser

    def _make_graph(self, X: Matrix, part: str, k: int, metric: Any) -> Neighbors:
        """Make the graph of a part of the training samples, or read the graph of all of them."""
        began = time.perf_counter()
        neighbors = (
            storage.graph(self.train, k, metric=metric).neighbors()
            if part == "all"
            else knn(X, k, metric=metric, method="auto")
        )
        self.graph_seconds += time.perf_counter() - began
        return neighbors

    # --- scoring ---

    def _redundancies(self, sets: Sets) -> dict[int, float | None]:
        """Return the redundancy of each choice, None where the correlations do not fit."""
        found: dict[int, float | None] = dict.fromkeys(sets)
        for largest in sorted(sets, reverse=True):
            fitting = {m: np.sort(index) for m, index in sets.items() if m <= largest}
            union = np.unique(np.concatenate(list(fitting.values())))
            try:
                C = absolute_correlations(self.train.X, union)
            except engine.MemoryLimitError:
                continue
            places = {m: np.searchsorted(union, index) for m, index in fitting.items()}
            found |= {m: mean_of_pairs(C[np.ix_(place, place)]) for m, place in places.items()}
            break
        return found

    def describe_constraints(self) -> str:
        """Return a sentence on the constraints, or nothing without any."""
        counts = {name: len(set(features)) for name, features in self.constraints.items()}
        verbs = {"keep": "must hold {} given features", "forbid": "must not hold any of {}"}
        parts = [verbs[name].format(count) for name, count in counts.items()]
        return f" Every choice {' and '.join(parts)}." if parts else ""

    def can_take_all(self) -> bool:
        """Return whether a model on every feature fits in memory."""
        scorer = evaluation.scorer_of(self.measured)
        return choose_full_strategy(self.train.X, self.train.y, scorer) is True


def _method_of(name: str) -> str:
    """Return the method of a name that may tell its parameters too."""
    return name.partition(" ")[0]


def _discard(folder: Path) -> None:
    """Delete the work folder of a method, and the folder around it if it is empty."""
    atomic.delete_marked(folder)
    with contextlib.suppress(FileNotFoundError):
        if not any(folder.parent.iterdir()):
            folder.parent.rmdir()
