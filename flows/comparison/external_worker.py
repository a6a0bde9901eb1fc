"""The process of an external selector.

``python -m bigfs.flows.comparison.external_worker FOLDER PLACE BYTES M…`` starts it.
It reads X.npz and y.npy of the folder, takes that much memory at most, and writes answer.json.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

# parameters that set the number of features in scikit-learn and in packages that follow it
NUMBERS = ("n_features_to_select", "k", "max_features")


def main(folder: Path, place: str, limit: int, sizes: list[int]) -> dict[str, Any]:
    """Choose each number of features."""
    X: Any = sp.load_npz(folder / "X.npz")
    file = folder / "y.npy"
    y = np.load(file, allow_pickle=False) if file.exists() else None
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    first = make(place)
    if accepts_sparse(first) is False:  # by its own word
        X = X.toarray()
    number = next((name for name in NUMBERS if name in first.get_params()), None)
    if number is None:
        fitted = first.fit(X, y)
        return {"sets": {m: by_its_order(fitted, m) for m in sizes}, "fits": 1}
    return {"sets": {m: kept_by(place, number, m, X, y) for m in sizes}, "fits": len(sizes)}


def make(place: str) -> Any:
    """Make the selector."""
    where, _, name = place.partition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    selector = getattr(module, name)()
    if not (hasattr(selector, "fit") and hasattr(selector, "get_params")):
        raise TypeError(f"{name}() made {type(selector).__name__}, which is no selector")
    return selector


def accepts_sparse(selector: Any) -> bool | None:
    """Return whether a selector takes sparse matrices, None if it does not say."""
    if not hasattr(selector, "__sklearn_tags__"):
        return None
    return bool(selector.__sklearn_tags__().input_tags.sparse)


def kept_by(place: str, number: str, m: int, X: Any, y: Any) -> list[int]:
    """Return the m features that the selector keeps."""
    selector = make(place).set_params(**{number: m})
    if number == "max_features" and "threshold" in selector.get_params():
        selector.set_params(threshold=-np.inf)  # of SelectFromModel, which keeps fewer else
    kept = np.flatnonzero(selector.fit(X, y).get_support())
    if len(kept) != m:
        raise ValueError(f"it kept {len(kept)} features with {number}={m}")
    return [int(j) for j in kept]


def by_its_order(fitted: Any, m: int) -> list[int]:
    """Return the best m features by the ranks or the scores of a selector."""
    if hasattr(fitted, "ranking_"):
        order = np.argsort(fitted.ranking_, kind="stable")
    elif hasattr(fitted, "scores_"):
        order = np.argsort(-np.asarray(fitted.scores_), kind="stable")
    else:
        raise TypeError(
            f"it has no parameter for the number of features ({', '.join(NUMBERS)}), and neither "
            f"ranking_ nor scores_ after its fit"
        )
    return [int(j) for j in order[:m]]


def say(kind: type[BaseException], error: BaseException, _: Any) -> None:
    """Print an error in one line, which the row of the method tells."""
    print(f"{kind.__name__}: {' '.join(str(error).split())}"[:500], file=sys.stderr)


if __name__ == "__main__":
    sys.excepthook = say
    sys.path.insert(0, str(Path.cwd()))  # as for `python file.py`
    here, selector_place, memory, *numbers = sys.argv[1:]
    answer = main(Path(here), selector_place, int(memory), [int(m) for m in numbers])
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer["processor_seconds"] = used.ru_utime + used.ru_stime
    answer["peak_memory"] = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    (Path(here) / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
