"""
Your own Dask cluster
=====================

You may have a Dask cluster already. :func:`bigfs.cluster` sends the work there. The answer does not
depend on the number of workers: the features and scores are the same to the last bit.

The workers import this script, so everything that starts work stands in ``main``.
"""

from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
from distributed import LocalCluster

import bigfs
import storage


def main():
    """Fit in this process and on two workers, and compare."""
    uri = storage.stage(
        "synthetic:newswire?rows=2000", f"{mkdtemp()}/newswire.zarr", tile_rows=250
    )
    corpus = storage.open(uri)
    selector = bigfs.SparGE(n_features_to_select=100)
    serial = selector.fit(corpus.X, corpus.y).scores_.copy()

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address=None,
        ) as cluster,
        bigfs.cluster(cluster.scheduler_address),
    ):
        parallel = selector.fit(corpus.X, corpus.y).scores_
    print("the same scores to the last bit:", np.array_equal(serial, parallel))

    _, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
    ax.plot(serial[serial > 0], parallel[serial > 0], "o", alpha=0.5)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="score, one process",
        ylabel="score, two workers",
        title="Same bits on a cluster",
    )
    plt.show()


if __name__ == "__main__":
    main()
