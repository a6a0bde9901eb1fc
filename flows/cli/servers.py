"""The commands for servers and clusters: `bigfs serve` and `bigfs certificates`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from bigfs.engine import quiet_dask
from bigfs.flows.cli import signals
from bigfs.flows.cli.extras import require_extra
from bigfs.flows.cli.options import Fields, Json, split
from bigfs.flows.cli.output import print_record, state
from bigfs.flows.job import Job, Request
from bigfs.flows.use.files import require_local
from bigfs.storage.errors import BusyError, redact


def certificates(
    folder: Annotated[str, typer.Argument(help="folder to write to (created if missing)")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="name or address of a machine of the cluster (divided by commas or repeated)"
        ),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, help="number of days the certificates are valid")
    ] = 365,
    as_json: Json = False,
) -> None:
    """Make certificates for a Dask cluster. Only their holders can join or use it."""
    from bigfs.flows.tls import environment, make_certificates

    path = make_certificates(
        require_local(folder), [*(split(host) or []), "localhost", "127.0.0.1"], days
    )
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
) -> None:
    """Repeat the whole job on a cron schedule until stopped.

    The schedule is kept by the API that Prefect's settings name, such as the one of
    `prefect server start`.
    """
    from bigfs.flows import run as runs
    from bigfs.flows.evaluation.selection import require_parameters
    from bigfs.flows.reuse import source_name

    require_extra("report", "bigfs serve")
    require_extra("flows", "bigfs serve")
    require_parameters(job.method, job.features, job.parameters)
    runs.prepare(job)  # a missing source is an error now, and not in the night
    _set_defaults()
    if (address := api_address()) is None:
        raise ValueError(
            "bigfs serve needs a Prefect server: run `prefect server start`, and set "
            "PREFECT_API_URL to its address, such as http://127.0.0.1:4200/api. Without one, let "
            "cron call `bigfs run`, which does nothing twice"
        )
    schedule = make_schedule(cron, timezone or local_timezone())
    require_api(address, "start it, or let cron call `bigfs run --no-prefect`")
    print(f"schedule: {cron} in the time zone {schedule.timezone}", flush=True)
    from bigfs.flows.prefect_flows import require_shown, run

    require_shown(job.source, job.store, job.settings.test)
    with contextlib.suppress(SystemExit):  # Prefect's answer to SIGTERM as it starts
        run.serve(
            name=name or source_name(job.source),
            schedule=schedule,
            parameters=job.model_dump(mode="json"),
            limit=1,
        )
    signals.note(signal.SIGTERM)  # Prefect takes it and returns; a Ctrl-C is noted already


def make_schedule(cron: str, timezone: str) -> Any:
    """Return Prefect's schedule, or refuse a text that is not one."""
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.schedules import Cron

    CronSchedule(cron=cron, timezone=timezone)
    return Cron(cron, timezone=timezone)


def local_timezone() -> str:
    """Return the name of this machine's time zone, UTC where its clock is that.

    A clock that tells its offset, but not the name of its zone, is refused.
    """
    link = os.path.realpath("/etc/localtime")
    name = os.environ.get("TZ", "").lstrip(":") or link.partition("zoneinfo/")[2] or "UTC"
    with contextlib.suppress(ZoneInfoNotFoundError, ValueError):
        now = datetime.now().astimezone()
        if now.astimezone(ZoneInfo(name)).utcoffset() == now.utcoffset():
            return name
    raise ValueError(
        f"the clock of this machine is not that of the time zone {name}: give the zone of the "
        f"schedule, such as --timezone Europe/Rome"
    )


# --- Prefect's settings ---------------------------------------------------------------------------


def uses_prefect(choice: bool | None) -> bool:
    """Return whether a command is a Prefect flow: as chosen, or if Prefect's settings name an API.

    An API that does not answer is refused. Where Prefect's settings name none, Prefect may start a
    server for the time of a run that is to be a flow. Prefect's lines go to the server alone, and
    not between the progress bars.
    """
    if choice is False:
        return False
    # Prefect reads them as it is imported
    _set_defaults(
        **{} if state["debug"] else {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}
    )
    if (address := api_address()) is not None:
        require_api(address, "start it, or give --no-prefect")
    elif choice:
        _set_defaults(
            PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
            PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120",
        )
    is_flow = bool(choice) or address is not None
    if is_flow:
        require_extra("flows", "--prefect")
    if is_flow and not state["debug"]:
        quiet_dask()  # Prefect routes its lines to the console
    return is_flow


def result_of_flow(name: str, request: Request) -> None:
    """Run a flow by the fields of a request. Raises what it raised, or that it was skipped."""
    from bigfs.flows import prefect_flows

    prefect_flows.require_shown(request.source, request.store, request.settings.test)
    state = getattr(prefect_flows, name)(**dict(request), return_state=True)
    if state.name == "Skipped":
        raise BusyError(state.message)
    if not state.is_completed():
        state.result()  # which raises what the flow raised


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


def require_api(address: str, advice: str) -> None:
    """Refuse an API that does not answer."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error is not None:
        why = " ".join(str(error).split()) or type(error).__name__
        raise OSError(
            f"{redact(address)}, which Prefect's settings name, does not answer ({why}): {advice}"
        )


def _set_defaults(**environment: str) -> None:
    """Set what the environment does not say about Prefect yet."""
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_PROMPT": "false",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "bigfs",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # threads of Dask serve no flow
        **environment,
    }.items():
        os.environ.setdefault(name, value)
