"""The commands of people who run servers and clusters: `bigfs serve`, `bigfs certificates`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Annotated, Any

import typer


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


def serve(
    source: Annotated[str, typer.Argument(help="a path, a URL, or a name of `bigfs datasets`")],
    cron: Annotated[str, typer.Option(help="when to run, as cron writes it")] = "0 3 * * *",
    method: Annotated[str, typer.Option(help="one of `bigfs methods`")] = "sparge-lda",
    features: Annotated[int, typer.Option(min=1, help="how many features to keep")] = 500,
    out: Annotated[str | None, typer.Option(help="the run's directory [default: runs/NAME]")] = None,
    scheduler: Annotated[str | None, typer.Option(help="address of a Dask scheduler [default: processes on this machine]")] = None,
    tls: Annotated[str | None, typer.Option(help="folder of certificates for a tls:// scheduler")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="processes to start; 0 works serially [default: one a core]")] = None,
    memory_limit: Annotated[str, typer.Option(help="of each process started here")] = "1GB",
    overlap: Annotated[str, typer.Option(help="if the last run still works: wait or skip")] = "skip",
    name: Annotated[str | None, typer.Option(help="of the deployment [default: the source's name]")] = None,
    port: Annotated[int, typer.Option(min=1, help="of the Prefect server started here, unless PREFECT_API_URL names one")] = 4200,
) -> None:
    """Run the main job again and again, by a cron schedule, until stopped."""
    from flows.stages import method_named, source_name

    method_named(method)
    with _server(port) as address:
        from flows.pipeline import pipeline

        print(f"runs: {address.removesuffix('/api')}", flush=True)
        parameters: dict[str, Any] = {"source": source, "method": method, "features": features, "out": out, "overlap": overlap}
        parameters["engine"] = {"scheduler": scheduler, "tls": tls, "workers": workers, "memory_limit": memory_limit}
        pipeline.serve(name=name or source_name(source), cron=cron, parameters=parameters, limit=1, print_starting_message=False)


@contextlib.contextmanager
def _server(port: int) -> Iterator[str]:
    """The address of the Prefect server that the environment names, or of one that lives as long as the block."""
    if "PREFECT_API_URL" in os.environ:
        yield os.environ["PREFECT_API_URL"]
        return
    from platformdirs import user_data_path

    os.environ["PREFECT_API_URL"] = address = f"http://127.0.0.1:{port}/api"
    os.environ.setdefault("PREFECT_HOME", str(user_data_path("bigfs") / "prefect"))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
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
