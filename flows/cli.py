"""The commands of people who run servers and clusters: `bigfs serve`, `bigfs certificates`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import dask
import psutil
import typer

from flows.options import Engine, Features, Method, Out, Set, Source, Staging, unfolded


def mount(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(serve)
    app.command()(certificates)


def certificates(
    folder: Annotated[str, typer.Argument(help="where to write them; made if it is not there")],
    host: Annotated[list[str] | None, typer.Option(help="a name or address of the cluster's machines; may be repeated")] = None,
    days: Annotated[int, typer.Option(min=1, help="how long they are valid")] = 365,
) -> None:
    """Make certificates for a Dask cluster: only who holds them can join, use or run it."""
    from flows.tls import environment, make_certificates

    made = make_certificates(folder, [*(host or []), "localhost", "127.0.0.1"], days)
    print(f"# certificates in {made}, valid for {days} days; give --tls {made} to bigfs, and to dask scheduler and dask worker:")
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
    overlap: Annotated[Literal["wait", "skip"], typer.Option(help="if the last run still works")] = "skip",
    name: Annotated[str | None, typer.Option(help="of the deployment (default: the source's name)")] = None,
    port: Annotated[int, typer.Option(min=1, help="of the Prefect server started here, unless PREFECT_API_URL names one")] = 4200,
    *,
    staging: Staging,
    engine: Engine,
) -> None:
    """Run the main job again and again, by a cron schedule, until stopped."""
    from flows.stages import require_parameters, source_name

    parameters = parameters_of(set_)
    require_parameters(method, features, parameters)
    job = {"source": source, "method": method, "features": features, "out": out, "parameters": parameters}
    job |= {"settings": staging.model_dump(), "engine": engine.model_dump(), "overlap": overlap}
    with _server(port) as address:
        from flows.pipeline import pipeline

        print(f"runs: {address.removesuffix('/api')}", flush=True)
        try:
            pipeline.serve(name=name or source_name(source), cron=cron, parameters=job, limit=1, print_starting_message=False)
        finally:
            _end_runs()


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


# --- Prefect's surroundings -----------------------------------------------------------------------


def quiet_prefect(debug: bool) -> None:
    """For one flow of the command line: an embedded server with a home of its own, and no log between the progress bars."""
    from platformdirs import user_cache_path

    levels = {"PREFECT_LOGGING_LEVEL": "INFO" if debug else "CRITICAL", "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL"}
    _surroundings(user_cache_path("bigfs"), PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120", **levels)
    if not debug:  # before distributed is imported: Prefect routes its lines to the console
        dask.config.set({"logging.distributed": "error"})


def _surroundings(data: Path, **more: str) -> None:
    """What Prefect reads from the environment, where the user has not set it; a server that the user named is used as it is."""
    own = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1", "PREFECT_CLI_PROMPT": "false", **more}
    if "PREFECT_API_URL" not in os.environ:
        own["PREFECT_HOME"] = str(data / "prefect")
    for name, value in own.items():
        os.environ.setdefault(name, value)
    if "PREFECT_HOME" in own:  # Prefect makes it, but not what it is in: a new user may have no ~/.cache
        Path(os.environ["PREFECT_HOME"]).mkdir(mode=0o700, parents=True, exist_ok=True)


def _end_runs(seconds: float = 20) -> None:
    """End the runs that this process started, while there is a server to tell: without one they would try to for ever."""
    runs = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
    for run in runs:
        run.terminate()
    for run in psutil.wait_procs(runs, timeout=seconds)[1]:
        run.kill()


@contextlib.contextmanager
def _server(port: int) -> Iterator[str]:
    """The address of the Prefect server that the environment names, or of one that lives as long as the block."""
    if "PREFECT_API_URL" in os.environ:
        yield os.environ["PREFECT_API_URL"]
        return
    from platformdirs import user_data_path

    _surroundings(user_data_path("bigfs"))
    os.environ["PREFECT_API_URL"] = address = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an end by service managers goes through `finally`, too
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _await(address, server)
            yield address
        finally:
            server.terminate()


def _await(address: str, server: subprocess.Popen[bytes], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        time.sleep(0.3)
    raise OSError(f"the Prefect server did not start at {address}: is the port taken? Give another --port, or set PREFECT_API_URL")
