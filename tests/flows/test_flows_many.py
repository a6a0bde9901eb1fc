"""Sixteen runs in a row on one server and one cluster: each process stays within a bound."""

import gc
from typing import NamedTuple

import psutil
import pytest

from bigfs.flows.options import ClusterOptions, SourceOptions
from tests.helpers.processes import PREFECT_WARNS, write_corpus

pytestmark = PREFECT_WARNS
RUNS, SETTLED = 16, 2  # caches and pools fill in the first runs


class Held(NamedTuple):
    """What a process and its children hold: resident MB, open files, connections."""

    mb: float
    files: int
    connections: int


# What the second half of the runs may hold beyond the first half, each half where it holds least:
# allocators, database connections and kept-alive requests come and go. The halves are eight runs
# apart, so one file or connection kept by each run would be 8. Prefect's server keeps about 0.7 MB
# for each run, which is 6 MB.
BOUND = Held(mb=9, files=2, connections=2)


def held(pid):
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    files, connections = sum(p.num_fds() for p in tree), sum(len(p.net_connections()) for p in tree)
    return Held(sum(p.memory_info().rss for p in tree) / 1e6, files, connections)


@pytest.mark.nightly
def test_runs_in_a_row_hold_no_more_than_the_first(prefect, tls_cluster, tmp_path):
    from bigfs.flows.prefect_flows import run as flow_of_run

    corpus = write_corpus(tmp_path / "corpus.jsonl", seed=3)
    engine = ClusterOptions(scheduler=tls_cluster.address, tls=str(tls_cluster.tls))
    pids = {"server": prefect.process.pid, "scheduler": tls_cluster.scheduler.pid}
    pids |= {f"worker {i}": worker.pid for i, worker in enumerate(tls_cluster.workers)}

    def measured():
        gc.collect()
        own = psutil.Process()
        driver = Held(own.memory_info().rss / 1e6, own.num_fds(), len(own.net_connections()))
        return {"driver": driver} | {name: held(pid) for name, pid in pids.items()}

    seen = {}
    for i in range(1, RUNS + 1):
        flow_of_run(
            corpus,
            features=12,
            settings=SourceOptions(tile_rows=50),
            out="runs/r",
            engine=engine,
            fresh=True,
        )
        if i % SETTLED == 0:
            seen[i] = measured()
    for name in seen[RUNS]:
        print(
            f"{name:10}",
            *(
                f"{after[name].mb:4.0f} MB {after[name].files:3} {after[name].connections:2} |"
                for after in seen.values()
            ),
        )
    first, last = (
        list(seen.values())[half]
        for half in (slice(None, len(seen) // 2), slice(len(seen) // 2, None))
    )
    for name in seen[RUNS]:
        more = Held(
            *(min(at[name][i] for at in last) - min(at[name][i] for at in first) for i in range(3))
        )
        assert all(growth <= most for growth, most in zip(more, BOUND, strict=True)), (
            f"{name} grew by {more}"
        )
