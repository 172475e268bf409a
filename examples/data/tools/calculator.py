"""Arithmetic, by walking the syntax tree: nothing is ever evaluated as Python."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

LONGEST = 500
"""Characters of an expression."""

LARGEST_BITS = 4096
"""Of a whole number on the way to the result; some 1,200 digits."""

NOT_ARITHMETIC = (
    "This is not an arithmetic expression: {}. It may have numbers, operators, functions and "
    "parentheses, but no units and no other words; convert_units converts units."
)

Number = int | float


def calculate(expression: str) -> str:
    """Calculate an arithmetic expression exactly.

    Knows + - * / // % ** and parentheses, the functions abs, round, min, max, sqrt, exp, log,
    log10, log2, sin, cos, tan, asin, acos, atan, radians, degrees, floor, ceil, factorial, gcd,
    and the numbers pi, e and tau. Angles are in radians.

    Args:
        expression: The numbers and what is done with them, in one line.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"The expression is longer than {LONGEST} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _value(tree.body)
    except SyntaxError as error:
        raise ValueError(NOT_ARITHMETIC.format(error.msg)) from None
    except (RecursionError, MemoryError):
        raise ValueError("The expression is nested too deeply.") from None
    except ZeroDivisionError:
        raise ValueError("Division by zero.") from None
    except OverflowError:
        raise ValueError("The result is too large.") from None
    return str(value) if isinstance(value, int) else format(value, ".15g")


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _checked(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _checked(_OPERATORS[type(op)](_value(left), _value(right)))
        case ast.BinOp(op=ast.BitXor()):
            raise ValueError("'^' is not a power here; write '**'.")
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _call(name, [_value(argument) for argument in arguments])
    raise ValueError(NOT_ARITHMETIC.format(f"{ast.unparse(node)!r} is not allowed"))


def _call(name: str, arguments: list[Number]) -> Number:
    try:
        return _checked(_FUNCTIONS[name](*arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}.") from None


def _checked(value: Number | complex) -> Number:
    if isinstance(value, complex):
        raise ValueError("The result is not a real number.")  # noqa: TRY004 - a value of no use
    if isinstance(value, int):
        if value.bit_length() > LARGEST_BITS:
            raise OverflowError
    elif not math.isfinite(value):
        raise OverflowError
    return value


def _power(base: Number, exponent: Number) -> Number | complex:
    # Looked at before it is done: 9**9**9 would keep a processor busy for ever.
    whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if whole and int(base).bit_length() * exponent > 2 * LARGEST_BITS:
        raise OverflowError
    result: Number | complex = base**exponent
    return result


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or not -20 <= digits <= 20:
        raise ValueError("digits must be a whole number from -20 to 20")
    return round(number, digits) if digits else round(number)


def _factorial(number: Number) -> int:
    if not isinstance(number, int) or not 0 <= number <= 500:
        raise ValueError("needs a whole number from 0 to 500")
    return math.factorial(number)


_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number | complex]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    "factorial": _factorial,
    "gcd": math.gcd,
    **{
        name: getattr(math, name)
        for name in (
            *("sqrt", "exp", "log", "log10", "log2", "floor", "ceil", "radians", "degrees"),
            *("sin", "cos", "tan", "asin", "acos", "atan"),
        )
    },
}
