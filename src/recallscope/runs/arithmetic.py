"""Formulas of grids: `4 * num_facts`, `60 / num_layers`, `state_dim > embed_dim`. Numbers and fields only.

The text is parsed, never run: the syntax tree is walked, and whatever is not on the lists below is refused by name.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Value = int | float | str | bool

LONGEST = 200  # characters; a longer text is no formula of a grid
LARGEST = 1e15  # any number beyond is a slip, and would only cost time
MOST_DIGITS = 15  # of round


def _rounded(value: float, digits: int = 0) -> float:
    """round, with as many digits as a number has: Python's takes 10^digits of any size, and for ever."""
    if digits != int(digits) or abs(digits) > MOST_DIGITS:
        raise ValueError(f"round(..., {digits}): from -{MOST_DIGITS} to {MOST_DIGITS} digits are taken")
    return round(value, int(digits)) if digits else round(value)


_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_CALL: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "round": _rounded,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
}


def calculate(text: str, fields: Mapping[str, Any]) -> Value:
    """The value of a formula over the fields of a run, or a ValueError that names what is wrong with it."""
    try:
        return _walk(parsed(text).body, fields)
    except (ArithmeticError, TypeError, ValueError) as error:
        shown = ", ".join(f"{name}={fields[name]!r}" for name in names_in(text) if name in fields)
        raise ValueError(f"{text!r} cannot be calculated{' for ' + shown if shown else ''}: {error}.") from error


@lru_cache(maxsize=1000)
def parsed(text: str) -> ast.Expression:
    """The syntax tree of a formula, checked for length and grammar."""
    if len(text) > LONGEST:
        raise ValueError(
            f"a formula of {len(text)} characters: at most {LONGEST} are taken. Split it into several fields."
        )
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error)
        raise ValueError(
            f"{text!r} is not a formula ({reason}). Write such as 4 * num_facts, or state_dim > embed_dim."
        ) from error


def names_in(text: str) -> list[str]:
    """The fields a formula uses, in order, without the functions."""
    nodes = list(ast.walk(parsed(text)))
    prefixes = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    names = [_name(node) for node in nodes if id(node) not in prefixes]
    return list(dict.fromkeys(name for name in names if name and name not in _CALL))


def _name(node: ast.AST) -> str | None:
    """A name, `state_dim`, or one with its part, `model.width`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=part), attr=name):
            return f"{part}.{name}"
    return None


def _walk(node: ast.AST, fields: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return _checked(value)
        case ast.Name() | ast.Attribute(value=ast.Name()):
            name = str(_name(node))
            if name not in fields:
                known = sorted(name for name in fields if "." not in name)
                raise ValueError(f"{name!r} has no value here (known: {', '.join(known)})")
            return fields[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _number(_walk(left, fields)), _number(_walk(right, fields))
            return _checked(_BINARY[type(op)](a, b))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(_walk(operand, fields))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _walk(operand, fields)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_walk(value, fields) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_walk(value, fields) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
            sides = [_walk(side, fields) for side in (left, *rights)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALL:
            return _checked(_CALL[name](*(_number(_walk(argument, fields)) for argument in arguments)))
        case _:
            raise ValueError(
                f"{ast.unparse(node)!r} is not arithmetic: + - * / // %, comparisons, and/or/not, {', '.join(_CALL)}"
            )


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return value


def _checked(value: Any) -> Any:
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"{value:.3g} is beyond {LARGEST:.0e}")
    return value
