"""A result says when, where and by which command it was made, and prints what a shell can read."""

import subprocess
import sys
from datetime import datetime, timedelta

from bigfs.flows import tls
from bigfs.flows.cli import servers
from bigfs.flows.report import provenance


def test_a_result_says_when_where_and_how_it_was_made(monkeypatch):
    arguments = ["/opt/bin/bigfs", "run", "https://host/a.csv?token=abc", "--out", "my run"]
    monkeypatch.setattr(sys, "argv", arguments)
    about = provenance.provenance()
    made = datetime.fromisoformat(about["made"])
    assert abs(datetime.now().astimezone() - made) < timedelta(minutes=10)
    assert about["command"].startswith("bigfs run ")
    assert about["command"].endswith("--out 'my run'")
    assert "abc" not in about["command"]
    assert about["host"]
    assert set(about["versions"]) == set(provenance.LIBRARIES)


def test_the_variables_of_certificates_survive_a_shell(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "b c's"
    monkeypatch.setattr(tls, "make_certificates", lambda *_: folder)
    monkeypatch.setattr(tls, "environment", lambda path: {"DASK_CA": f"{path}/ca.pem"})
    servers.certificates(str(folder))
    script = capsys.readouterr().out + '\nprintf %s "$DASK_CA"'
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == f"{folder}/ca.pem"
