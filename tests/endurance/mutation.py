"""Mutants of modules, and whether the tests of each module kill them.

python -m tests.endurance.mutation GROUP [FIRST LAST]    # the mutants FIRST to LAST of at most 40

A mutant differs from its module in one place of a function, but not in a message. Tests that start
processes or take long are left out. A fork runs those first that have killed most.
"""

import ast
import gc
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType

import numba
import pytest

ROOT = Path(__file__).parents[2]
MOST = 40  # mutants per group
LIMIT = 120  # seconds for the tests of a mutant
# the name of a group, its modules and their tests
LINES = """
result bigfs/result.py tests/bigfs/test_result.py
cutting_plane bigfs/cutting_plane/*.py tests/bigfs/cutting_plane tests/bigfs/selectors/*/*hinge.py
ridge bigfs/linalg/ridge/*.py tests/bigfs/linalg/test_ridge.py
rows bigfs/selectors/row_sparse/rows.py tests/bigfs/selectors/row_sparse/test_[rs]*.py
splits bigfs/evaluation/splits.py tests/bigfs/evaluation/test_splits.py
manifest storage/format/manifest.py tests/storage/format tests/storage/test_store*.py
writer storage/format/writer.py tests/storage/format tests/storage/test_store*.py
atomic storage/atomic.py tests/storage/test_atomic.py tests/storage/test_power_loss.py
plan flows/plan.py tests/flows/test_plan.py
"""
GROUPS = {name: patterns for name, *patterns in map(str.split, LINES.strip().splitlines())}
SWAPS = """Lt-LtE LtE-Lt Gt-GtE GtE-Gt Eq-NotEq NotEq-Eq Is-IsNot IsNot-Is In-NotIn NotIn-In Add-Sub
Sub-Add Mult-Div Div-Mult BitAnd-BitOr BitOr-BitAnd And-Or Or-And FloorDiv-Mult Mod-Mult Pow-Mult"""
OTHER = {getattr(ast, old): getattr(ast, new) for old, new in (s.split("-") for s in SWAPS.split())}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def change(node):
    """Return an attribute of a node with its value in a mutant, or None."""
    match node:
        case ast.Compare(ops=[op, *others]) if type(op) in OTHER:
            return "ops", [OTHER[type(op)](), *others]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            return "op", OTHER[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.UnaryOp(op=ast.USub()):
            return "op", ast.UAdd()
        case ast.Constant(value=int(value) | float(value)):
            return "value", not value if isinstance(value, bool) else value + 1
        case ast.Return(value=value) if value is not None:
            return "value", ast.Constant(None)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name("log")))):
            return None
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            return "__class__", ast.Pass


def places(tree):
    """Yield the nodes of functions that change, but for annotations and messages."""
    for function in [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]:
        todo = list(function.body)
        while todo:
            node = todo.pop()
            if not isinstance(node, ast.JoinedStr | FUNCTION | ast.ClassDef):
                if change(node) is not None:
                    yield node
                annotation = getattr(node, "annotation", None)
                todo += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def put(file, code):
    """Give the functions of a module their code of a mutant."""
    new, todo = {}, [code]
    while todo:
        inner = todo.pop()
        new[inner.co_qualname, inner.co_firstlineno] = inner
        todo += [const for const in inner.co_consts if isinstance(const, CodeType)]
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and (old := function.__code__).co_filename == file:
            function.__code__ = new.get((old.co_qualname, old.co_firstlineno), old)


class Loop:
    """The loop of pytest, over mutants."""

    def __init__(self, chosen, folder):
        self.chosen, self.folder, self.failed = chosen, folder, folder / "failed"
        self.ends, self.kills = Counter(), Counter()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.write_text(report.nodeid)
            os._exit(1)

    def fork(self, items, *mutant):
        """Run tests in a fork until one fails. Return how it ends, and the test that failed."""
        self.failed.write_text("")
        if pid := os.fork():
            return os.waitpid(pid, 0)[1], self.failed.read_text()
        try:
            os.chdir(self.folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if mutant:
                signal.alarm(LIMIT)
                put(*mutant)
            for item, after in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            os._exit(0)
        finally:
            os._exit(1)

    def pytest_runtestloop(self, session):
        status, failed = self.fork(session.items)
        assert status == 0, f"without a mutant fails {failed}"
        for file, number in self.chosen:
            tree = ast.parse(Path(file).read_bytes())
            node = list(places(tree))[number]
            words = f"{Path(file).name}:{node.lineno}: {ast.unparse(node)[:70]}  →  "
            setattr(node, *change(node))
            code = compile(ast.fix_missing_locations(tree), file, "exec")
            items = sorted(session.items, key=lambda item: -self.kills[item.nodeid])
            status, failed = self.fork(items, file, code)
            end = {0: "survived", signal.SIGALRM: "out of time"}.get(status, "killed")
            print(f"{end}: {words}{ast.unparse(node)[:70]}  {failed}", flush=True)
            self.ends[end] += 1
            self.kills[failed] += 1
        return True


def main(group, first=0, last=MOST):
    pattern, *patterns = GROUPS[group]
    modules = sorted(map(str, ROOT.glob(pattern)))
    tests = [str(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    found = [(m, i) for m in modules for i, _ in enumerate(places(ast.parse(Path(m).read_bytes())))]
    random.Random(0).shuffle(found)
    compiled = numba.njit

    def njit(*function, **options):  # functions with mutants are not compiled
        jit = compiled(*function, **options)
        return jit if function else lambda f: f if f.__code__.co_filename in modules else jit(f)

    numba.njit = njit
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(found[:MOST][int(first) : int(last)], Path(folder))
        options = ["-s", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        kinds = ["-m", "not process and not slow and not nightly"]
        pytest.main([*options, *kinds, *tests], plugins=[loop])
    print(f"{group}, mutants {first} to {last} of {len(found)}: {dict(loop.ends)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
