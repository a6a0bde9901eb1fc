"""The Prefect server of `bigfs serve`, for one user.

Prefect's own settings close it: it listens on this machine only, answers nobody without the secret,
and lets the browser show its answers to no other page. It ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bigfs.flows.tls import private_file

HOST = "127.0.0.1"
SECRET = "prefect-secret"  # the file's name
LOG = "bigfs-server.log"  # the file's name, in Prefect's own folder
START_SECONDS = 120.0
END_SECONDS = 5.0


@contextlib.contextmanager
def run_server(home: Path, port: int, secret: str) -> Iterator[str]:
    """Run a Prefect server for the block, for this process and its children. Yields its address.

    `home` is Prefect's own folder, and the secret is ``user:password``.
    """
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise _no_start(port, error.strerror or str(error)) from error
    address = f"http://{HOST}:{port}"
    settings = {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"{address}/api",  # also where the pages look for it
        "PREFECT_API_AUTH_STRING": secret,
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": address,
        "PREFECT_SERVER_UI_ENABLED": "true",
    }
    log = home / LOG
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    # a session of its own: Ctrl-C ends what uses the server first, then the server
    with (
        open(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(port)],
            env=os.environ | settings,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as server,
    ):
        try:
            _wait_for(server, address, port, log)
            with _use(settings):
                yield address
        finally:
            server.terminate()
            try:
                server.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(server: subprocess.Popen[bytes], address: str, port: int, log: Path) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api/health"):
            return
        time.sleep(0.1)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise _no_start(port, lines[-1] if lines else f"no answer in {START_SECONDS:.0f} s")


def _no_start(port: int, why: str) -> OSError:
    return OSError(
        f"the Prefect server did not start on port {port} ({why}): choose another --port, or set "
        f"PREFECT_API_URL to a running server"
    )


@contextlib.contextmanager
def _use(settings: dict[str, str]) -> Iterator[None]:
    """Let Prefect use the server for the block, and send queued logs and events before its end."""
    from prefect import settings as of_prefect

    changes = {getattr(of_prefect, name): value for name, value in settings.items()}
    with of_prefect.temporary_settings(changes):
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        try:
            yield
        finally:
            for queue in (APILogWorker, EventsWorker):
                queue.drain_all(timeout=END_SECONDS)


def crash_abandoned(deployment: str) -> None:
    """Give runs of a deployment the state Crashed that a killed process left as running."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.states import Crashed, State

    at_work = FlowRunFilter.model_validate({"state": {"type": {"any_": ["PENDING", "RUNNING"]}}})
    names = [deployment, Path(deployment).stem]  # Prefect drops what looks like a file's suffix
    named = DeploymentFilter.model_validate({"name": {"any_": names}})
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=at_work, deployment_filter=named):
            gone: State[Any] = Crashed(message="the bigfs serve that started it was killed")
            client.set_flow_run_state(run.id, gone, force=True)


def user_secret(folder: Path) -> str:
    """Return the secret of this user's servers: ``bigfs:…``, kept in a file of mode 600.

    A secret that others could read is replaced.
    """
    file = folder / SECRET
    with contextlib.suppress(FileNotFoundError):
        status = file.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o077:
            return file.read_text().strip()
    return private_file(file, f"bigfs:{secrets.token_urlsafe(24)}".encode()).read_text()


# --- the server's own process ---------------------------------------------------------------------


def main() -> None:
    """Serve until this process is ended, or the one that started it."""
    threading.Thread(target=_exit_with_starter, daemon=True).start()  # also during the imports
    import uvicorn

    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        host=HOST,
        port=int(sys.argv[1]),
        log_level="warning",
        timeout_graceful_shutdown=1,
    )


def _exit_with_starter() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
