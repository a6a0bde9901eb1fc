"""Arguments and options of the command line, written once."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from flows.options import Engine, Staging, count_or_share


def parameters_of(pairs: list[str] | None) -> dict[str, Any]:
    """Parse `name=value` pairs. A value that is not JSON is text."""
    given: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set must be name=value; got {pair!r}")
        if name in given:
            raise ValueError(f"--set {name} is given twice: give it once")
        try:
            given[name] = json.loads(value)
        except json.JSONDecodeError:
            given[name] = value
    return given


def _parsed(text: str) -> int | float:
    try:
        return count_or_share(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Source = Annotated[str, typer.Argument(help="path, URL, or a name that `bigfs datasets` lists")]


Store = Annotated[str, typer.Argument(help="path or URL of a staged corpus")]


Method = Annotated[str, typer.Option(help="a method that `bigfs methods` lists")]


Features = Annotated[int, typer.Option(min=1, help="number of features to select")]


Out = Annotated[str | None, typer.Option(help="directory of the run (default: runs/NAME)")]


Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="parameter of the method, as name=value (repeatable)"),
]


Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `Staging` and `Engine` parameters of a command by one option per field."""
    own = inspect.signature(command, eval_str=True)
    groups = {
        name: p.annotation
        for name, p in own.parameters.items()
        if p.annotation in (Staging, Engine)
    }

    @functools.wraps(command)
    def unfolding(**given: Any) -> None:
        models = {
            name: _filled(group, {field: given.pop(field) for field in group.model_fields})
            for name, group in groups.items()
        }
        command(**given, **models)

    options = [p for name, p in own.parameters.items() if name not in groups]
    options += [
        _option(name, field)
        for group in groups.values()
        for name, field in group.model_fields.items()
    ]
    unfolding.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]  # Typer reads it
    unfolding.__annotations__ = {p.name: p.annotation for p in options}
    return unfolding


def _filled(group: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return the group with these values. An error keeps the message, without pydantic's frame."""
    try:
        return group(**values)
    except ValidationError as error:
        said = error.errors()
        raise ValueError(
            "; ".join(
                str(e.get("ctx", {}).get("error", f"{e['loc'][0]}: {e['msg']}")) for e in said
            )
        ) from error


def _option(name: str, field: Any) -> inspect.Parameter:
    least = next((check.ge for check in field.metadata if hasattr(check, "ge")), None)
    annotation: Any
    if field.annotation == int | float:
        annotation = Annotated[
            Any, typer.Option(help=field.description, parser=_parsed, metavar="INTEGER|SHARE")
        ]
    else:
        annotation = Annotated[field.annotation, typer.Option(help=field.description, min=least)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
    )
