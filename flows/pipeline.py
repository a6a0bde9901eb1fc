"""Entry points of version 0.1, which deployments name. They go in version 0.3."""

from bigfs.flows.prefect_flows import bigfs as pipeline
from bigfs.flows.prefect_flows import evaluate, select, stage

__all__ = ["evaluate", "pipeline", "select", "stage"]
