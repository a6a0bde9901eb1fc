"""The commands for servers and clusters: `bigfs serve` and `bigfs certificates`."""

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
from flows.cli.options import (
    Features,
    Method,
    Out,
    Set,
    Source,
    expand_model_options,
    parse_parameters,
)
from flows.extras import require_flows
from flows.files import private_folder
from flows.options import Engine, Scoring, Staging
from flows.serve_limits import LIMITS_VARIABLE, ServeLimits


def certificates(
    folder: Annotated[str, typer.Argument(help="folder to write to (created if missing)")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="name or address of a machine of the cluster (repeatable)"),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, help="number of days the certificates are valid")
    ] = 365,
) -> None:
    """Make certificates for a Dask cluster. Only their holders can join or use it."""
    from flows.tls import environment, make_certificates

    path = make_certificates(folder, [*(host or []), "localhost", "127.0.0.1"], days)
    print(
        f"# certificates in {path}, valid for {days} days. Pass --tls {path} to bigfs, and set "
        f"these variables for dask scheduler and dask worker:"
    )
    for name, value in environment(path).items():
        print(f"export {name}={value}")


@expand_model_options
def serve(
    source: Source,
    cron: Annotated[str, typer.Option(help="schedule, as a cron expression")] = "0 3 * * *",
    method: Method = "sparge-lda",
    features: Features = 500,
    out: Out = None,
    set_: Set = None,
    overlap: Annotated[
        Literal["wait", "skip"],
        typer.Option(help="what to do while the previous run is still working"),
    ] = "skip",
    name: Annotated[
        str | None, typer.Option(help="name of the deployment (default: name of the source)")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=1, help="port of the local Prefect server, unless PREFECT_API_URL names a server"
        ),
    ] = 4200,
    *,
    staging: Staging,
    scoring: Scoring,
    engine: Engine,
) -> None:
    """Repeat the whole job on a cron schedule until stopped."""
    from flows.reuse import source_name
    from flows.selection import require_parameters

    require_flows("bigfs serve")
    parameters = parse_parameters(set_)
    require_parameters(method, features, parameters)
    job = {
        "source": source,
        "method": method,
        "features": features,
        "out": out,
        "parameters": parameters,
    }
    job |= {"settings": staging.model_dump(), "engine": engine.model_dump(), "overlap": overlap}
    job |= {"scoring": scoring.model_dump()}
    from platformdirs import user_data_path

    paths = [path for path in (source, out, *staging.files) if path is not None]
    os.environ[LIMITS_VARIABLE] = ServeLimits(
        folder=os.getcwd(), paths=paths, engine=engine, process=os.getpid()
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
        except SystemExit:  # Prefect's answer to SIGTERM
            signals.note(signal.SIGTERM)
        finally:
            _end_runs()


# --- Prefect's server and environment -------------------------------------------------------------


def quiet_prefect(debug: bool) -> None:
    """Let flows of the command line run without log lines between the progress bars.

    It sets the environment of Prefect, which is imported later.
    """
    if not debug:  # before distributed is imported: Prefect routes its lines to the console
        quiet_dask()
    _set_defaults(
        PREFECT_LOGGING_LEVEL="INFO" if debug else "CRITICAL",
        PREFECT_SERVER_LOGGING_LEVEL="CRITICAL",
    )


@contextlib.contextmanager
def _server(data: Path, port: int) -> Iterator[str]:
    """Yield the address of the Prefect server in the environment, or start one for the block.

    It offers pages and schedules, protected by this user's secret.
    """
    _set_defaults()
    if "PREFECT_API_URL" in os.environ:
        yield os.environ["PREFECT_API_URL"]
        return
    home = Path(os.environ.setdefault("PREFECT_HOME", str(data / "prefect")))
    private_folder(home)  # Prefect does not create parents: a new user may have no ~/.local
    from flows.server import run_server, user_secret

    secret = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    with run_server(home, port, secret=secret or user_secret(data)) as address:
        secret_source = "PREFECT_SERVER_API_AUTH_STRING" if secret else str(data / "prefect-secret")
        print(
            f"runs: {address.removesuffix('/api')} (to log in, use the secret in {secret_source})",
            flush=True,
        )
        yield address


def _set_defaults(**environment: str) -> None:
    """Set what the environment does not say about Prefect yet."""
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_PROMPT": "false",
        **environment,
    }.items():
        os.environ.setdefault(name, value)


def _end_runs(seconds: float = 5) -> None:
    """End the runs that this process started while the server still answers. Without a server they
    would retry forever.
    """
    runs = [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]
    for run in runs:
        run.terminate()
    for run in psutil.wait_procs(runs, timeout=seconds)[1]:
        run.kill()
