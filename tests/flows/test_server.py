"""What closes the servers: the door before Prefect, the secret's file, the bounds of a served
run.
"""

import asyncio
import os
import stat
import subprocess
import sys

import pytest

from flows.options import Engine, Staging
from flows.serving.serve_limits import LIMITS_VARIABLE, ServeLimits, require_allowed
from flows.serving.server import SameOriginOnly, user_secret
from tests.helpers.listing import names_in
from tests.helpers.processes import environment, until

pytestmark = pytest.mark.process

OWN = "http://127.0.0.1:4200"


def sent(kind, **headers):
    """What the door sends for a request with these headers, beside Host."""
    messages = []

    async def inside(scope, receive, send):
        await send({"type": "inside"})

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        messages.append(message)

    given = [
        (name.encode(), value.encode())
        for name, value in ({"host": OWN.removeprefix("http://")} | headers).items()
    ]
    asyncio.run(SameOriginOnly(inside, 4200)({"type": kind, "headers": given}, receive, send))
    return messages


@pytest.mark.parametrize("headers", [{}, {"origin": OWN}])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_door_opens_for_its_own_address_and_pages(kind, headers):
    assert sent(kind, **headers) == [{"type": "inside"}]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": origin}
        for origin in (
            "https://evil.example",
            "null",
            "http://127.0.0.1:9",
            "http://localhost:4200",
            f"{OWN}.evil.example",
            "",
        )
    ]
    + [
        {"host": host}
        for host in (
            "evil.example",
            "evil.example:4200",
            "127.0.0.1",
            "127.0.0.1:9",
            "localhost:4200",
            "",
        )
    ],
)
def test_door_is_closed_to_other_pages_and_names(headers):
    start, body = sent("http", **headers)
    assert start["status"] == 403
    assert {name for name, _ in start["headers"]} == {b"content-type", b"content-length"}
    assert OWN.encode() in body["body"]
    assert sent("websocket", **headers) == [{"type": "websocket.close", "code": 1008}]


# --- the server's end ----------------------------------------------------------------------------


def test_server_whose_starter_dies_during_its_start_ends(tmp_path):
    """A Prefect whose import takes ten minutes stands for a slow start."""
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "__init__.py").write_text(
        "import pathlib, time\npathlib.Path('imported').touch()\ntime.sleep(600)\n"
    )
    env = environment(tmp_path / "home")
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, "-m", "flows.serving.server", "0"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        try:
            until((tmp_path / "imported").exists, "the import of Prefect")
            server.stdin.close()  # as the kernel does for a killed process
            until(lambda: server.poll() is not None, "the server's end", 60)
        finally:
            server.kill()


# --- the secret -----------------------------------------------------------------------------------


def test_secret_is_made_once_and_private(tmp_path):
    secret = user_secret(tmp_path / "data")
    assert secret.startswith("bigfs:")
    assert len(secret) > 32
    assert user_secret(tmp_path / "data") == secret
    assert stat.S_IMODE((tmp_path / "data" / "prefect-secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_secret_that_others_could_read_is_replaced(tmp_path):
    secret = user_secret(tmp_path / "data")
    file = tmp_path / "data" / "prefect-secret"
    file.chmod(0o640)
    assert user_secret(tmp_path / "data") != secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


# --- a served run ---------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The bounds of a deployment that serves /data/corpus from a folder, with runs in
    /data/runs/r.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "out").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "folder")
    bounds = ServeLimits(
        folder=os.getcwd(),
        paths=["/data/corpus", "/data/runs/r"],
        engine=Engine(workers=2),
        process=os.getppid(),
    )
    monkeypatch.setenv(LIMITS_VARIABLE, bounds.model_dump_json())
    return bounds


