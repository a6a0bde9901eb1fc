"""Which cluster is meant: a YAML file that describes one, or the scheduler of Dask's configuration.

cluster_class: dask_jobqueue.SLURMCluster
cluster_kwargs: {queue: long, cores: 1, memory: 4GB}
adapt_kwargs: {minimum_jobs: 2, maximum_jobs: 8}
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import dask


def configured_scheduler() -> str | None:
    """Return the address of a scheduler in Dask's configuration, or None."""
    address: str | None = dask.config.get("scheduler-address", None)
    return address or None


# of `adapt`, which takes any other name in silence
ADAPT_KEYS = (
    *("minimum", "maximum", "minimum_jobs", "maximum_jobs", "minimum_cores", "maximum_cores"),
    *("minimum_memory", "maximum_memory", "interval", "wait_count", "target_duration", "active"),
)
SPECIFICATION_KEYS = ("cluster_class", "cluster_kwargs", "adapt_kwargs")


def is_specification(scheduler: str | os.PathLike[str]) -> bool:
    """Return whether this is the path of a file that describes a cluster, and no address."""
    return "://" not in str(scheduler) and str(scheduler).endswith((".yaml", ".yml"))


def read_specification(
    path: str | os.PathLike[str],
) -> tuple[type[Any], dict[str, Any], dict[str, Any]]:
    """Return the class of a cluster, its arguments, and how it adapts, from a YAML file."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}, which should describe a cluster") from error
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    if not isinstance(given, dict) or not isinstance(given.get("cluster_class"), str):
        raise ValueError(f"{path} needs a line such as cluster_class: dask_jobqueue.SLURMCluster")
    if unknown := [str(key) for key in given if key not in SPECIFICATION_KEYS]:
        raise ValueError(f"{path} has {unknown[0]}, and may have {', '.join(SPECIFICATION_KEYS)}")
    for key in SPECIFICATION_KEYS[1:]:
        if not isinstance(given.get(key) or {}, dict):
            raise ValueError(f"{path}: {key} must be names with values; got {given[key]!r}")
    if unknown := [key for key in given.get("adapt_kwargs") or {} if key not in ADAPT_KEYS]:
        raise ValueError(f"{path}: adapt_kwargs has {unknown[0]}; it takes {', '.join(ADAPT_KEYS)}")
    kind = _cluster_class(given["cluster_class"], path)
    return kind, given.get("cluster_kwargs") or {}, given.get("adapt_kwargs") or {}


def _cluster_class(name: str, path: str | os.PathLike[str]) -> type[Any]:
    """Import a class by name, and refuse one that is no cluster of Dask."""
    from distributed.deploy import Cluster

    module, _, attribute = name.rpartition(".")
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: there is no class {name} ({error}): install its package, or correct "
            "cluster_class"
        ) from error
    finally:  # dask_jobqueue makes Ctrl-C a success
        if signal.getsignal(signal.SIGINT) is not interrupt:
            signal.signal(signal.SIGINT, interrupt)
    is_class = isinstance(kind, type)
    # the cluster of a gateway is not derived from the others
    is_gateway = is_class and kind.__module__.partition(".")[0] == "dask_gateway"
    if not is_class or not (
        issubclass(kind, Cluster) or (is_gateway and kind.__name__ == "GatewayCluster")
    ):
        raise ValueError(f"{path}: {name} is no cluster class, such as distributed.LocalCluster")
    return kind
