"""Mutants of modules, and whether the tests of each module kill them.

python -m tests.endurance.mutation GROUP [FIRST LAST]    # the mutants FIRST to LAST of at most 40

A mutant differs from its module in one place: a comparison, an operator, a Boolean, a constant, a
value that is returned, or a statement that is dropped. Messages stay, and so do the constants of
modules, which are settings. Each mutant runs in a fork, on a copy of the packages, until its first
failure or a time limit. Tests that start processes or take long are left out.
"""

import ast
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST, SEED = 40, 0  # mutants per group
FORMAT_TESTS = "tests/storage/format tests/storage/test_store.py tests/storage/test_store_append.py"
ROW_TESTS = " ".join(
    f"tests/bigfs/selectors/row_sparse/test_{name}.py" for name in ("rounds", "row_sparse", "rfs")
)
# the modules of a group, and their tests
GROUPS = {
    "result": ("bigfs/result.py", "tests/bigfs/test_result.py"),
    "cutting_plane": ("bigfs/cutting_plane/*.py", "tests/bigfs/cutting_plane"),
    "ridge": ("bigfs/linalg/ridge/*.py", "tests/bigfs/linalg/test_ridge.py"),
    "rows": ("bigfs/selectors/row_sparse/rows.py", ROW_TESTS),
    "splits": ("bigfs/evaluation/splits.py", "tests/bigfs/evaluation/test_splits.py"),
    "manifest": ("storage/format/manifest.py", FORMAT_TESTS),
    "writer": ("storage/format/writer.py", FORMAT_TESTS),
    "atomic": (
        "storage/atomic.py",
        "tests/storage/test_atomic.py tests/storage/test_power_loss.py",
    ),
    "plan": ("flows/plan.py", "tests/flows/test_plan.py"),
}
PAIRS = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr)),
    *((ast.And, ast.Or), (ast.FloorDiv, ast.Mult), (ast.Mod, ast.Mult), (ast.Pow, ast.Mult)),
]
SWAPS = {new: old for old, new in reversed(PAIRS)} | dict(PAIRS)


def places(tree):
    """Yield the nodes inside functions, without annotations and messages."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    todo = [statement for function in functions for statement in function.body]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.ClassDef):
            yield node
            annotation = getattr(node, "annotation", None)
            todo += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def change(node):
    """Return what stands in the place of a node in a mutant, or None."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in SWAPS:
            return ast.Compare(node.left, [SWAPS[type(op)](), *node.ops[1:]], node.comparators)
        case ast.BinOp(op=op) if type(op) in SWAPS:
            return ast.BinOp(node.left, SWAPS[type(op)](), node.right)
        case ast.BoolOp(op=op):
            return ast.BoolOp(SWAPS[type(op)](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value + 1)
        case ast.Return(value=value) if value is not None:
            return ast.Return(ast.Constant(None))
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            return ast.Pass()
    return None


def mutants(pattern):
    """Return some mutants of modules: the file, its line, its bytes, what was there and what is."""
    found = []
    for file in sorted(ROOT.glob(pattern)):
        raw = file.read_bytes()
        lines = raw.splitlines(keepends=True)
        starts = [sum(map(len, lines[:i])) for i in range(len(lines))]
        for node in places(ast.parse(raw)):
            if (new := change(node)) is not None:
                first = starts[node.lineno - 1] + node.col_offset
                last = starts[node.end_lineno - 1] + node.end_col_offset
                text = ast.unparse(ast.fix_missing_locations(new)).encode()
                text = text if isinstance(new, ast.stmt) else b"(" + text + b")"
                words = [" ".join(part.decode().split()) for part in (raw[first:last], text)]
                path = file.relative_to(ROOT)
                found.append((path, node.lineno, raw[:first] + text + raw[last:], *words))
    random.Random(SEED).shuffle(found)
    return found[:MOST]


def passes(folder, tests, limit):
    """Return whether tests pass in a fork within some seconds."""
    if (pid := os.fork()) == 0:
        os.setsid()
        os.chdir(folder)
        sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("bigfs", "tests")]:
            del sys.modules[name]
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        kinds = "not process and not slow and not nightly"
        os._exit(pytest.main(["-x", "-p", "no:cacheprovider", "-m", kinds, *tests.split()]))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def main(group, first=0, last=MOST):
    importlib.import_module("bigfs.flows.cli.app")  # its libraries serve all forks
    pattern, tests = GROUPS[group]
    chosen = mutants(pattern)[int(first) : int(last)]
    with tempfile.TemporaryDirectory() as folder:
        for name, place in (("bigfs", ""), ("storage", "bigfs"), ("flows", "bigfs"), ("tests", "")):
            shutil.copytree(ROOT / name, Path(folder, place, name))
        shutil.copy(ROOT / "pyproject.toml", folder)
        start, killed = time.monotonic(), 0
        assert passes(folder, tests, 600), "the tests fail without a mutant"
        limit = 20 + 3 * (time.monotonic() - start)
        for file, line, mutant, old, new in chosen:
            place = Path(folder, "" if file.parts[0] == "bigfs" else "bigfs", file)
            whole = place.read_bytes()
            place.write_bytes(mutant)
            is_killed = not passes(folder, tests, limit)
            killed += is_killed
            if not is_killed:
                print(f"{file}:{line}: {old[:70]}  →  {new[:70]}", flush=True)
            place.write_bytes(whole)
    print(f"{group}: {killed} of the mutants {first} to {last} killed, of {len(chosen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
