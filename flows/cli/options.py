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
    """`name=value` pairs; a value is JSON where it reads as JSON, else text."""
    given: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value and got {pair!r}")
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


Source = Annotated[str, typer.Argument(help="a path, a URL, or a name of `bigfs datasets`")]


Store = Annotated[str, typer.Argument(help="a staged corpus")]


Method = Annotated[str, typer.Option(help="one of `bigfs methods`")]


Features = Annotated[int, typer.Option(min=1, help="how many features to keep")]


Out = Annotated[str | None, typer.Option(help="the run's directory (default: runs/NAME)")]


Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="a parameter of the method, as name=value; may be repeated"),
]


Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with an option for each field of its parameters of type `Staging` and `Engine`."""
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
    """The group with these values. An error says what is wrong, without pydantic's frame."""
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
