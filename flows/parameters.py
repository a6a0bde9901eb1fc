"""Types of the flows' parameters. Prefect builds its form, its help and its checks from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from bigfs.selectors.registry import METHODS
from bigfs.synonyms import canonical_name
from flows.selection import get_method


def _require_method(method: str) -> str:
    get_method(method)
    return canonical_name(method)


def form_field(text: str, *, enum: Sequence[str] | None = None, **checks: Any) -> Any:
    """Return a field with help text for the form.

    The text is in the schema's extra fields, because Prefect overwrites the description of a
    parameter with the one in the docstring.
    """
    return Field(
        json_schema_extra={"description": text} | ({"enum": list(enum)} if enum else {}), **checks
    )


Source = Annotated[str, form_field("Path, URL, or a name that `bigfs datasets` lists")]
Store = Annotated[str, form_field("Path or fsspec URL of a staged corpus")]
StoreOrDefault = Annotated[
    str | None, form_field("Path or URL of the staged corpus (default: derived from the source)")
]
Method = Annotated[
    str,
    AfterValidator(_require_method),
    form_field("A method that `bigfs methods` lists", enum=list(METHODS)),
]
Methods = Annotated[list[Method], form_field("Methods that `bigfs methods` lists", min_length=1)]
Features = Annotated[int, form_field("Number of features to select", ge=1)]
FeaturesOrAuto = Annotated[
    Annotated[int, Field(ge=1)] | Literal["auto", "percentile", "fpr", "fdr", "fwe"],
    form_field(
        "Number of features to select, or auto: the smallest within one standard error of the "
        "best, or a mode that chooses by p-values"
    ),
]
Out = Annotated[str | None, form_field("Directory of the run (default: runs/NAME)")]
RunDirectory = Annotated[str, form_field("Directory of the run")]
Parameters = Annotated[
    dict[str, Any] | None,
    form_field("Parameters of the method, by their names in scikit-learn style"),
]
Overlap = Annotated[
    Literal["wait", "skip"],
    form_field("What to do while another run uses the same corpus or directory"),
]
Fresh = Annotated[bool, form_field("Select, evaluate and report again, even if results exist")]
Timeout = Annotated[float, form_field("Time limit per stage, in seconds", gt=0)]
