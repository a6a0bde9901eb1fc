"""The command line. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import faulthandler
import inspect
import logging
import signal
import sys
import warnings
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape
from typer.exceptions import TyperException

from bigfs import __version__
from bigfs.engine import ClusterLostError
from bigfs.engine.display import json_line
from bigfs.flows.cli import comparisons, corpus, runs, servers, signals
from bigfs.flows.cli.options import UsageError, expand_model_options
from bigfs.flows.cli.output import state
from bigfs.flows.job import plain_message
from bigfs.flows.messages import Waits, notes, printable, say
from bigfs.storage.errors import LIMITS, BusyError

app = typer.Typer(
    help="Feature selection for data that does not fit in memory.",
    epilog="bigfs COMMAND --help shows the options of a command, with examples, and --help-all the "
    "rare ones too. A variable such as BIGFS_WORKERS=4 sets the option of its name, here "
    "--workers 4.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt

NO_THREAD = "can't start new thread"  # as Python says it

BUSY = 75  # of a command that does not wait for another one, as sysexits.h has it

# the commands by their groups in the help, with examples
COMMANDS: dict[str, dict[Callable[..., None], str]] = {
    "Choose features": {
        runs.run: """
            bigfs run 20newsgroups -n 100
            bigfs run 'wine.csv?columns=*&label=kind' -n 3 --scale standard
            bigfs run 'cells.h5ad?label=cell_type' -n auto --into cells.h5ad
            """,
        comparisons.compare: """
            bigfs compare 20newsgroups
            bigfs compare a.zarr --methods mrmr,anova --sizes 9 --grid 'mrmr.relevance=["f"]'
            """,
        comparisons.audit: """
            bigfs audit news.zarr experts.txt runs/news-anova-100
            bigfs audit cells.zarr 'cells.h5ad?column=highly_variable' --set gamma=0.5
            bigfs audit news.zarr experts.txt --alternatives 0.001
            """,
        runs.select: """
            bigfs select news.zarr -n 100
            bigfs select cells.zarr -m anova --out chosen --into cells.h5ad
            """,
        runs.evaluate: """
            bigfs evaluate runs/news-sparge-lda-100 --against anova,chi2,l1-svm
            bigfs evaluate runs/news-sparge-lda-100 --cv 10 --sizes 20,50,100
            """,
        runs.stability: """
            bigfs stability news.zarr often.csv -m anova -n 100
            bigfs stability news.zarr - -n 100 --subsamples 20
            bigfs stability news.zarr often.csv -n 100 --pairs
            """,
    },
    "Use a choice": {
        runs.history: """
            bigfs history runs
            bigfs history runs/nightly --json
            """,
        runs.predict: """
            bigfs predict runs/news-sparge-lda-100 new/ predictions.csv
            bigfs predict runs/wine-anova-3 new.csv - --scores
            bigfs predict runs/news-sparge-lda-100 news.zarr guesses.parquet --part test
            """,
        runs.transform: """
            bigfs transform runs/news-sparge-lda-100 news.zarr chosen.npz
            bigfs transform runs/cells-anova-50 cells.zarr chosen.h5ad
            """,
        runs.export: """
            bigfs export runs/news-sparge-lda-100 model.skops
            bigfs export runs/wine-anova-3 wine.sql --table cellar
            bigfs export runs/cells-anova-50 genes.h5ad
            """,
    },
    "Corpora": {
        corpus.stage: """
            bigfs stage 20news-bydate.tar.gz news.zarr --remove headers
            bigfs stage 'genes.parquet?columns=gene_*&label=group' genes.zarr
            """,
        corpus.look: """
            bigfs look 20news-bydate.tar.gz
            bigfs look 'genes.parquet?columns=gene_*&label=group'
            """,
        corpus.append: """
            bigfs append new/ news.zarr
            bigfs append new.svm rows.zarr --split test
            """,
        runs.graph: """
            bigfs graph news.zarr -k 10
            bigfs graph cells.zarr -k 15 --metric euclidean --algorithm approx
            """,
        corpus.info: """
            bigfs info news.zarr
            bigfs info s3://bucket/news.zarr --json
            """,
        corpus.check: """
            bigfs check news.zarr
            bigfs check s3://bucket/news.zarr --workers 4
            """,
        corpus.prune: """
            bigfs prune
            bigfs prune --older-than 30d --yes
            """,
    },
    "Lists": {
        runs.methods: """
            bigfs methods
            bigfs methods --json
            """,
        corpus.datasets: """
            bigfs datasets
            bigfs run synthetic:phrases -n 30
            """,
    },
    "Servers": {
        servers.serve: """
            bigfs serve corpus -n 100 --cron '0 3 * * *'
            bigfs serve corpus --cron '*/30 * * * *' --timezone Europe/Rome
            """,
        servers.certificates: """
            bigfs certificates tls --host scheduler.example.org
            bigfs run 20newsgroups --scheduler tls://scheduler.example.org:8786 --tls tls
            """,
    },
}


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        print(f"bigfs {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="print the version",
            callback=show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


def _register(command: Callable[..., None], group: str, examples: str) -> None:
    """Make a function a command. The first sentence of its docstring is in the list."""
    paragraphs = [" ".join(text.split()) for text in str(inspect.getdoc(command)).split("\n\n")]
    lines = inspect.cleandoc(examples).splitlines()
    app.command(
        help="\n\n".join(paragraphs),
        short_help=paragraphs[0].partition(". ")[0].removesuffix(".") + ".",
        epilog=escape("\n".join(["Examples:", *lines])),
        rich_help_panel=group,
    )(expand_model_options(command))


for _group, _commands in COMMANDS.items():
    for _command, _examples in _commands.items():
        _register(_command, _group, _examples)


def run() -> None:
    """Run the command line; an error is one line on stderr and a non-zero exit status."""
    warnings.formatwarning = _in_one_line
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack letters of names and of tables
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.__stderr__ is not None:  # `kill -USR1` shows what a command waits for
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__)
    logging.getLogger("bigfs.storage").addHandler(Waits(logging.WARNING))
    with signals.handle_signals():
        try:
            status = app(prog_name="bigfs", standalone_mode=False)
        except (TyperException, ValueError, OSError, MemoryError, ClusterLostError) as error:
            if state["debug"]:
                raise
            status = _say(error)
        except RuntimeError as error:
            if state["debug"] or str(error) != NO_THREAD:
                raise
            limits = "raise the limits of the shell, ulimit -v and ulimit -u"
            status = _say(MemoryError(f"no thread can be started: {limits}"))
        if status == INTERRUPTED:
            raise KeyboardInterrupt
    sys.exit(status if isinstance(status, int) else 0)


def _in_one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    """Return a warning as users read it, without the line of code that it comes from."""
    text = " ".join(str(message).split())
    if notes["json"]:
        return f"{json_line(level='warning', message=text)}\n"
    return f"warning: {printable(text)}\n"


def _say(error: Exception) -> int:
    """Print an error in one line. Returns the exit status."""
    if isinstance(error, ValidationError):
        message = plain_message(error)
    else:
        message = getattr(error, "format_message", error.__str__)() or type(error).__name__
    for start, word in (("Value error, ", ""), ("Input should be", "it must be")):
        message = message.replace(start, word)  # Typer passes on pydantic's words
    if isinstance(error, OSError) and error.errno in LIMITS:
        message += f": raise the limit of the shell, {LIMITS[error.errno]}"
    say(" ".join(message.split()), "error")
    if isinstance(error, BusyError):
        return BUSY
    return 2 if isinstance(error, TyperException | UsageError) else 1
