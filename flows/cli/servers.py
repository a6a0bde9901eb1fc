"""The commands of people who run servers and clusters: `bigfs serve`, `bigfs certificates`."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import psutil
import typer

from bigfs.engine import quiet_dask
from flows import signals
from flows.cli.options import Features, Method, Out, Set, Source, parameters_of, unfolded
from flows.files import private_folder
from flows.options import Engine, Staging
from flows.served import VARIABLE, Served


def certificates(
    folder: Annotated[str, typer.Argument(help="where to write them; made if it is not there")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="a name or address of the cluster's machines; may be repeated"),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="how long they are valid")] = 365,
) -> None:
    """Make certificates for a Dask cluster: only who holds them can join, use or run it."""
    from flows.tls import environment, make_certificates

    made = make_certificates(folder, [*(host or []), "localhost", "127.0.0.1"], days)
    print(
        f"# certificates in {made}, valid for {days} days; give --tls {made} to bigfs, "
        f"and to dask scheduler and dask worker:"
    )
    for name, value in environment(made).items():
        print(f"export {name}={value}")


@unfolded
def serve(
    source: Source,
    cron: Annotated[str, typer.Option(help="when to run, as cron writes it")] = "0 3 * * *",
    method: Method = "sparge-lda",
    features: Features = 500,
    out: Out = None,
    set_: Set = None,
    overlap: Annotated[
        Literal["wait", "skip"], typer.Option(help="if the last run still works")
    ] = "skip",
    name: Annotated[
        str | None, typer.Option(help="of the deployment (default: the source's name)")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=1, help="of the Prefect server started here, unless PREFECT_API_URL names one"
        ),
    ] = 4200,
    *,
    staging: Staging,
    engine: Engine,
) -> None:
    """Run the main job again and again, by a cron schedule, until stopped."""
    from flows.stages import require_parameters, source_name

    parameters = parameters_of(set_)
    require_parameters(method, features, parameters)
    job = {
        "source": source,
        "method": method,
        "features": features,
        "out": out,
        "parameters": parameters,
    }
    job |= {"settings": staging.model_dump(), "engine": engine.model_dump(), "overlap": overlap}
    from platformdirs import user_data_path

    places = [place for place in (source, out) if place is not None]
    os.environ[VARIABLE] = Served(
        folder=os.getcwd(), places=places, engine=engine, process=os.getpid()
    ).model_dump_json()
    with _server(user_data_path("bigfs"), port) as address:
        if "PREFECT_API_URL" in os.environ:
            print(f"runs: {address.removesuffix('/api')}", flush=True)
        from flows.pipeline import pipeline

        try:
            pipeline.serve(
                name=name or source_name(source),
                cron=cron,
                parameters=job,
                limit=1,
                print_starting_message=False,
            )
        except SystemExit:  # what Prefect makes of SIGTERM
            signals.note(signal.SIGTERM)
        finally:
            _end_runs()


# --- Prefect's surroundings -----------------------------------------------------------------------


@contextlib.contextmanager
def quiet_prefect(debug: bool) -> Iterator[None]:
    """For one flow of the command line: a server of its own for the block, and no log between the
    progress bars.
    """
    from platformdirs import user_cache_path

    levels = {
        "PREFECT_LOGGING_LEVEL": "INFO" if debug else "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    if not debug:  # before distributed is imported: Prefect routes its lines to the console
        quiet_dask()
    with _server(user_cache_path("bigfs"), None, **levels):
        yield


@contextlib.contextmanager
def _server(data: Path, port: int | None, **more: str) -> Iterator[str]:
    """The address of the Prefect server that the environment names, or of one that lives as long as
    the block.

    With a port it serves pages and schedules behind this user's secret; without one it serves one
    run behind a secret of its own.
    """
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_PROMPT": "false",
        **more,
    }.items():
        os.environ.setdefault(name, value)
    if "PREFECT_API_URL" in os.environ:
        yield os.environ["PREFECT_API_URL"]
        return
    home = Path(os.environ.setdefault("PREFECT_HOME", str(data / "prefect")))
    private_folder(home)  # Prefect makes it, but not what it is in: a new user may have no ~/.cache
    from flows.server import new_secret, serving, user_secret

    if port is None:
        with serving(home, secret=new_secret(), temporary=True) as address:
            yield address
        return
    secret = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    with serving(home, port, secret=secret or user_secret(data)) as address:
        where = "PREFECT_SERVER_API_AUTH_STRING" if secret else str(data / "prefect-secret")
        print(
            f"runs: {address.removesuffix('/api')} (its pages ask for a "
            f"password: the line in {where})",
            flush=True,
        )
        yield address


def _end_runs(seconds: float = 5) -> None:
    """End the runs that this process started, while there is a server to tell: without one they
    would try to for ever.
    """
    runs = [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]
    for run in runs:
        run.terminate()
    for run in psutil.wait_procs(runs, timeout=seconds)[1]:
        run.kill()
