"""A Prefect server for one user: behind a secret, closed to other web sites, and ended with
the process that started it.

Run as ``python -m flows.serving.server PORT``, it reads its secret from the environment and prints
its port. Prefect checks the secret, but neither the Host nor the Origin of a request. `SameOriginOnly`
checks these two.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, BinaryIO

from flows.use.files import private_file

HOST = "127.0.0.1"
USER = "bigfs"
SECRET = "prefect-secret"  # the file's name
LOG = "bigfs-server.log"  # the file's name, in Prefect's own folder
START_SECONDS = 120.0
END_SECONDS = 5.0

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class SameOriginOnly:
    """An ASGI application that answers only requests to its own address, and from no page but its
    own.

    A page of another site can send requests to a server on this machine, and can give its own name
    this machine's address. The browser then says so in Origin or in Host.
    """

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self.hosts = {f"{HOST}:{port}".encode()}
        self.origins = {b"http://" + host for host in self.hosts}

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request.

        Parameters
        ----------
        scope, receive, send
            As ASGI defines them.
        """
        if scope["type"] not in ("http", "websocket") or self._is_allowed(scope["headers"]):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            text = (
                f"This server answers only requests to "
                f"http://{HOST}:{self.port}, from its own pages.\n".encode()
            )
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(text)).encode()),
            ]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": text})

    def _is_allowed(self, headers: list[tuple[bytes, bytes]]) -> bool:
        hosts = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        return (
            len(hosts) == 1
            and hosts[0] in self.hosts
            and all(origin in self.origins for origin in origins)
        )


# --- the process that starts it -------------------------------------------------------------------


@contextlib.contextmanager
def run_server(
    home: Path,
    port: int = 0,
    *,
    secret: str,
) -> Iterator[str]:
    """Run a Prefect server for the block, and let this process and its children use it."""
    env = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_API_AUTH_STRING": secret,
        "PREFECT_API_AUTH_STRING": secret,
        "PREFECT__SERVER_FINAL": "1",
    }
    command = [sys.executable, "-m", __name__, str(port)]
    # a session of its own: Ctrl-C ends what uses the server first, then the server
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as server,
    ):
        try:
            with _use_server(
                f"http://{HOST}:{_read_port(server, errors, port)}/api", secret
            ) as address:
                yield address
        finally:
            _end(server, END_SECONDS)


@contextlib.contextmanager
def _use_server(address: str, secret: str) -> Iterator[str]:
    """Let Prefect use this server for the block.

    Queued logs and events are sent before the block ends.
    """
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_SERVER_UI_ENABLED,
        temporary_settings,
    )

    with temporary_settings(
        {
            PREFECT_API_URL: address,
            PREFECT_API_AUTH_STRING: secret,
            PREFECT_SERVER_UI_ENABLED: True,
        }
    ):
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        try:
            yield address
        finally:
            for queue in (APILogWorker, EventsWorker):
                queue.drain_all(timeout=END_SECONDS)


def _read_port(server: subprocess.Popen[bytes], errors: Any, port: int) -> int:
    """Return the port that the server prints once it answers."""
    assert server.stdout is not None
    line = (
        server.stdout.readline()
        if select.select([server.stdout], [], [], START_SECONDS)[0]
        else b""
    )
    if line.strip().isdigit():
        return int(line)
    errors.seek(0)
    messages = errors.read().decode(errors="replace").strip().splitlines() or [
        f"no answer in {START_SECONDS:.0f} s"
    ]
    on_port = f" on port {port}" if port else ""
    raise OSError(
        f"the Prefect server did not start{on_port} ({messages[-1]}): choose another "
        f"--port, or set PREFECT_API_URL to a running server"
    )


def _end(server: subprocess.Popen[bytes], seconds: float) -> None:
    assert server.stdin is not None
    server.stdin.close()  # the server ends when its standard input does
    try:
        server.wait(seconds)
    except subprocess.TimeoutExpired:
        server.kill()


def user_secret(folder: Path) -> str:
    """Return the secret of this user's servers: ``bigfs:…``, kept in a file of mode 600."""
    file = folder / SECRET
    with contextlib.suppress(FileNotFoundError):
        status = file.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o077:
            return file.read_text().strip()
    return private_file(file, new_secret().encode()).read_text()


def new_secret() -> str:
    """Return a new random secret."""
    return f"{USER}:{secrets.token_urlsafe(24)}"


# --- the server's own process ---------------------------------------------------------------------


def main() -> None:
    """Serve until standard input ends, that is, until the process that started this one ends."""
    starter_ended = _watch_pipe(sys.stdin.buffer)
    try:
        listener = socket.create_server((HOST, int(sys.argv[1])))
    except OSError as error:
        print(error.strerror, file=sys.stderr, flush=True)
        os._exit(1)  # the thread that watches the pipe cannot end
    port = listener.getsockname()[1]
    # also where the pages look for the API
    os.environ["PREFECT_API_URL"] = f"http://{HOST}:{port}/api"
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = f"http://{HOST}:{port}"

    import uvicorn
    from prefect.server.api.server import create_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started and not starter_ended.is_set():
                print(port, flush=True)
                _log_to(Path(os.environ["PREFECT_HOME"], LOG))

        async def on_tick(self, counter: int) -> bool:
            return starter_ended.is_set() or await super().on_tick(counter)

    options: dict[str, Any] = {
        "log_level": "warning",
        "timeout_graceful_shutdown": 1,
        "server_header": False,
        "access_log": False,
    }
    server = Server(uvicorn.Config(SameOriginOnly(create_app(), port), lifespan="on", **options))
    server.run([listener])
    os._exit(0)  # all answers are written, and tidying up the interpreter takes a second


def _watch_pipe(pipe: BinaryIO) -> threading.Event:
    """Return an event that is set when the pipe ends. This process exits `END_SECONDS` later.

    The watch begins before the imports, so that no server is left if the starter is killed early.
    """
    ended = threading.Event()

    def watch() -> None:
        pipe.read()
        ended.set()
        threading.Event().wait(END_SECONDS)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    return ended


def _log_to(file: Path) -> None:
    """Write everything that this process prints from now on into a file of its user.

    The file of the server before is kept beside it.
    """
    if file.exists():
        file.replace(file.with_suffix(".log.1"))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


if __name__ == "__main__":
    main()
