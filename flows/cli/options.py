"""Arguments and options of the command line. The options of a job are made of its fields."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from bigfs.flows import messages
from bigfs.flows.cli.output import state
from bigfs.flows.job import Request, plain_message
from bigfs.flows.messages import FLAGS
from bigfs.flows.options import Control, SourceOptions
from bigfs.selectors.registry import METHODS


class UsageError(ValueError):
    """A command is given what it does not take. Its exit status is 2."""


# --- the words of the command line ----------------------------------------------------------------


def split(values: Sequence[str] | None) -> list[str] | None:
    """Return the items of a list that is given by repetition, by commas, or both.

    A value that is the path of a file is one item.
    """
    if values is None:
        return None
    parts = [[value] if Path(value).exists() else value.split(",") for value in values]
    return [item.strip() for part in parts for item in part if item.strip()]


def parse_parameters(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Parse `name=value` pairs. A value that is not JSON is text."""
    parameters: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set must be name=value; got {pair!r}")
        if name in parameters:
            raise UsageError(f"--set {name} is given twice: give it once")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def parse_grid(pairs: Sequence[str] | None) -> dict[str, dict[str, list[Any]]] | None:
    """Parse `method.name=[value, …]`."""
    grid: dict[str, dict[str, list[Any]]] = {}
    for pair in pairs or []:
        method, dot, rest = pair.partition(".")
        [(name, values)] = parse_parameters([rest]).items() if dot else [("", None)]
        if not isinstance(values, list) or not values:
            raise UsageError(f"--grid must be method.name=[value, …]; got {pair!r}")
        grid.setdefault(method, {})[name] = values
    return grid or None


def with_constraints(
    parameters: dict[str, Any], keep: Sequence[str] | None, forbid: Sequence[str] | None
) -> dict[str, Any]:
    """Return the parameters with the kept and forbidden features of the command line."""
    for name, given in (("keep", keep), ("forbid", forbid)):
        if not given:
            continue
        if name in parameters:
            raise UsageError(f"--{name} is given twice: leave out --set {name}=")
        parameters = {**parameters, name: _parse_features(name, given)}
    return parameters


def _parse_features(name: str, given: Sequence[str]) -> list[str] | list[int]:
    """Read names, or indices where all are whole numbers. A file has one per line."""
    words: list[str] = []
    for item in split(given) or []:
        is_file = Path(item).is_file()
        lines = Path(item).read_text(encoding="utf-8").splitlines() if is_file else [item]
        words += [line.strip() for line in lines if line.strip()]
    if not words:
        raise UsageError(f"--{name} must name one or more features; got {','.join(given)!r}")
    return [int(word) for word in words] if all(word.isdigit() for word in words) else words