@pytest.mark.parametrize(
    "place",
    [
        None,
        "/data/corpus",
        "/data/runs/r",
        "corpus",
        "runs/a",
        ".bigfs/s.zarr",
        "faces.mat?sample_shape=32x32&unlabeled=-1",
        "x.npy?labels=y.txt",
    ],
)
def test_served_run_works_in_its_folder_and_in_the_deployments_places(served, place):
    require_allowed(Engine(workers=0), place)


@pytest.mark.parametrize(
    "place",
    [
        "/data",
        "/data/runs/other",
        "../a",
        "a/../../b",
        "out/a",
        "/etc/passwd",
        "~/../../etc",
        "s3://b/c",
        "file:///etc",
        "zip::file:///x",
        "http://x/",
        "x.npy?labels=/etc/passwd",
        "x.npy?unlabeled=-1&labels=../y.txt",
        "out/x.npy?unlabeled=-1",
    ],
)
def test_served_run_goes_nowhere_else(served, place, tmp_path):
    if place.startswith("~"):
        place = f"{tmp_path}/folder/{place[2:]}"
    with pytest.raises(PermissionError, match="may use paths in"):
        require_allowed(Engine(), "corpus", place)


@pytest.mark.parametrize(
    "engine", [{"scheduler": "tcp://evil.example:8786"}, {"tls": "folder"}, {"dashboard": True}]
)
def test_served_run_stays_on_the_deployments_cluster(served, engine):
    with pytest.raises(PermissionError, match=rf"engine\.{next(iter(engine))}"):
        require_allowed(Engine(**engine))


def test_run_that_nobody_serves_goes_where_it_likes(monkeypatch):
    monkeypatch.delenv(LIMITS_VARIABLE, raising=False)
    require_allowed(Engine(scheduler="tcp://10.0.0.1:8786"), "/anywhere", "s3://b/c")


@pytest.mark.parametrize(
    ("flow", "given"),
    [
        ("pipeline", {"source": "/etc/passwd"}),
        ("stage", {"source": "corpus", "store": "/elsewhere"}),
        ("stage", {"source": "corpus", "settings": Staging(stop_words="/etc/passwd")}),
        ("stage", {"source": "x.npy", "settings": Staging(labels="/etc/passwd")}),
        ("stage", {"source": "x.npy", "settings": Staging(labels=["y.txt", "/etc/passwd"])}),
        ("select", {"store": "/elsewhere", "out": "r"}),
        ("evaluate", {"run": "/elsewhere"}),
        (
            "sweep",
            {"source": "corpus", "methods": ["sparge-lda"], "features": [1], "out": "/elsewhere"},
        ),
        (
            "compare",
            {"source": "corpus", "methods": ["sparge-lda"], "sizes": [1], "out": "/elsewhere"},
        ),
    ],
)
def test_served_flow_refuses_before_any_work(served, flow, given):
    from flows import compare, pipeline, sweep

    module = {"sweep": sweep, "compare": compare}.get(flow, pipeline)
    with pytest.raises(PermissionError, match="may use paths in"):
        getattr(module, flow).fn(**given)
    assert names_in() == ["out"]


@pytest.mark.parametrize(
    ("address", "pages", "url"),
    [(None, True, None), (f"{OWN}/api", False, None), (f"{OWN}/api", True, f"{OWN}/page")],
)
def test_run_names_its_page_only_where_the_server_has_pages(monkeypatch, address, pages, url):
    from prefect import runtime, settings
    from prefect.settings import temporary_settings

    from flows import prefect_flows

    for name in ("get_id", "get_name", "get_flow_name"):
        monkeypatch.setattr(runtime.flow_run, name, lambda: "x")
    monkeypatch.setattr(
        runtime.flow_run, "get_flow_run_ui_url", lambda: f"{settings.PREFECT_UI_URL.value()}/page"
    )
    with temporary_settings(
        {settings.PREFECT_API_URL: address, settings.PREFECT_SERVER_UI_ENABLED: pages}
    ):
        assert prefect_flows._flow_run_info()["url"] == url
