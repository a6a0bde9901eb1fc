"""Entry point of version 0.1, which deployments name. It goes in version 0.3."""

import logging
from typing import Any

from bigfs.flows.job import DAY
from bigfs.flows.options import Engine, Staging
from bigfs.flows.prefect_flows import compare
from prefect import flow

log = logging.getLogger("bigfs.flows")


@flow(name="sweep", flow_run_name="sweep of {source}")
def sweep(
    source: str,
    methods: list[str],
    features: list[int],
    grid: dict[str, dict[str, list[Any]]] | None = None,
    store: str | None = None,
    out: str | None = None,
    settings: Staging | None = None,
    engine: Engine | None = None,
    overlap: str = "wait",
    fresh: bool = False,
    timeout: float = DAY,
) -> Any:
    """Compare methods, numbers of features and parameters: `bigfs.flows.prefect_flows.compare`.

    The numbers of features are called `features` here, and `sizes` there.
    """
    log.warning("bigfs.flows.sweep.sweep is now flows.prefect_flows.compare with a grid")
    given: dict[str, Any] = {"grid": grid, "store": store, "out": out, "settings": settings}
    given |= {"engine": engine, "overlap": overlap, "fresh": fresh, "timeout": timeout}
    return compare.fn(source, methods, features, **given)
