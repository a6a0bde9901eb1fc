"""The records that ``where=`` keeps: a condition on their fields, evaluated by Arrow.

It is written as in Python, ``lang == 'en' and (score > 0.5 or checked)``, and nothing else of
Python is known. A comparison with a missing value is neither true nor false, as in SQL, and a
record is kept if its condition is true.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa
from bigfs.storage.sources.base import shorten
from bigfs.storage.sources.tables.columns import as_numbers, is_text

COMPARISONS = {
    **{ast.Eq: "equal", ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal"},
    **{ast.Gt: "greater", ast.GtE: "greater_equal"},
}
EXAMPLE = "write it as in lang == 'en' and (score > 0.5 or column('my score') is null)"
CONSTANTS = {"null": None, "true": True, "false": False}


@dataclass(frozen=True)
class Literal:
    """A number, a text, a Boolean, None, or a list of them."""

    value: Any


class Condition:
    """A condition of `where=`, and the names of the fields in it."""

    def __init__(self, text: str) -> None:
        try:
            self.tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SourceError(f"where= cannot be read, {shorten(text)}: {EXAMPLE}") from error
        names: dict[str, None] = {}
        # a first evaluation of no records refuses unknown names, and asks for the fields
        _truth(self.tree, lambda name: (names.setdefault(name), pa.nulls(0))[1])
        self.fields = tuple(names)

    def __str__(self) -> str:
        return ast.unparse(self.tree)

    def truth(self, field: Callable[[str], Any], place: object) -> Any:
        """Return an Arrow array of Booleans, by a function that returns a field by its name."""
        try:
            return _truth(self.tree, field).fill_null(False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(
                f"{place} …: where={self} cannot be evaluated: {str(error).splitlines()[0]}"
            ) from error


def _truth(node: ast.expr, field: Callable[[str], Any]) -> Any:
    """Evaluate a condition to an array of Booleans, null where nobody knows."""
    match node:
        case ast.BoolOp(op=op, values=values):
            combine = compute.and_kleene if isinstance(op, ast.And) else compute.or_kleene
            return functools.reduce(combine, [_truth(value, field) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return compute.invert(_truth(operand, field))
        case ast.Compare(left=left, ops=ops, comparators=others):
            operands = [_operand(each, field) for each in (left, *others)]
            return functools.reduce(
                compute.and_kleene,
                [_compare(*pair) for pair in zip(operands, ops, operands[1:], strict=False)],
            )
    value = _operand(node, field)
    if isinstance(value, Literal):
        raise SourceError(f"where= has {ast.unparse(node)} in place of a condition: {EXAMPLE}")
    return _compare(value, ast.Eq(), Literal(True))


def _operand(node: ast.expr, field: Callable[[str], Any]) -> Any:
    """Return the field that a name or ``column('a name')`` stands for, or a literal."""
    match node:
        case ast.Name(id=name):
            return Literal(CONSTANTS[name]) if name in CONSTANTS else field(name)
        case ast.Call(
            func=ast.Name(id="column"), args=[ast.Constant(value=str(name))], keywords=[]
        ):
            return field(name)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [_operand(element, field) for element in elements]
            if all(isinstance(item, Literal) for item in items):
                return Literal([item.value for item in items])
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return Literal(-number)
        case ast.Constant(value=str() | int() | float() | None as value):
            return Literal(value)
    raise SourceError(f"where= does not know {shorten(ast.unparse(node))}: {EXAMPLE}")


def _compare(left: Any, op: ast.cmpop, right: Any) -> Any:
    """Compare a field with a literal or another field, where both are known."""
    if isinstance(left, Literal):
        flipped = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
        kind = type(op)
        if isinstance(right, Literal) or kind not in COMPARISONS:
            raise SourceError(f"where= needs a column in each comparison: {EXAMPLE}")
        return _compare(right, flipped.get(kind, kind)(), left)
    if isinstance(op, ast.Is | ast.IsNot):
        if not isinstance(right, Literal) or right.value is not None:
            raise SourceError(f"where= knows is null and is not null only: {EXAMPLE}")
        return compute.is_null(left) if isinstance(op, ast.Is) else compute.is_valid(left)
    if isinstance(op, ast.In | ast.NotIn):
        if not isinstance(right, Literal) or not isinstance(right.value, list):
            raise SourceError("where= needs a list after in, such as lang in ('en', 'de')")
        some = [_compare(left, ast.Eq(), Literal(value)) for value in right.value]
        is_missing = compute.is_null(left)
        is_in = compute.if_else(
            is_missing, None, functools.reduce(compute.or_kleene, some, is_missing)
        )
        return is_in if isinstance(op, ast.In) else compute.invert(is_in)
    return getattr(compute, COMPARISONS[type(op)])(*_alike(left, right, type(op)))


def _alike(left: Any, right: Any, op: type[ast.cmpop]) -> tuple[Any, Any]:
    """Return both sides of a comparison in types that Arrow compares."""
    if not isinstance(right, Literal):
        left, right = _typed(left, right.type), _typed(right, left.type)
        if is_text(left) and is_text(right) and op not in (ast.Eq, ast.NotEq):
            raise SourceError("where= does not order two columns of texts, such as those of CSV")
        is_mixed = is_text(left) != is_text(right)
        return (as_numbers(left), as_numbers(right)) if is_mixed else (left, right)
    value = right.value
    if isinstance(value, list) or value is None:
        raise SourceError("where= compares with one value: use is null, or in and a list")
    if isinstance(value, str):
        if is_text(left) or pa.types.is_null(left.type):
            return left.cast(pa.large_string()), value
        return left, pa.scalar(value).cast(left.type)  # a date, for example
    is_number = pa.types.is_integer(left.type) or pa.types.is_floating(left.type)
    return left if is_number else as_numbers(left), int(
        value
    ) if value is True or value is False else value


def _typed(values: Any, other: Any) -> Any:
    """Return a field of which all values are missing with the type of another."""
    if not pa.types.is_null(values.type):
        return values
    return values.cast(pa.float64() if pa.types.is_null(other) else other)
