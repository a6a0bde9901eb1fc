"""A cluster whose workers are threads of this process."""

import contextlib

from distributed import Client, LocalCluster


@contextlib.contextmanager
def threads(n_workers=2, **options):
    """Start workers of one thread each, and give a client of them with these options."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
        ) as running,
        Client(running, **options) as client,
    ):
        yield client
