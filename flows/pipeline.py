"""Entry points of version 0.1, which deployments name. They go in version 0.3."""

from flows.prefect_flows import bigfs as pipeline
from flows.prefect_flows import evaluate, select, stage

__all__ = ["evaluate", "pipeline", "select", "stage"]
