"""The wheel in an empty environment of each CPython that is here, outside the checkout."""

import os
import shutil
import subprocess
import sys
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
