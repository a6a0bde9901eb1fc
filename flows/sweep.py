"""A sweep: methods × feature counts × parameters on one corpus.

The corpus is staged once, and its graph is built once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.states import State
from sklearn.model_selection import ParameterGrid

import storage
from bigfs.metrics import DEFAULT_METRICS
from flows import job, selection, tasks
from flows import parameters as form
from flows.options import Engine, Staging
from flows.pipeline import (
    SKIPPED,
    exclusive_on_cluster,
    skip_if_busy,
)
from flows.reuse import digest, source_name
from flows.serve_limits import require_allowed
from storage import atomic
from storage.runs import Run, require_out, write_csv

COLUMNS = ["run", "method", "features", "parameters", "accuracy", "seconds", "status", "error"]


class Cell(NamedTuple):
    """One run of a sweep."""

    method: str
    features: int
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """Directory name of the run; it differs for other parameters."""
        return f"{self.method}-{self.features}" + (
            f"-{digest(self.parameters)[:8]}" if self.parameters else ""
        )


Counts = Annotated[
    list[form.Features], form.form_field("Numbers of features to select", min_length=1)
]
Grid = Annotated[
    dict[str, dict[str, list[Any]]] | None,
    form.form_field(
        'Values to try, per method and parameter: {"sparge-lda": {"gamma": [0.5, 1, 2]}}'
    ),
]


@flow(name="sweep", flow_run_name="sweep of {source}")
def sweep(
    source: form.Source,
    methods: form.Methods,
    features: Counts,
    grid: Grid = None,
    store: form.StoreOrDefault = None,
    out: form.Out = None,
    settings: Staging | None = None,
    engine: Engine | None = None,
    overlap: form.Overlap = "wait",
    fresh: form.Fresh = False,
    timeout: form.Timeout = tasks.DAY,
) -> "str | State[str]":
    """Run every method with every number of features and all values of its parameters.

    Each cell of the sweep is a run with a directory of its own, and `sweep.csv` compares them. The
    source is staged once. A cell that fails is a row with its error, and fails the sweep at its
    end.

    Parameters
    ----------
    source : str
        Path, URL, or name that `bigfs datasets` lists.
    methods : list of str
        Methods, as `bigfs methods` lists them.
    features : list of int
        Numbers of features to keep.
    grid : dict or None, default=None
        Values to try, by method and parameter, as in ``{"sparge-lda": {"gamma": [0.5, 1, 2]}}``.
    store : str or None, default=None
        Path or URL of the store. None takes the name by the source's name and content.
    out : str or None, default=None
        Directory of the sweep. None takes a name in ``runs/``.
    settings : Staging or None, default=None
        How the source is staged. None takes the defaults of `storage.stage`.
    engine : Engine or None, default=None
        Where the work is done. None starts a process per core on this machine.
    overlap : {"wait", "skip"}, default="wait"
        What to do while another run works on the same store or directory.
    fresh : bool, default=False
        Whether to select, evaluate and report again even if the result exists.
    timeout : float, default=86400
        Seconds that one stage may take.

    Returns
    -------
    str or State
        Directory of the sweep, or the state `Skipped`.

    Raises
    ------
    ValueError
        A cell failed, or the grid names a method that the sweep does not run.

    See Also
    --------
    flows.pipeline.pipeline : One run.
    """
    settings, engine = settings or Staging(), engine or Engine()
    require_allowed(engine, source, store, out, *settings.files)
    folder = Path(out or f"runs/{source_name(source)}-sweep")
    options = job.StepOptions(fresh, timeout, engine.staging_memory)
    runs = list(make_cells(methods, features, grid or {}))
    require_table(folder / "sweep.csv")
    for cell in runs:
        selection.require_parameters(cell.method, cell.features, cell.parameters)
        require_out(folder / cell.name)
    store_plan = job.plan_store(source, store, settings)
    with skip_if_busy(), exclusive_on_cluster([store_plan.uri, str(folder)], overlap, engine):
        staged = job.stage_source(tasks.do_task, store_plan, source, settings, options)
        rows = [
            run_cell(store_plan.uri, store_plan.key, folder, cell, staged, options) for cell in runs
        ]
        _write_table(folder, rows)
        create_table_artifact(
            rows,
            key="sweep",
            description=f"Sweep of {source}: scores with all selected features",
        )
        failed = [row for row in rows if row["error"]]
        if failed:
            raise ValueError(
                f"{len(failed)} of {len(rows)} runs "
                f"failed: " + "; ".join(f"{row['run']}: {row['error']}" for row in failed)
            )
        return str(folder)
    return SKIPPED


def make_cells(
    methods: list[str], features: list[int], grid: dict[str, dict[str, list[Any]]]
) -> Iterator[Cell]:
    unknown = set(grid) - set(methods)
    if unknown:
        raise ValueError(
            f"the grid names {', '.join(sorted(unknown))}, which is not among "
            f"the methods of the sweep: add it to methods"
        )
    for method in methods:
        for parameters in ParameterGrid(grid.get(method, {})):
            for count in features:
                yield Cell(method, count, parameters)


def run_cell(
    store: str,
    content: str,
    folder: Path,
    cell: Cell,
    staged: dict[str, Any],
    options: job.StepOptions,
) -> dict[str, Any]:
    """Run a cell and return its row of sweep.csv."""
    row: dict[str, Any] = {
        "run": cell.name,
        "method": cell.method,
        "features": cell.features,
        "parameters": str(cell.parameters or ""),
    }
    row |= dict.fromkeys(DEFAULT_METRICS[storage.open(store).spec["target"] or "class"])
    try:
        path = job.run_steps(
            tasks.do_task,
            store,
            content,
            str(folder / cell.name),
            cell.method,
            cell.features,
            cell.parameters,
            [staged],
            options,
        )
    except (ValueError, MemoryError) as error:
        return {**row, "seconds": None, "status": "", "error": " ".join(str(error).split())}
    about = Run.open(path).metadata
    own_points = [
        p
        for p in about["curves"]
        if p["method"] == cell.method and p["n_features"] == cell.features
    ]
    row |= {
        key: value
        for point in own_points
        for key, value in point.items()
        if key in row and key != "method"
    }
    seconds = next(s["seconds"] for s in about["stages"] if s["stage"] == "select")
    return {**row, "seconds": seconds, "status": about["status"], "error": ""}


def require_table(file: Path) -> None:
    """Refuse to overwrite a file that no sweep wrote."""
    if file.exists() and (
        not file.is_file() or file.read_bytes().split(b"\r\n")[0] != ",".join(COLUMNS).encode()
    ):
        raise atomic.name_taken(file)


def _write_table(folder: Path, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with atomic.write(folder / "sweep.csv") as part:
        write_csv(part, COLUMNS, (list(row.values()) for row in rows))
