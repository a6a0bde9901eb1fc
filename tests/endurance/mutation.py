"""Mutants of modules, and whether the tests of each module kill them.

python -m tests.endurance.mutation GROUP [FIRST LAST]    # the mutants FIRST to LAST of at most 40

A mutant differs from its module in one place: a comparison, an operator, a Boolean, a constant, a
value that is returned, or a statement that is dropped. Messages and logs stay, and so do the
constants of modules, which are settings. The tests are collected once. A fork gives the functions
of a mutant their new code and runs the tests that call its function, those that have killed most
first, until one fails or a time limit. Tests that start processes or take long are left out.
"""

import ast
import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path
from types import CodeType, FunctionType

import numba
import pytest

ROOT = Path(__file__).parents[2]
MOST, SEED = 40, 0  # mutants per group
LIMIT = 120  # seconds for the tests of a mutant
KINDS = "not process and not slow and not nightly"
# the name of a group, its modules and their tests
LINES = """
result bigfs/result.py tests/bigfs/test_result.py
cutting_plane bigfs/cutting_plane/*.py tests/bigfs/cutting_plane tests/bigfs/selectors/*/*hinge.py
ridge bigfs/linalg/ridge/*.py tests/bigfs/linalg/test_ridge.py
rows bigfs/selectors/row_sparse/rows.py tests/bigfs/selectors/row_sparse/test_[rs]*.py
splits bigfs/evaluation/splits.py tests/bigfs/evaluation/test_splits.py
manifest storage/format/manifest.py tests/storage/format tests/storage/test_store.py
writer storage/format/writer.py tests/storage/format tests/storage/test_store.py
atomic storage/atomic.py tests/storage/test_atomic.py tests/storage/test_power_loss.py
plan flows/plan.py tests/flows/test_plan.py
"""
GROUPS = {name: patterns for name, *patterns in map(str.split, LINES.strip().splitlines())}
PAIRS = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr)),
    *((ast.And, ast.Or), (ast.FloorDiv, ast.Mult), (ast.Mod, ast.Mult), (ast.Pow, ast.Mult)),
]
SWAPS = {new: old for old, new in reversed(PAIRS)} | dict(PAIRS)
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def change(node):
    """Return an attribute of a node with its value in a mutant, or None."""
    match node:
        case ast.Compare(ops=[op, *others]) if type(op) in SWAPS:
            return "ops", [SWAPS[type(op)](), *others]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            return "op", SWAPS[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.UnaryOp(op=ast.USub()):
            return "op", ast.UAdd()
        case ast.Constant(value=bool(value)):
            return "value", not value
        case ast.Constant(value=int(value) | float(value)):
            return "value", value + 1
        case ast.Return(value=value) if value is not None:
            return "value", ast.Constant(None)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name("log")))):
            return None
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            return "__class__", ast.Pass
    return None


def places(tree):
    """Yield the nodes that change, without those of annotations and messages, and the first line of
    their functions."""
    for function in [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]:
        start = min(node.lineno for node in (function, *function.decorator_list))
        todo = list(function.body)
        while todo:
            node = todo.pop()
            if not isinstance(node, ast.JoinedStr | FUNCTION | ast.ClassDef):
                if change(node) is not None:
                    yield node, start
                annotation = getattr(node, "annotation", None)
                todo += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def mutant(file, number):
    """Return the code of a mutant, the first line of its function, and what was there and is."""
    tree = ast.parse(Path(file).read_bytes())
    node, start = list(places(tree))[number]
    words = f"{Path(file).name}:{node.lineno}: {ast.unparse(node)[:70]}  →  "
    setattr(node, *change(node))
    code = compile(ast.fix_missing_locations(tree), file, "exec")
    return code, f"{file}:{start}", words + ast.unparse(node)[:70]


def codes(code):
    """Yield the codes of the functions in a code."""
    for inner in (const for const in code.co_consts if isinstance(const, CodeType)):
        yield inner
        yield from codes(inner)


def put(file, code):
    """Give the functions of a module their code."""
    new = {(inner.co_qualname, inner.co_firstlineno): inner for inner in codes(code)}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == file:
            old = function.__code__
            function.__code__ = new.get((old.co_qualname, old.co_firstlineno), old)


class Loop:
    """The loop of pytest, over mutants."""

    def __init__(self, files, chosen, folder):
        self.files, self.chosen, self.folder, self.killed = files, chosen, folder, 0
        self.calls, self.now, self.report = defaultdict(list), set(), folder / "report"

    def trace(self, frame, *_):
        if (code := frame.f_code).co_filename in self.files:
            self.now.add(f"{code.co_filename}:{code.co_firstlineno}")

    def pytest_runtest_logreport(self, report):
        """Note what a test called. What its fixtures call serves all tests of its file."""
        if report.failed:
            self.report.write_text(report.nodeid)
            os._exit(1)
        self.calls[report.fspath if report.when == "setup" else report.nodeid] += self.now
        self.now.clear()

    def passes(self, items, limit, *mutant):
        """Return whether tests pass in a fork within some seconds, and what it reports."""
        if not (pid := os.fork()):
            try:
                signal.alarm(limit)
                os.chdir(self.folder)
                for stream in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
                if mutant:
                    put(*mutant)
                else:
                    threading.settrace(self.trace)
                    sys.settrace(self.trace)
                for item, after in zip(items, [*items[1:], None], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                self.report.write_text(json.dumps(self.calls))
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0, self.report.read_text()

    def pytest_runtestloop(self, session):
        passed, report = self.passes(session.items, 5 * LIMIT)
        assert passed, f"without a mutant fails {report}"
        calls, kills = json.loads(report), Counter()
        for file, number in self.chosen:
            code, function, words = mutant(file, number)
            keys = {key for key in calls if function in calls[key]}
            items = [item for item in session.items if {item.nodeid, item.location[0]} & keys]
            items.sort(key=lambda item: -kills[item.nodeid])
            passed, report = self.passes(items, LIMIT, file, code)
            print(f"{words}  ({len(items)} tests)" if passed else "killed", flush=True)
            self.killed += not passed
            kills[report] += 1
        return True


def main(group, first=0, last=MOST):
    pattern, *patterns = GROUPS[group]
    modules = sorted(map(str, ROOT.glob(pattern)))
    tests = [str(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    found = [(m, i) for m in modules for i, _ in enumerate(places(ast.parse(Path(m).read_bytes())))]
    random.Random(SEED).shuffle(found)
    chosen, compiled = found[:MOST][int(first) : int(last)], numba.njit

    def njit(*functions, **options):  # functions with mutants are not compiled
        if not functions:
            return lambda function: njit(function, **options)
        is_mutated = functions[0].__code__.co_filename in modules
        return functions[0] if is_mutated else compiled(*functions, **options)

    numba.njit = njit
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(modules, chosen, Path(folder))
        options = ["-s", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", "-m", KINDS]
        pytest.main([*options, *tests], plugins=[loop])
    print(f"{group}: {loop.killed} killed of the {len(chosen)} mutants {first} to {last}")


if __name__ == "__main__":
    main(*sys.argv[1:])
