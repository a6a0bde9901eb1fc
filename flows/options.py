"""Where the work is done and how a source is read: fields of Prefect's form and options of the command line, written once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bigfs.blocks.engine import cluster, require_size


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
        number = value if isinstance(value, int | float) else int(value) if value.strip().isdigit() else float(value)
    except ValueError:
        number = 0
    if (isinstance(number, int) and number >= 1) or (isinstance(number, float) and 0 < number <= 1):
        return number
    raise ValueError(f"give a count from 1 on (a whole number) or a share in (0, 1]; got {value}")


def _parsed(text: str) -> int | float:
    try:
        return count_or_share(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class Staging(BaseModel):
    """How a source is read; more options as its format has them."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[str | None, Field(description="of the source (default: guessed from its content)")] = None
    min_df: Annotated[
        int | float,
        Field(description="drop terms that fewer documents hold: a count, or as 0.01 a share of the documents"),
        AfterValidator(count_or_share),
    ] = 2
    sublinear_tf: Annotated[bool, Field(description="1 + log of the term counts")] = True
    hashing: Annotated[int | None, Field(ge=2, description="hash terms into this many columns instead of learning a vocabulary")] = None
    tile_rows: Annotated[int | None, Field(ge=1, description="rows of a tile (default: by the number of non-zeros)")] = None


def _size(memory_limit: str) -> str:
    require_size(memory_limit)
    return memory_limit


class Engine(BaseModel):
    """Where the work is done."""

    model_config = ConfigDict(extra="forbid")

    scheduler: Annotated[str | None, Field(description="address of a Dask scheduler (default: processes on this machine)")] = None
    tls: Annotated[str | None, Field(description="folder of certificates for a tls:// scheduler, made by `bigfs certificates`")] = None
    workers: Annotated[int | None, Field(ge=0, description="processes to start; 0 works serially (default: one a core)")] = None
    memory_limit: Annotated[str, AfterValidator(_size), Field(description="of each process started here")] = "1GB"
    dashboard: Annotated[bool, Field(description="show Dask's dashboard of the processes started here, open to users of this machine")] = (
        False
    )

    @property
    def staging_memory(self) -> str | None:
        """The memory limit of a staging task started here. None leaves the limit to the scheduler's workers, or to "auto"."""
        return None if self.scheduler or self.memory_limit == "auto" else self.memory_limit

    def cluster(self) -> AbstractContextManager[Any]:
        """Start or reach the Dask cluster that these options name.

        Returns
        -------
        context manager
            As of `bigfs.blocks.cluster`.
        """
        return cluster(self.scheduler, workers=self.workers, memory_limit=self.memory_limit, security=self.tls, dashboard=self.dashboard)


Source = Annotated[str, typer.Argument(help="a path, a URL, or a name of `bigfs datasets`")]
Store = Annotated[str, typer.Argument(help="a staged corpus")]
Method = Annotated[str, typer.Option(help="one of `bigfs methods`")]
Features = Annotated[int, typer.Option(min=1, help="how many features to keep")]
Out = Annotated[str | None, typer.Option(help="the run's directory (default: runs/NAME)")]
Set = Annotated[list[str] | None, typer.Option("--set", help="a parameter of the method, as name=value; may be repeated")]
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with an option for each field of its parameters of type `Staging` and `Engine`."""
    own = inspect.signature(command, eval_str=True)
    groups = {name: p.annotation for name, p in own.parameters.items() if p.annotation in (Staging, Engine)}

    @functools.wraps(command)
    def unfolding(**given: Any) -> None:
        models = {name: _filled(group, {field: given.pop(field) for field in group.model_fields}) for name, group in groups.items()}
        command(**given, **models)

    options = [p for name, p in own.parameters.items() if name not in groups]
    options += [_option(name, field) for group in groups.values() for name, field in group.model_fields.items()]
    unfolding.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]  # Typer reads it
    unfolding.__annotations__ = {p.name: p.annotation for p in options}
    return unfolding


def _filled(group: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """The group with these values. An error says what is wrong, without pydantic's frame."""
    try:
        return group(**values)
    except ValidationError as error:
        said = error.errors()
        raise ValueError("; ".join(str(e.get("ctx", {}).get("error", f"{e['loc'][0]}: {e['msg']}")) for e in said)) from error


def _option(name: str, field: Any) -> inspect.Parameter:
    least = next((check.ge for check in field.metadata if hasattr(check, "ge")), None)
    annotation: Any
    if field.annotation == int | float:
        annotation = Annotated[Any, typer.Option(help=field.description, parser=_parsed, metavar="INTEGER|SHARE")]
    else:
        annotation = Annotated[field.annotation, typer.Option(help=field.description, min=least)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation)
