"""
Your own Dask cluster
=====================

You may have a Dask cluster already, or an array that lies on its workers. :func:`bigfs.cluster` sends
the work to a cluster by its address, and a ``Client`` that is current is used without any call. The
answer does not depend on the number of workers: the scores are the same to the last bit.

The workers import this script, so everything that starts work stands in ``main``.
"""

from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import bigfs
from bigfs import storage


def main():
    """Fit in this process, on a cluster, and on an array of the cluster's workers."""
    uri = storage.stage(
        "synthetic:phrases?rows=2000", f"{mkdtemp()}/phrases.zarr", tile_rows=250
    )
    corpus = storage.open(uri)
    selector = bigfs.SparGE(n_features_to_select=100)
    serial = selector.fit(corpus.X, corpus.y).scores_.copy()
    features = selector.selected_.copy()

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        memory_limit="1GB",
        dashboard_address=None,
    ) as cluster:
        # by its address; a cluster object or a client is taken as well
        with bigfs.cluster(cluster.scheduler_address):
            parallel = selector.fit(corpus.X, corpus.y).scores_.copy()
        # with a client that is current, on a persisted array of csr blocks
        with Client(cluster):
            lazy = corpus.X.to_dask().persist()
            selector.fit(lazy, corpus.y)
            print("lazy, on the workers:", selector.transform(lazy))
    print("the same scores from two workers:", np.array_equal(serial, parallel))
    same = np.array_equal(features, selector.selected_)
    print("the same features from a persisted array:", same)

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
