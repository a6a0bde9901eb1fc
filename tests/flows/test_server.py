"""What closes the server of `bigfs serve`: the secret's file, and the end with its starter."""

import os
import stat
import subprocess
import sys

import pytest
from bigfs.flows.serving import user_secret

from tests.helpers.processes import environment, until

OWN = "http://127.0.0.1:4200"


@pytest.mark.process
def test_server_whose_starter_dies_during_its_start_ends(tmp_path):
    """A Prefect whose import takes ten minutes stands for a slow start."""
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "__init__.py").write_text(
        "import pathlib, time\npathlib.Path('imported').touch()\ntime.sleep(600)\n"
    )
    env = environment(tmp_path / "home")
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, "-m", "bigfs.flows.serving", "0"],
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


@pytest.mark.parametrize(
    ("address", "pages", "url"),
    [(None, True, None), (f"{OWN}/api", False, None), (f"{OWN}/api", True, f"{OWN}/page")],
)
def test_run_names_its_page_only_where_the_server_has_pages(monkeypatch, address, pages, url):
    from bigfs.flows import prefect_flows
    from prefect import runtime, settings
    from prefect.settings import temporary_settings

    for name in ("get_id", "get_name", "get_flow_name"):
        monkeypatch.setattr(runtime.flow_run, name, lambda: "x")
    monkeypatch.setattr(
        runtime.flow_run, "get_flow_run_ui_url", lambda: f"{settings.PREFECT_UI_URL.value()}/page"
    )
    with temporary_settings(
        {settings.PREFECT_API_URL: address, settings.PREFECT_SERVER_UI_ENABLED: pages}
    ):
        assert prefect_flows._flow_run_info()["url"] == url
