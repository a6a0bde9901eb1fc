"""Where the work is done and how a source is read: fields of Prefect's form and options of the
command line, written once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bigfs.engine.clusters import cluster, require_size


def count_or_share(value: int | float | str) -> int | float:
    """Read a number of documents, or the share of all documents.

    Parameters
    ----------
    value : int, float or str
        As written on the command line or in a form.

    Returns
    -------
    int or float
        A count from 1 on, or a share in (0, 1].

    Raises
    ------
    ValueError
        The value is neither.
    """
    try:
        number = (
            value
            if isinstance(value, int | float)
            else int(value)
            if value.strip().isdigit()
            else float(value)
        )
    except ValueError:
        number = 0
    if (isinstance(number, int) and number >= 1) or (isinstance(number, float) and 0 < number <= 1):
        return number
    raise ValueError(f"give a count from 1 on (a whole number) or a share in (0, 1]; got {value}")


class Staging(BaseModel):
    """How a source is read; more options as its format has them."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[
        str | None, Field(description="of the source (default: guessed from its content)")
    ] = None
    min_df: Annotated[
        int | float,
        Field(
            description="drop terms that fewer documents hold: a count, or as "
            "0.01 a share of the documents"
        ),
        AfterValidator(count_or_share),
    ] = 2
    sublinear_tf: Annotated[bool, Field(description="1 + log of the term counts")] = True
    hashing: Annotated[
        int | None,
        Field(
            ge=2, description="hash terms into this many columns instead of learning a vocabulary"
        ),
    ] = None
    tile_rows: Annotated[
        int | None, Field(ge=1, description="rows of a tile (default: by the number of non-zeros)")
    ] = None


def _size(memory_limit: str) -> str:
    require_size(memory_limit)
    return memory_limit


class Engine(BaseModel):
    """Where the work is done."""

    model_config = ConfigDict(extra="forbid")

    scheduler: Annotated[
        str | None,
        Field(description="address of a Dask scheduler (default: processes on this machine)"),
    ] = None
    tls: Annotated[
        str | None,
        Field(
            description="folder of certificates for a tls:// scheduler, made "
            "by `bigfs certificates`"
        ),
    ] = None
    workers: Annotated[
        int | None,
        Field(ge=0, description="processes to start; 0 works serially (default: one a core)"),
    ] = None
    memory_limit: Annotated[
        str, AfterValidator(_size), Field(description="of each process started here")
    ] = "1GB"
    dashboard: Annotated[
        bool,
        Field(
            description="show Dask's dashboard of the processes started here, "
            "open to users of this machine"
        ),
    ] = False

    @property
    def staging_memory(self) -> str | None:
        """The memory limit of a staging task started here.

        None leaves the limit to the scheduler's workers, or to "auto".
        """
        return None if self.scheduler or self.memory_limit == "auto" else self.memory_limit

    def cluster(self) -> AbstractContextManager[Any]:
        """Start or reach the Dask cluster that these options name.

        Returns
        -------
        context manager
            As of `bigfs.engine.cluster`.
        """
        return cluster(
            self.scheduler,
            workers=self.workers,
            memory_limit=self.memory_limit,
            security=self.tls,
            dashboard=self.dashboard,
        )
