"""Whether a limit holds, for single plans and for arrays of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from optplan.models.expression.tree import (
    And,
    Binary,
    Comparison,
    Condition,
    Greatest,
    Least,
    Name,
    Negative,
    Not,
    Number,
    Operation,
    Or,
    Relation,
    Value,
)

# An array holds either floats or Python's own integers and fractions, which never wrap around.
_Values = int | float | Fraction | NDArray[Any]
_Truths = bool | NDArray[np.bool_]

_RELATIONS: Final[Mapping[Relation, Callable[[Any, Any], Any]]] = {
    Relation.EQUAL: operator.eq,
    Relation.UNEQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.AT_MOST: operator.le,
    Relation.MORE: operator.gt,
    Relation.AT_LEAST: operator.ge,
}
_OPERATIONS: Final[Mapping[Operation, Callable[[Any, Any], Any]]] = {
    Operation.SUM: operator.add,
    Operation.DIFFERENCE: operator.sub,
    Operation.PRODUCT: operator.mul,
    Operation.QUOTIENT: operator.floordiv,
    Operation.REMAINDER: operator.mod,
}


def evaluate(
    node: Condition, values: Mapping[str, int | float | np.generic | NDArray[Any]]
) -> bool | NDArray[np.bool_]:
    """
    Tell whether the condition holds, elementwise where values are arrays.

    Arithmetic on whole numbers is exact, also beyond 64 bits.  Decimals are exact fractions until
    they meet a float.  A comparison whose value divides by zero is False where it does, whichever
    way it compares; `not` of it is then True, as usual in constraint languages.

    Parameters
    ----------
    node
        What `parse` returned.
    values
        A number or an array for every name in ``names(node)``; arrays are broadcast.  Words are
        given as their codes.

    Returns
    -------
    bool or ndarray of bool
        A plain truth value if no array with a dimension took part.
    """
    match node:
        case Comparison(relation, left, right):
            undefined: list[_Truths] = []
            sides = _level(_number(left, values, undefined), _number(right, values, undefined))
            holds = _plain(_RELATIONS[relation](*sides))
            return reduce(lambda truth, zero: _plain(np.greater(truth, zero)), undefined, holds)
        case And(parts):
            every = (evaluate(part, values) for part in parts)
            return reduce(lambda a, b: _plain(np.logical_and(a, b)), every)
        case Or(parts):
            every = (evaluate(part, values) for part in parts)
            return reduce(lambda a, b: _plain(np.logical_or(a, b)), every)
        case Not(part):
            return _plain(np.logical_not(evaluate(part, values)))


def amount_of(
    node: Value, values: Mapping[str, int | float | np.generic | NDArray[Any]]
) -> int | float | Fraction | NDArray[Any]:
    """
    Compute a value, elementwise where values are arrays.

    Parameters
    ----------
    node
        A value that cannot divide by zero, such as `parse_time` returns.
    values
        A number or an array for every name in ``names(node)``; arrays are broadcast.

    Returns
    -------
    int, float, Fraction or ndarray
        Exact where the values are whole; an array then holds Python's own numbers.
    """
    return _number(node, values, [])


def _plain(truth: Any) -> _Truths:
    """Turn NumPy's scalar truth into Python's."""
    return truth if isinstance(truth, np.ndarray) else bool(truth)


def _number(node: Value, values: Mapping[str, Any], undefined: list[_Truths]) -> _Values:
    """Compute a value, and note in `undefined` where it divided by zero."""
    match node:
        case Number(value, _):
            return value
        case Name(name):
            return _given(values[name])
        case Negative(part):
            return -_number(part, values, undefined)
        case Binary(operation, left, right):
            one, other = _level(*(_number(part, values, undefined) for part in (left, right)))
            if operation in (Operation.QUOTIENT, Operation.REMAINDER):
                zero: Any = other == 0
                if np.any(zero):
                    undefined.append(zero)
                    other = np.where(zero, 1, other) if isinstance(other, np.ndarray) else 1
            result: _Values = _OPERATIONS[operation](one, other)
            return result
        case Least(parts) | Greatest(parts):
            least = isinstance(node, Least)
            several = (_number(part, values, undefined) for part in parts)
            return reduce(lambda a, b: _extreme(least, *_level(a, b)), several)


def _given(value: Any) -> _Values:
    """Turn what the caller gave into what does not wrap around."""
    array = np.asarray(value)
    if array.ndim:
        return array.astype(np.float64 if array.dtype.kind == "f" else object)
    scalar: _Values = value.item() if isinstance(value, np.ndarray | np.generic) else value
    return scalar


def _extreme(least: bool, one: _Values, other: _Values) -> _Values:
    """Return the lesser or the greater of two, elementwise; two scalars stay Python's own."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        function: Callable[..., _Values] = np.minimum if least else np.maximum
        return function(one, other)
    return one if (one < other) is least else other


def _level(one: _Values, other: _Values) -> tuple[_Values, _Values]:
    """Turn both into floats if either is, so that 0.1 as written equals 0.1 as computed."""
    if _floats(one) == _floats(other):
        return one, other
    return reals_of(one), reals_of(other)


def _floats(value: _Values) -> bool:
    """Tell whether this is computed in floats."""
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def reals_of(value: _Values) -> float | NDArray[Any]:
    """Turn into floats, infinite where too large for one."""
    if isinstance(value, float):
        return value
    if isinstance(value, np.ndarray):
        if _floats(value):
            return value
        return np.array([reals_of(v) for v in value.flat], dtype=np.float64).reshape(value.shape)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
