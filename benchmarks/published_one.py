"""One published implementation on one matrix, in an environment of its own: see peers_published.py.

python published_one.py METHOD ARRAYS.npz N_FEATURES LIMIT > figures.json

LIMIT is in processor seconds, and the imports do not count.

It imports nothing of bigfs. The environment is that of published_requirements.txt.
"""

import importlib
import json
import resource
import signal
import sys
import time

import numpy as np

# the module of each method, its function, and the parameters that are not its defaults
SIMILARITY, STATISTICS = "similarity_based", "statistical_based"
SPARSE, INFORMATION = "sparse_learning_based", "information_theoretical_based"
SCIKIT_FEATURE = {
    "fisher": (SIMILARITY, "fisher_score", "fisher_score", ""),
    "anova": (STATISTICS, "f_score", "f_score", ""),
    "chi2": (STATISTICS, "chi_square", "chi_square", ""),
    "gini": (STATISTICS, "gini_index", "gini_index", ""),
    "t-score": (STATISTICS, "t_score", "t_score", ""),
    "laplacian": (SIMILARITY, "lap_score", "lap_score", "no y"),
    "spec": (SIMILARITY, "SPEC", "spec", "no y"),
    "trace-ratio": (SIMILARITY, "trace_ratio", "trace_ratio", "number"),
    "mcfs": (SPARSE, "MCFS", "mcfs", "no y, number, clusters"),
    "ndfs": (SPARSE, "NDFS", "ndfs", "no y, clusters"),
    "udfs": (SPARSE, "UDFS", "udfs", "no y, clusters"),
    "rfs": (SPARSE, "RFS", "rfs", ""),
    "mrmr": (INFORMATION, "MRMR", "mrmr", "number"),
    "jmi": (INFORMATION, "JMI", "jmi", "number"),
    "cmim": (INFORMATION, "CMIM", "cmim", "number"),
}


def of_scikit_feature(method, X, y, m):
    """A call that chooses by scikit-feature."""
    kind, module, function, needs = SCIKIT_FEATURE[method]
    library = importlib.import_module(f"skfeature.function.{kind}.{module}")
    given = {"mode": "index"}
    if "number" in needs:
        given["n_selected_features"] = m
    if "clusters" in needs:
        given["n_clusters"] = len(np.unique(y))
    values = (X,) if "no y" in needs else (X, y)
    return lambda: np.asarray(getattr(library, function)(*values, **given)).ravel()[:m]


def of_mrmr_selection(X, y, m):
    """A call that chooses by mrmr-selection."""
    pandas, mrmr = importlib.import_module("pandas"), importlib.import_module("mrmr")
    frame = pandas.DataFrame(X, columns=[str(j) for j in range(X.shape[1])])
    target = pandas.Series(y)
    return lambda: mrmr.mrmr_classif(frame, target, m, n_jobs=1, show_progress=False)


def of_scikit_rebate(X, y, m):
    """A call that chooses by scikit-rebate, with as many neighbors as bigfs takes."""
    relief = importlib.import_module("skrebate").ReliefF
    return lambda: relief(n_features_to_select=m, n_neighbors=10, n_jobs=1).fit(X, y).top_features_


def late(*_):
    raise TimeoutError


def main():
    method, file, m, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    with np.load(file) as arrays:
        X, y = arrays["X"], arrays["y"]
    if method == "mrmr-f":
        choose = of_mrmr_selection(X, y, m)
    elif method == "relieff":
        choose = of_scikit_rebate(X, y, m)
    else:
        choose = of_scikit_feature(method, X, y, m)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    began, used = time.perf_counter(), time.process_time()
    try:
        chosen = [int(j) for j in choose()[:m]]
    except TimeoutError:
        print(json.dumps({"error": f"longer than {limit:g} s"}))
        return
    figures = {
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - used,
        "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "chosen": chosen,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
