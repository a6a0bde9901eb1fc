"""Count the functions that five things pass on their way through the project.

The functions of a journey are those of the project on the call stack whenever one of its ends is
called, lambdas too. Everything runs in one process. Another version is counted in its own folder.

python benchmarks/journeys.py [FOLDER]
"""

import contextlib
import io
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
PACKAGES = tuple(f"{ROOT / package}{os.sep}" for package in ("bigfs", "storage", "flows"))
sys.path.insert(0, str(ROOT))


def functions(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Module and name of the project's functions on a call stack, the innermost first."""
    while frame is not None:
        code = frame.f_code
        counted = code.co_name == "<lambda>" or "<" not in code.co_name
        if code.co_filename.startswith(PACKAGES) and counted:
            yield os.path.relpath(code.co_filename, ROOT), code.co_qualname
        frame = frame.f_back


def journey(action: Callable[[], object], ends: set[str]) -> dict[tuple[str, str], None]:
    """Distinct functions on the stacks of all calls of `ends`, in the order they are met."""
    passed: dict[tuple[str, str], None] = {}
    reached = set()

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            name = frame.f_code.co_qualname
            if hit := {end for end in ends if name == end or name.endswith(f".{end}")}:
                reached.update(hit)
                passed.update(dict.fromkeys(functions(frame)))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # of no use to typeshed
    if ends - reached:
        raise LookupError(f"no call of {', '.join(ends - reached)}")
    return passed


def command(*arguments: str) -> Callable[[], None]:
    def run() -> None:
        from flows.cli import main

        sys.argv = ["bigfs", *arguments, "--workers", "0"]
        with contextlib.suppress(SystemExit):
            main()

    return run


def fit_dask() -> None:
    import dask
    import dask.array as da
    import numpy as np

    from bigfs import SparGE

    X = np.abs(np.random.default_rng(0).normal(size=(60, 30)))
    with dask.config.set(scheduler="synchronous"):
        SparGE(n_features_to_select=5).fit(da.from_array(X, chunks=(20, 30)), np.arange(60) % 3)


def scheduled_run() -> None:
    from prefect.testing.utilities import prefect_test_harness

    from flows.pipeline import pipeline

    with prefect_test_harness(server_startup_timeout=120):
        pipeline("rows.svm", features=5, store="rows.zarr", out="three", engine={"workers": 0})


def main() -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    os.chdir(tempfile.mkdtemp())
    rows = [
        f"{i % 3} " + " ".join(f"{c + 1}:{rng.random():.3f}" for c in range(i % 3, 39, 3))
        for i in range(60)
    ]
    Path("rows.svm").write_text("\n".join(rows) + "\n")
    select = ("select", "rows.zarr", "--features", "5", "--out")
    for name, action, ends in (
        (
            "a row becomes part of a chunk",
            command("stage", "rows.svm", "rows.zarr"),
            {"Svmlight.read", "write_block", "write_rows"},
        ),
        (
            "a column becomes a line of selected.csv",
            command(*select, "one"),
            {"ColumnTile.load", "eliminate", "Run.write_table"},
        ),
        (
            "--set gamma=0.5 reaches the solver",
            command(*select, "two", "--set", "gamma=0.5"),
            {"parse_parameters", "_problem"},
        ),
        ("a Dask array goes into fit", fit_dask, {"load", "Matrix.from_dask"}),
        ("a scheduled run to its artifact", scheduled_run, {"show_selection"}),
    ):
        passed = journey(action, ends)
        print(f"{name}: {len(passed)} functions in {len({file for file, _ in passed})} modules")
        for file, function in passed:
            print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
