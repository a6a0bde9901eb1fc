"""Types of the flows' parameters. Prefect builds its form, its help and its checks from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from bigfs.selectors.registry import METHODS
from flows.stages import method_named


def _known(method: str) -> str:
    method_named(method)
    return method


def shown(text: str, *, enum: Sequence[str] | None = None, **checks: Any) -> Any:
    """Return a field with help text for the form.

    The text is in the schema's extra fields, because Prefect overwrites the description of a
    parameter with the one in the docstring.
    """
    return Field(
        json_schema_extra={"description": text} | ({"enum": list(enum)} if enum else {}), **checks
    )


Source = Annotated[str, shown("Path, URL, or a name that `bigfs datasets` lists")]
Store = Annotated[str, shown("Path or fsspec URL of a staged corpus")]
OwnStore = Annotated[
    str | None, shown("Path or URL of the staged corpus (default: derived from the source)")
]
Method = Annotated[
    str, AfterValidator(_known), shown("A method that `bigfs methods` lists", enum=list(METHODS))
]
Features = Annotated[int, shown("Number of features to select", ge=1)]
Out = Annotated[str | None, shown("Directory of the run (default: runs/NAME)")]
RunDirectory = Annotated[str, shown("Directory of the run")]
Parameters = Annotated[
    dict[str, Any] | None, shown("Parameters of the method, by their names in scikit-learn style")
]
Overlap = Annotated[
    Literal["wait", "skip"],
    shown("What to do while another run uses the same corpus or directory"),
]
Fresh = Annotated[bool, shown("Select, evaluate and report again, even if results exist")]
Timeout = Annotated[float, shown("Time limit per stage, in seconds", gt=0)]
