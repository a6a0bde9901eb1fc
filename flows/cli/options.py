"""Arguments and options of the command line. Those of a job are made of its fields."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from bigfs.flows import messages
from bigfs.flows.cli.output import state
from bigfs.flows.job import Request
from pydantic import BaseModel
from typer.models import OptionInfo

from bigfs.selectors.registry import METHODS


def parse_parameters(pairs: list[str] | None) -> dict[str, Any]:
    """Parse `name=value` pairs. A value that is not JSON is text."""
    parameters: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set must be name=value; got {pair!r}")
        if name in parameters:
            raise ValueError(f"--set {name} is given twice: give it once")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def with_constraints(
    parameters: dict[str, Any], keep: str | None, forbid: str | None
) -> dict[str, Any]:
    """Return the parameters with the kept and forbidden features of the command line."""
    for name, text in (("keep", keep), ("forbid", forbid)):
        if text is None:
            continue
        if name in parameters:
            raise ValueError(f"--{name} is given twice: leave out --set {name}=")
        parameters = {**parameters, name: _parse_feature_list(name, text)}
    return parameters


def _parse_feature_list(name: str, text: str) -> list[str] | list[int]:
    """Read names, or indices where all are whole numbers."""
    is_file = Path(text).is_file()
    parts = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    words = [word.strip() for word in parts if word.strip()]
    if not words:
        raise ValueError(f"--{name} must name one or more features; got {text!r}")
    return [int(word) for word in words] if all(word.isdigit() for word in words) else words


Source = Annotated[str, typer.Argument(help="path, URL, or a name that `bigfs datasets` lists")]
Store = Annotated[str, typer.Argument(help="path or URL of a staged corpus")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="parameter of the method, in JSON or text (repeatable)"
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        help="features that must be chosen: names or indices, separated by commas, or a file with "
        "one per line"
    ),
]
Forbid = Annotated[
    str | None,
    typer.Option(help="features that must not be chosen, as for --keep"),
]
WithPrefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--no-prefect",
        help="run as a Prefect flow, on a server of its own where Prefect knows none "
        "(default: if Prefect's settings name an API)",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="print the result as one JSON object, and nothing else")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="show no progress and no notes, only the result")
]
LogJson = Annotated[
    bool,
    typer.Option("--log-json", help="write the log on stderr as a JSON object per line"),
]
Debug = Annotated[bool, typer.Option("--debug", help="show the full traceback of an error")]

REQUIRED = inspect.Parameter.empty
# fields of several types, which the models read from text
METAVARS = {
    "features": "N|auto|fdr|…",
    "min_df": "N|SHARE",
    "max_df": "N|SHARE",
    "stop_words": "english|FILE",
}
# the types of options in the help, whose columns are narrow. A flag needs none.
WORDS: dict[Any, str] = {
    option: word
    for kind, word in {bool: "", int: "N", float: "NUMBER", str: "TEXT"}.items()
    for option in (kind, kind | None)
}
WORDS |= {tuple[int, int]: "N N", list[str] | None: "TEXT"}
# the groups of the help; other fields are in the group of their model, and the rest comes first
GROUPS = {
    "Text": "min_df max_df ngram_range stop_words remove sublinear_tf hashing",
    "Matrix": "weight scale",
    "Method": "set_ keep forbid",
    "Prefect": "prefect",
    "Schedule": "cron timezone name port",
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
GROUP_OF_MODEL = {"Staging": "Source", "Scoring": "Scoring", "Engine": "Cluster"}


class Fields(NamedTuple):
    """Which fields of a model a command takes, all or the named ones, and its own defaults."""

    names: str = ""
    without: str = ""
    arguments: str = "source"  # the fields that are no options
    defaults: Mapping[str, Any] = MappingProxyType({})


def expand_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the models among the parameters of a command by one option per field, and add the
    options that every command has.

    A model has the options of the models in it too. The parameters of a method are `--set`,
    `--keep` and `--forbid`.
    """
    signature = inspect.signature(command, eval_str=True)
    options: list[inspect.Parameter] = []
    groups: list[inspect.Parameter] = []
    models: dict[str, tuple[type[BaseModel], Fields]] = {}
    for name, parameter in signature.parameters.items():
        kind = getattr(parameter.annotation, "__origin__", parameter.annotation)
        if _is_model(kind):
            models[name] = kind, *getattr(parameter.annotation, "__metadata__", [Fields()])
            own, more = _options(*models[name])
            options, groups = options + own, groups + more
        else:
            options.append(parameter)

    @functools.wraps(command)
    def expanded(quiet: bool, log_json: bool, debug: bool, **values: Any) -> None:
        state["debug"] |= debug
        messages.notes["json"] = log_json
        state["quiet"] = messages.notes["silent"] = quiet
        built = {name: _build(*model, values) for name, model in models.items()}
        command(**values, **built)

    # Typer lists options in their order: those of groups after a command's own, and --json last
    options = sorted([*options, *groups], key=lambda option: option.name == "as_json")
    shared = {"quiet": Quiet, "log_json": LogJson, "debug": Debug}
    options += [_keyword(name, False, kind) for name, kind in shared.items()]
    keyword_only = [_arranged(p).replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
    expanded.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]  # Typer reads it
    expanded.__annotations__ = {p.name: p.annotation for p in options}
    return expanded


