"""The commands for servers and clusters: `bigfs serve` and `bigfs certificates`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from bigfs.flows.cli import signals
from bigfs.flows.cli.extras import require_flows
from bigfs.flows.cli.options import Fields, Json
from bigfs.flows.cli.output import print_record
from bigfs.flows.job import Job

from bigfs.engine import quiet_dask


def certificates(
    folder: Annotated[str, typer.Argument(help="folder to write to (created if missing)")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="name or address of a machine of the cluster (repeatable)"),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, help="number of days the certificates are valid")
    ] = 365,
    as_json: Json = False,
) -> None:
    """Make certificates for a Dask cluster. Only their holders can join or use it."""
    from bigfs.flows.tls import environment, make_certificates

    path = make_certificates(folder, [*(host or []), "localhost", "127.0.0.1"], days)
    variables = environment(path)
    lines = [
        f"# certificates in {path}, valid for {days} days. Pass --tls {path} to bigfs, and set "
        f"these variables for dask scheduler and dask worker:",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
    ]
    record = {"folder": str(path), "days": days, "environment": variables}
    print_record(record, as_json, "\n".join(lines))


def serve(
    *,
    job: Annotated[Job, Fields(without="timeout", defaults={"overlap": "skip"})],
    cron: Annotated[str, typer.Option(help="schedule, as a cron expression")] = "0 3 * * *",
    timezone: Annotated[
        str | None,
        typer.Option(
            help="time zone of the schedule, such as Europe/Rome (default: this machine's)"
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="name of the deployment (default: name of the source)")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=1, help="port of the local Prefect server, unless Prefect's settings name an API"
        ),
    ] = 4200,
) -> None:
    """Repeat the whole job on a cron schedule until stopped.

    The schedule is on the API that Prefect's settings name, or on a server of its own.
    """
    from bigfs.flows import run as runs
    from bigfs.flows.evaluation.selection import require_parameters
    from bigfs.flows.reuse import source_name

    require_flows("bigfs serve")
    require_parameters(job.method, job.features, job.parameters)
    runs.prepare(job)  # a missing source is an error now, and not in the night
    _set_defaults(DASK_LOGGING__DISTRIBUTED="warning")  # of the flow runs, which are processes
    if api_address() is None:
        _set_home()  # before the first import of Prefect
    schedule = make_schedule(cron, timezone or local_timezone())
    name = name or source_name(job.source)
    with _server(port, name):
        print(f"schedule: {cron} in the time zone {schedule.timezone}", flush=True)
        from bigfs.flows.prefect_flows import bigfs

        try:
            with contextlib.suppress(SystemExit):  # Prefect's answer to SIGTERM as it starts
                bigfs.serve(
                    name=name,
                    schedule=schedule,
                    parameters=job.model_dump(mode="json"),
                    limit=1,
                    print_starting_message=False,
                )
            signals.note(signal.SIGTERM)  # Prefect takes it and returns; a Ctrl-C is noted already
        finally:
            _end_runs()


def make_schedule(cron: str, timezone: str) -> Any:
    """Return Prefect's schedule, or refuse what is none."""
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.schedules import Cron

    CronSchedule(cron=cron, timezone=timezone)
    return Cron(cron, timezone=timezone)


def local_timezone() -> str:
    """Return the name of this machine's time zone, UTC where it has none."""
    link = os.path.realpath("/etc/localtime")
    return os.environ.get("TZ", "").lstrip(":") or link.partition("zoneinfo/")[2] or "UTC"


# --- Prefect's server and environment -------------------------------------------------------------


def uses_prefect(choice: bool | None) -> bool:
    """Return whether a command is a Prefect flow: as chosen, or if Prefect's settings name an API.

    Where they name none, Prefect may start a server for the time of a run that is to be a flow.
    """
    if choice:
        _set_defaults(
            PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
            PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120",
        )
    return api_address() is not None if choice is None else choice


def api_address() -> str | None:
    """Return the API that Prefect's settings name, or None.

    Importing them takes two seconds, so they are asked only where a variable or a file of Prefect
    may name one.
    """
    home = Path(os.environ.get("PREFECT_HOME", Path.home() / ".prefect"))
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    words = {
        profiles: "PREFECT_API_URL",
        Path(".env"): "PREFECT_API_URL",
        Path("prefect.toml"): "url",
        Path("pyproject.toml"): "tool.prefect",
    }
    named = "PREFECT_API_URL" in os.environ or "prefect.settings" in sys.modules
    if not named and not any(
        file.is_file() and word in file.read_text(encoding="utf-8", errors="replace")
        for file, word in words.items()
    ):
        return None
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


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
def _server(port: int, deployment: str) -> Iterator[None]:
    """Let Prefect use the API of its settings, or a server for the block with the user's secret."""
    if (address := api_address()) is not None:
        print(f"runs: {address.removesuffix('/api')}", flush=True)
        yield
        return
    from bigfs.flows.serving import LOG, SECRET, crash_abandoned, run_server, user_secret

    home, variable = _set_home(), "PREFECT_SERVER_API_AUTH_STRING"
    secret = os.environ.get(variable)
    place = variable if secret else user_data() / SECRET
    with run_server(home, port, secret or user_secret(user_data())) as address:
        print(
            f"runs: {address} (to log in, use the secret in {place}; the server's log is "
            f"{home / LOG})",
            flush=True,
        )
        crash_abandoned(deployment)  # of others' servers the flow run told it itself
        yield


def user_data() -> Path:
    """Return the folder of this user's data."""
    from platformdirs import user_data_path

    return user_data_path("bigfs")


def _set_home() -> Path:
    """Return Prefect's own folder. Its parents are made: a new user may have no ~/.local."""
    from bigfs.flows.tls import private_folder

    return private_folder(Path(os.environ.setdefault("PREFECT_HOME", str(user_data() / "prefect"))))


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
    """End the flow runs of this process while the server answers, or they would retry forever."""
    runs = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            runs += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    for run in runs:
        run.terminate()
    for run in psutil.wait_procs(runs, timeout=seconds)[1]:
        run.kill()
