"""The flows' parameters: their types are the form that Prefect shows, with its help and its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bigfs.selectors import METHODS
from flows.stages import method_named


def _known(method: str) -> str:
    method_named(method)
    return method


def shown(text: str, *, enum: Sequence[str] | None = None, **checks: Any) -> Any:
    """A field with help for the form. As extra: Prefect overwrites a parameter's own description with its docstring's."""
    return Field(json_schema_extra={"description": text} | ({"enum": list(enum)} if enum else {}), **checks)


Source = Annotated[str, shown("A path, a URL, or a name of `bigfs datasets`")]
Store = Annotated[str, shown("A staged corpus: a path or an fsspec URL")]
OwnStore = Annotated[str | None, shown("Where the staged corpus lies; default: by the source's name and content")]
Method = Annotated[str, AfterValidator(_known), shown("One of `bigfs methods`", enum=list(METHODS))]
Features = Annotated[int, shown("How many features to keep", ge=1)]
Out = Annotated[str | None, shown("The run's directory; default: runs/NAME")]
RunDirectory = Annotated[str, shown("A run's directory")]
Parameters = Annotated[dict[str, Any] | None, shown("Of the method, by scikit-learn's names")]
Overlap = Annotated[Literal["wait", "skip"], shown("What to do while another run works on the same corpus or writes the same directory")]
Fresh = Annotated[bool, shown("Do all the work again, even where the result is there")]
Timeout = Annotated[float, shown("Seconds that one stage may take", gt=0)]


class Staging(BaseModel):
    """How a source is read; more options as its format has them."""

    model_config = ConfigDict(extra="allow")

    format: Annotated[str | None, Field(description="Of the source; default: guessed from its content")] = None
    min_df: Annotated[int, Field(ge=1, description="Drop terms that fewer documents hold")] = 2
    sublinear_tf: Annotated[bool, Field(description="1 + log of the term counts")] = True
    hashing: Annotated[int | None, Field(ge=2, description="Hash terms into this many columns instead of learning a vocabulary")] = None
    tile_rows: Annotated[int | None, Field(ge=1, description="Rows of a tile; default: by the number of non-zeros")] = None


class Engine(BaseModel):
    """Where the work is done."""

    model_config = ConfigDict(extra="forbid")

    scheduler: Annotated[str | None, Field(description="Address of a Dask scheduler; default: processes on this machine")] = None
    tls: Annotated[str | None, Field(description="Folder of certificates for a tls:// scheduler")] = None
    workers: Annotated[int | None, Field(ge=0, description="Processes to start here, one a core by default; 0 works serially")] = None
    memory_limit: Annotated[str, Field(description="Of each process started here")] = "1GB"