def _arranged(option: inspect.Parameter) -> inspect.Parameter:
    """Put an option in its group of the help, with a short word for its type."""
    info = option.annotation.__metadata__[0]
    info.rich_help_panel = info.rich_help_panel or GROUP_OF.get(option.name)
    if isinstance(info, OptionInfo) and info.metavar is None:
        info.metavar = WORDS.get(option.annotation.__origin__)
    return option


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(model: type[BaseModel], chosen: Fields) -> dict[str, Any]:
    fields = model.fields() if issubclass(model, Request) else model.model_fields
    names = chosen.names.split() or [n for n in fields if n not in chosen.without.split()]
    return {name: fields[name] for name in names}


def _options(
    model: type[BaseModel], chosen: Fields
) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Return the options of a model, and those of the models in it."""
    options, groups = [], []
    for name, field in _fields(model, chosen).items():
        if _is_model(field.annotation):
            groups += _options(field.annotation, Fields())[0]
        elif name == "parameters":
            shared = {"set_": Set, "keep": Keep, "forbid": Forbid}
            options += [_keyword(option, None, kind) for option, kind in shared.items()]
        else:
            default = REQUIRED if field.is_required() else field.get_default()
            default = chosen.defaults.get(name, default)
            option = _option(name, field, default, name in chosen.arguments.split())
            panel = GROUP_OF.get(name) or GROUP_OF_MODEL.get(model.__name__)
            option.annotation.__metadata__[0].rich_help_panel = panel
            options.append(option)
    return options, groups


def _option(name: str, field: Any, default: Any, is_argument: bool) -> inspect.Parameter:
    kind: Any = field.annotation
    more: dict[str, Any] = {}
    if name in METAVARS:
        kind, more = Any, {"parser": str, "metavar": METAVARS[name]}
    else:
        more["min"] = next((check.ge for check in field.metadata if hasattr(check, "ge")), None)
    if name == "method":
        more["autocompletion"] = lambda: list(METHODS)
    more["help"] = field.description
    if default is REQUIRED:
        kind, more["help"] = str, field.description.partition(" (default")[0]
    flag = (f"--{name}",) if default is False else ()  # without --no-NAME
    info = typer.Argument(**more) if is_argument else typer.Option(*flag, **more)
    return _keyword(name, default, Annotated[kind, info])


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _build(model: type[BaseModel], chosen: Fields, values: dict[str, Any]) -> BaseModel:
    """Return the model of its options, which it takes out of `values`."""
    given: dict[str, Any] = {}
    for name, field in _fields(model, chosen).items():
        if _is_model(field.annotation):
            given[name] = _build(field.annotation, Fields(), values)
        elif name == "parameters":
            pairs, keep, forbid = (values.pop(option) for option in ("set_", "keep", "forbid"))
            given[name] = with_constraints(parse_parameters(pairs), keep, forbid)
        else:
            given[name] = values.pop(name)
    if issubclass(model, Request):
        given.setdefault("source", given.get("store"))  # a staged corpus is a source too
    return model(**given)
