"""The wheel in an empty environment of each CPython that is here, outside the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def newest(version):
    """A CPython of a version, or None."""
    installed = sorted(PYENV.glob(f"versions/{version}.*/bin/python"))
    found = shutil.which(f"python{version}")
    candidates = [*map(str, installed[::-1]), *([found] if found else [])]
    return next((one for one in candidates if runs(one, "-c", "import venv")), None)


def runs(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def call(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT))
    [file] = folder.glob("bigfs-*.whl")
    return file


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_the_wheel_runs_in_an_empty_environment(wheel, version, tmp_path):
    python = newest(version)
    if python is None:
        pytest.skip(f"there is no CPython {version}")
    call(python, "-m", "venv", str(tmp_path / "env"))
    binaries, quiet = tmp_path / "env" / "bin", ("--quiet", "--disable-pip-version-check")
    call(str(binaries / "pip"), "install", *quiet, f"{wheel}[flows]")
    assert call(str(binaries / "bigfs"), "--version").startswith("bigfs ")
    words = ("run", "synthetic:newswire?rows=400", "--features", "20", "--workers", "0")
    out = call(str(binaries / "bigfs"), *words, "--no-prefect", cwd=tmp_path)
    assert "sparge-lda" in out
    assert (tmp_path / "runs").exists()
    code = "import bigfs; print(bigfs.__file__)"
    assert str(tmp_path) in call(str(binaries / "python"), "-c", code, cwd=tmp_path)


@pytest.mark.nightly
def test_the_flows_of_the_wheel_load_beside_folders_of_the_users_own(wheel, tmp_path):
    """A worker starts in the folder of a project, whose flows often lie in `flows`."""
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "site")
    for name in ("flows", "storage"):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "__init__.py").write_text(
            "raise ImportError('not of bigfs')"
        )
    code = (
        "from prefect.flows import load_flow_from_entrypoint as load\n"
        "flow = load('bigfs.flows.prefect_flows.run', use_placeholder_flow=False)\n"
        "import bigfs; print(bigfs.__file__, flow.name)"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    out = call(sys.executable, "-c", code, cwd=tmp_path / "project", env=env)
    assert out.split()[-2:] == [str(tmp_path / "site" / "bigfs" / "__init__.py"), "bigfs"]
