"""Entry point of version 0.1, which deployments name. It goes in version 0.3."""

from bigfs.flows.prefect_flows import compare

__all__ = ["compare"]