def complete(names: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Return what completes the last of some names that commas divide."""

    def last(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(begun)]

    return last


def _metrics() -> list[str]:
    from bigfs.evaluation.metrics import METRIC_NAMES

    return list(METRIC_NAMES)


# --- options that several commands have -----------------------------------------------------------

Source = Annotated[str, typer.Argument(help="path, URL, or a name that `bigfs datasets` lists")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="parameter of the method, in JSON or text (repeatable)"
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LIST",
        help="values of a parameter to compare, as method.name=LIST in JSON, such as "
        "sparge-lda.gamma=[0.5,1] (repeatable)",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="features that must be chosen: names, indices, or a file with one per line"),
]
Forbid = Annotated[
    list[str] | None,
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
JsonList = Annotated[
    bool, typer.Option("--json", help="print a JSON list with an object per row, and nothing else")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="show no progress and no notes, only the result")
]
LogJson = Annotated[
    bool,
    typer.Option("--log-json", help="write the log on stderr as a JSON object per line"),
]
Debug = Annotated[bool, typer.Option("--debug", help="show the full traceback of an error")]


def show_all(context: typer.Context, asked: bool) -> None:
    """Print the help with the options that it leaves out else, and end."""
    if asked:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # of arguments and options of Typer
        print(context.get_help(), end="")
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=show_all,
        is_eager=True,
        help="show all options, also the rare ones, and the options of a cluster and of `bigfs "
        "stage` where the command takes them",
    ),
]

REQUIRED = inspect.Parameter.empty
# fields of several types, which the models read from text
METAVARS = {
    "features": "N|auto|fdr|…",
    "min_df": "N|SHARE",
    "max_df": "N|SHARE",
    "stop_words": "english|FILE",
}
# fields that are several options, which the command line makes
WORDED: dict[str, dict[str, Any]] = {
    "parameters": {"set_": Set, "keep": Keep, "forbid": Forbid},
    "constraints": {"keep": Keep, "forbid": Forbid},
    "grid": {"grid": Grid},
}
COMPLETIONS = {
    "method": complete(lambda: list(METHODS)),
    "methods": complete(lambda: list(METHODS)),
    "against": complete(lambda: list(METHODS)),
    "metrics": complete(_metrics),
    "controls": complete(lambda: get_args(Control)),
}
NO_VARIABLE = {"yes", "fresh", "help_all"}  # no variable may delete, or end each command
# options that only --help-all shows, as it does the options of staging in other commands
RARE = {
    *("scheduler", "cluster", "tls", "dashboard", "performance_report", "prefect", "overlap"),
    *("classifier", "test_size", "highly_variable", "log_json", "debug"),
}
OFTEN = {"label", "test"}  # options of staging that the help of other commands shows too
# the types of options in the help, whose columns are narrow. A flag needs none.
WORDS: dict[Any, str] = {
    option: word
    for kind, word in {bool: "", int: "N", float: "NUMBER", str: "TEXT"}.items()
    for option in (kind, kind | None)
}
WORDS |= {tuple[int, int]: "N N", list[str] | None: "A,B,…"}
# the groups of the help; other fields are in the group of their model, and the rest comes first
GROUPS = {
    "Text": "min_df max_df ngram_range stop_words analyzer token_pattern strip_accents remove "
    "sublinear_tf hashing",
    "Matrix": "weight target_sum scale tile_rows",
    "Method": "set_ keep forbid grid",
    "Prefect": "prefect",
    "Schedule": "cron timezone name",
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
GROUP_OF_MODEL = {
    "SourceOptions": "Source",
    "Scoring": "Scoring",
    "RunScoring": "Scoring",
    "ClusterOptions": "Cluster",
}


# --- models as options ----------------------------------------------------------------------------


class Fields(NamedTuple):
    """Which fields of a model a command takes, all or the named ones, and its own defaults."""

    names: str = ""
    without: str = ""
    arguments: str = "source"  # the fields that are no options
    defaults: Mapping[str, Any] = MappingProxyType({})


def expand_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the models among the parameters of a command by one option per field, and add the
    options that every command has.

    A model has the options of the models in it too. The help leaves out the options of staging
    there, and rare ones. The parameters of a method are `--set`, `--keep` and `--forbid`. A
    variable such as BIGFS_WORKERS gives the option of its name.
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
        elif (field := FieldInfo.from_annotation(parameter.annotation)).description is not None:
            is_argument = parameter.default is REQUIRED
            options.append(_option(name, field, parameter.default, is_argument))
        else:
            options.append(parameter)

    @functools.wraps(command)
    def expanded(quiet: bool, log_json: bool, debug: bool, help_all: bool, **values: Any) -> None:
        state["debug"] = debug
        messages.notes["json"] = log_json
        state["quiet"] = messages.notes["silent"] = quiet
        try:
            built = {name: _build(*model, values) for name, model in models.items()}
        except ValidationError as error:
            raise UsageError(plain_message(error, flag_of)) from error
        command(**values, **built)

    # Typer lists options in their order: groups after a command's own options, and --json last
    options = sorted([*options, *groups], key=lambda option: option.name == "as_json")
    shared = {"quiet": Quiet, "log_json": LogJson, "debug": Debug, "help_all": HelpAll}
    options += [_keyword(name, False, kind) for name, kind in shared.items()]
    keyword_only = [_arranged(p).replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
    expanded.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]  # Typer reads it
    expanded.__annotations__ = {p.name: p.annotation for p in options}
    return expanded


def _arranged(option: inspect.Parameter) -> inspect.Parameter:
    """Put an option in its group of the help, with a short word for its type and its variable."""
    info = option.annotation.__metadata__[0]
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or option.name.upper()
        return option
    info.rich_help_panel = info.rich_help_panel or GROUP_OF.get(option.name)
    info.metavar = WORDS.get(option.annotation.__origin__) if info.metavar is None else info.metavar
    if option.name not in NO_VARIABLE:
        name = option.name.removeprefix("as_").strip("_").upper()
        info.envvar, info.show_envvar = f"BIGFS_{name}", False
    # the shells complete them all the same
    info.hidden = (info.hidden or option.name in RARE) and "_BIGFS_COMPLETE" not in os.environ
    return option


def flag_of(name: str) -> str:
    """Return the flag of a field, as an error names it."""
    flags = FLAGS.get(name, (f"--{name.replace('_', '-')}",))
    return flags[0]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_list(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _is_list(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return any(map(_is_list, get_args(kind)))
    return get_origin(kind) is list


def _fields(model: type[BaseModel], chosen: Fields) -> dict[str, Any]:
    fields = model.fields() if issubclass(model, Request) else model.model_fields
    names = chosen.names.split() or [n for n in fields if n not in chosen.without.split()]
    return {name: fields[name] for name in names}


def _options(
    model: type[BaseModel], chosen: Fields, *, is_inner: bool = False
) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Return the options of a model, and of the models in it."""
    options, groups = [], []
    for name, field in _fields(model, chosen).items():
        if _is_model(field.annotation):
            groups += _options(field.annotation, Fields(), is_inner=True)[0]
        elif name in WORDED:
            options += [_keyword(option, None, kind) for option, kind in WORDED[name].items()]
        else:
            default = REQUIRED if field.is_required() else field.get_default()
            default = chosen.defaults.get(name, default)
            option = _option(name, field, default, name in chosen.arguments.split())
            info = option.annotation.__metadata__[0]
            info.rich_help_panel = GROUP_OF.get(name) or GROUP_OF_MODEL.get(model.__name__)
            info.hidden = is_inner and model is SourceOptions and name not in OFTEN
            options.append(option)
    return options, groups


def _option(name: str, field: Any, default: Any, is_argument: bool) -> inspect.Parameter:
    kind: Any = field.annotation
    more: dict[str, Any] = {"help": field.description}
    if name in METAVARS:
        kind, more = Any, more | {"parser": str, "metavar": METAVARS[name]}
    elif _is_list(kind):
        kind = list[str] if default is REQUIRED else list[str] | None
    else:
        more["min"] = next((check.ge for check in field.metadata if hasattr(check, "ge")), None)
        if default is REQUIRED:
            kind = str
    if name in COMPLETIONS:
        more["autocompletion"] = COMPLETIONS[name]
    if default is REQUIRED:
        more["help"] = field.description.partition(" (default")[0]
    flags = (f"--{name}",) if default is False else FLAGS.get(name, ())  # without --no-NAME
    info = typer.Argument(**more) if is_argument else typer.Option(*flags, **more)
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
        elif name in WORDED:
            parts = {option: values.pop(option) for option in WORDED[name]}
            if name == "grid":
                given[name] = parse_grid(parts["grid"])
            else:
                parameters = parse_parameters(parts.get("set_"))
                bound = with_constraints(parameters, parts["keep"], parts["forbid"])
                given[name] = bound if name == "parameters" else bound or None
        else:
            value = values.pop(name)
            is_list = name not in METAVARS and _is_list(field.annotation)
            given[name] = split(value) if is_list else value
    if issubclass(model, Request):
        given.setdefault("source", given.get("store"))  # a staged corpus is a source too
    return model(**given)
