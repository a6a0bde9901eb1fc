"""The flows' parameters: their types are the form that Prefect shows, with its help and its
checks.
"""

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
    """A field with help for the form.

    As extra: Prefect overwrites a parameter's own description with its docstring's.
    """
    return Field(
        json_schema_extra={"description": text} | ({"enum": list(enum)} if enum else {}), **checks
    )


Source = Annotated[str, shown("A path, a URL, or a name of `bigfs datasets`")]
Store = Annotated[str, shown("A staged corpus: a path or an fsspec URL")]
OwnStore = Annotated[
    str | None, shown("Where the staged corpus lies; default: by the source's name and content")
]
Method = Annotated[str, AfterValidator(_known), shown("One of `bigfs methods`", enum=list(METHODS))]
Features = Annotated[int, shown("How many features to keep", ge=1)]
Out = Annotated[str | None, shown("The run's directory; default: runs/NAME")]
RunDirectory = Annotated[str, shown("A run's directory")]
Parameters = Annotated[dict[str, Any] | None, shown("Of the method, by scikit-learn's names")]
Overlap = Annotated[
    Literal["wait", "skip"],
    shown("What to do while another run works on the same corpus or writes the same directory"),
]
Fresh = Annotated[bool, shown("Select, evaluate and report again, even where the result is there")]
Timeout = Annotated[float, shown("Seconds that one stage may take", gt=0)]
