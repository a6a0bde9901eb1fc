"""The command line. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import faulthandler
import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from bigfs import __version__
from bigfs.engine import ClusterLost
from flows.cli import comparisons, corpus, runs, servers, signals
from flows.cli.output import state
from flows.job import plain_message

app = typer.Typer(
    help="Feature selection for data that does not fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        print(f"bigfs {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", callback=show_version, is_eager=True),
    ] = False,
    debug: Annotated[
        bool, typer.Option(help="show the full traceback when a command fails")
    ] = False,
) -> None:
    state["debug"] = debug


for command in (
    runs.run,
    comparisons.compare,
    corpus.stage,
    corpus.append,
    runs.select,
    runs.evaluate,
    runs.transform,
    runs.predict,
    runs.export,
    runs.stability,
    runs.graph,
    runs.methods,
    servers.serve,
    servers.certificates,
    corpus.datasets,
    corpus.info,
    corpus.check,
    corpus.prune,
):
    app.command()(command)


def run() -> None:
    """Run the command line; an error is one line on stderr and a non-zero exit status."""
    warnings.formatwarning = _in_one_line
    if sys.__stderr__ is not None:  # `kill -USR1` shows what a command waits for
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__)
    with signals.handle_signals():
        try:
            status = app(standalone_mode=False)
        except (TyperException, ValueError, OSError, MemoryError, ClusterLost) as error:
            if state["debug"]:
                raise
            status = _say(error)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
    sys.exit(status if isinstance(status, int) else 0)


def _in_one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    """Return a warning as users read it, without the line of code that it comes from."""
    return f"warning: {' '.join(str(message).split())}\n"


def _say(error: Exception) -> int:
    """Say in one line what is wrong. Returns the exit status."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
        return 2
    if isinstance(error, ValidationError):
        message = plain_message(error)
    else:
        message = getattr(error, "format_message", error.__str__)() or type(error).__name__
    message = message.replace("Value error, ", "")  # Typer passes on how pydantic begins
    print(f"bigfs: {' '.join(message.split())}", file=sys.stderr)
    return 2 if isinstance(error, TyperException) else 1
