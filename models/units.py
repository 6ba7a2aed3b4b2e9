"""Quantities as people write them: read with their unit, kept as plain numbers, printed back."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Literal, overload

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from optplan.models.errors import QuantityError

Dimension = Literal["bytes", "bytes/s", "FLOP/s", "seconds", "watts"]

LARGEST = 2**62
"""No quantity may exceed this in its base unit; sums of two still fit in 64 bits."""

LONGEST = 40
"""Characters a quantity may have; longer ones are typing accidents."""

_DECIMAL = {p: 10 ** (3 * i) for i, p in enumerate(("", "k", "M", "G", "T", "P", "E"))}
_BINARY = {p: 2 ** (10 * i) for i, p in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), start=1)}
_PREFIXES = _DECIMAL | _BINARY
_BYTES = {f"{prefix}B": Fraction(size) for prefix, size in _PREFIXES.items()}
_RATES = {f"{unit}/s": size for unit, size in _BYTES.items()}
_BIT_RATES = {f"{prefix}b/s": Fraction(size, 8) for prefix, size in _PREFIXES.items()}
_CLOCK = {"s": Fraction(1)} | {u: Fraction(1, 1000**i) for i, u in enumerate(("ms", "us", "ns"), 1)}

# What is read. Bits are a unit of transfer only: memory in bits is a misspelling, eight times off.
_UNITS: dict[Dimension, dict[str, Fraction]] = {
    "bytes": _BYTES,
    "bytes/s": _RATES | _BIT_RATES,
    "FLOP/s": {f"{prefix}FLOP/s": Fraction(size) for prefix, size in _DECIMAL.items()},
    "seconds": _CLOCK | {"min": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)},
    "watts": {f"{prefix}W": Fraction(10 ** (3 * i)) for i, prefix in enumerate(("", "k", "M"))},
}
# What is printed: one spelling a dimension, so that equal values print equal texts.
_PRINTED = _UNITS | {"bytes/s": _RATES, "seconds": _CLOCK}
_EXAMPLES: dict[Dimension, tuple[str, str]] = {
    "bytes": ("80 GiB", "80 GB"),
    "bytes/s": ("400 Gb/s", "900 GB/s"),
    "FLOP/s": ("312 TFLOP/s", "1.98 PFLOP/s"),
    "seconds": ("60 s", "5 us"),
    "watts": ("700 W", "1.2 kW"),
}
_KINDS = {
    type(None): "null",
    bool: "true or false",
    int: "so large a number",
    float: "so large a number",
    list: "a list",
    dict: "a mapping",
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?[ \t]*(.*)", re.DOTALL)
# Other people's spellings of a unit, any case, and the letters we read instead.
_SLIPS = (
    (r"bytes?", "B"),
    (r"bits?", "b"),
    (r"ps$|/?sec(onds?)?$", "/s"),
    (r"flops?$|flops?/s$", "FLOP/s"),
    (r"^/s$", "s"),
    (r"^m(ins?|inutes?)?$", "min"),
    (r"^hours?$", "h"),
    (r"^days?$", "d"),
    (r"^[µμ]s$", "us"),
    (r"watts?$", "W"),
)


@overload
def parse(text: str, dimension: Literal["bytes", "bytes/s", "FLOP/s", "watts"]) -> int: ...
@overload
def parse(text: str, dimension: Literal["seconds"]) -> float: ...
@overload
def parse(text: str, dimension: Dimension) -> int | float: ...
def parse(text: str, dimension: Dimension) -> int | float:
    """
    Read a quantity such as ``80 GiB``, ``400 Gb/s``, ``989 TFLOP/s`` or ``5 us``.

    Parameters
    ----------
    text
        A decimal number and a unit; ``B`` is a byte, ``b`` a bit, eight of which are a byte.
    dimension
        What the quantity measures.

    Returns
    -------
    int | float
        In the dimension's base unit: an integer, rounded to the nearest, in 1 .. 2^62 for bytes,
        bytes/s, FLOP/s and watts; a float in 0 .. 2^62 for seconds.

    Raises
    ------
    QuantityError
        The text is no quantity of this dimension, or out of range.

    Examples
    --------
    >>> parse("400 Gb/s", "bytes/s")
    50000000000
    """
    text = text.strip(" \t")
    first, second = _EXAMPLES[dimension]
    usual = f"write it as {first} or {second}"
    if len(text) > LONGEST:
        raise QuantityError(f"a quantity of {len(text)} characters is too long; {usual}")
    if text.startswith("-"):
        raise QuantityError(f"'{text}' is negative; {usual}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f"cannot read '{text}' as {dimension}; {usual}")
    number, exponent, unit = match[1], int(match[2] or 0), match[3]
    too_large = f"'{text}' is too large; at most 2^62 {dimension} is supported"
    # A far exponent is refused before it becomes a number of as many digits.
    if exponent > 2 * LONGEST:
        raise QuantityError(too_large)
    if unit not in _UNITS[dimension]:
        amount = number if match[2] is None else f"{number}e{match[2]}"
        raise QuantityError(_foreign_unit(text, amount, unit, dimension))
    size = Fraction(number) * Fraction(10) ** max(exponent, -400) * _UNITS[dimension][unit]
    if size > LARGEST:
        raise QuantityError(too_large)
    value = float(size) if dimension == "seconds" else round(size)
    if value == 0 and (dimension != "seconds" or size > 0):
        raise QuantityError(f"'{text}' is {'too small' if size else 'zero'}; {usual}")
    return value


def _foreign_unit(text: str, amount: str, unit: str, dimension: Dimension) -> str:
    """Word the fault of a missing or unknown unit, with the nearest right texts."""
    examples = _EXAMPLES[dimension]
    if not unit:
        first, second = (f"{amount} {example.split()[1]}" for example in examples)
        return f"'{text}' has no unit; write it as {first} or {second}"
    near = [f"{amount} {known}" for known in _near_units(unit, dimension)]
    remedies = list(dict.fromkeys([*near, *(reversed(examples) if near else examples)]))
    return f"cannot read '{text}' as {dimension}; write it as {' or '.join(remedies[:2])}"


def _near_units(unit: str, dimension: Dimension) -> list[str]:
    """List the units that a misspelt one may mean: those of its very letters, else of any case."""
    known = _UNITS[dimension]
    base = re.sub(r"[\s()]", "", unit)
    for slip, ours in _SLIPS:
        base = re.sub(slip, ours, base, flags=re.IGNORECASE)
    base = base.removesuffix("/s")
    spellings = {base, f"{base}/s", f"{base}FLOP/s", f"{base}B", f"{base}B/s"}
    folded = {spelling.lower() for spelling in spellings}
    exact = [spelling for spelling in known if spelling in spellings]
    return exact or [spelling for spelling in known if spelling.lower() in folded]


def show(value: float, dimension: Dimension) -> str:
    """
    Print a quantity in the shortest form that ``parse`` reads back to the very same value.

    Parameters
    ----------
    value
        In the base unit, as ``parse`` returns it.
    dimension
        What it measures.

    Examples
    --------
    >>> show(85899345920, "bytes")
    '80 GiB'
    """
    if value == 0:
        return f"0 {next(iter(_PRINTED[dimension]))}"
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    # Of equally short forms the largest unit reads best: "3.35 TB/s", not "3350 GB/s".
    units = sorted(_PRINTED[dimension].items(), key=lambda item: -item[1])
    forms = [f"{_digits(exact / size)} {unit}" for unit, size in units]
    return min(forms, key=lambda form: (len(form), form.index(" ")))


def _digits(number: Fraction) -> str:
    """Write a fraction whose denominator holds only twos and fives as an exact decimal."""
    twos = (number.denominator & -number.denominator).bit_length() - 1
    fives, rest = 0, number.denominator >> twos
    while rest > 1:
        fives, rest = fives + 1, rest // 5
    places = max(twos, fives)
    plain = str(number.numerator * 10**places // number.denominator)
    digits = plain.rstrip("0")
    zeros = len(plain) - len(digits) - places
    point = len(digits) + zeros
    if zeros >= 0:
        text = digits + "0" * zeros
    elif point > 0:
        text = f"{digits[:point]}.{digits[point:]}"
    else:
        text = f"0.{'0' * -point}{digits}"
    return min(text, f"{digits}e{zeros}", key=len) if abs(zeros) > 18 else text


def bytes_text(size: float) -> str:
    """Print bytes for people: three significant digits and a binary prefix, ``72.3 GiB``."""
    if abs(size) < 1000:
        return f"{size:.0f} B"
    units = [("B", 1.0), *((f"{prefix}B", float(scale)) for prefix, scale in _BINARY.items())]
    return _three_digits(size, units)


def bytes_like(size: float, written: str) -> str:
    """
    Print bytes in the unit that a person wrote, in the house's own where they wrote none.

    Examples
    --------
    >>> bytes_like(81_234_000_000, "peak_memory <= 72 GB")
    '81.2 GB'
    """
    found = re.search(r"[0-9.]\s*([kKMGTPE]i?B)\b", written)
    if not found or found[1] not in _BYTES:
        return bytes_text(size)
    return _three_digits(size, [(found[1], float(_BYTES[found[1]]))])


def seconds_text(seconds: float) -> str:
    """Print a time for people: three significant digits, ``9.87 s``, ``12.3 ms``, ``2.78 h``."""
    if seconds == 0:
        return "0 s"
    units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)]
    return _three_digits(seconds, units)


def _three_digits(value: float, units: list[tuple[str, float]]) -> str:
    """Print in the first unit that needs no more than three digits before the point."""
    fitting = (pair for pair in units if abs(value) / pair[1] < 999.5)
    unit, scale = next(fitting, units[-1])
    amount = value / scale
    # The exponent after rounding, so that 9.996 is "10.0" and not "10.00".
    exponent = int(f"{amount:.2e}".partition("e")[2])
    return f"{amount:.{max(0, 2 - exponent)}f} {unit}"


def _faces(dimension: Dimension, what: str) -> tuple[object, ...]:
    """Build what a record needs to read, to write and to describe a quantity."""

    def read(value: object) -> int | float:
        if isinstance(value, str):
            return parse(value, dimension)
        if type(value) in (int, float) and abs(value) < LARGEST:  # type: ignore[arg-type]
            # Through the same parser, so that a bare number meets the same words as its text.
            return parse(f"{value}", dimension)
        first, second = _EXAMPLES[dimension]
        what = _KINDS.get(type(value), f"a {type(value).__name__}")
        raise QuantityError(f"{what} is no quantity; write {first} or {second}")

    def write(value: float) -> str:
        return show(value, dimension)

    schema = {
        "type": "string",
        "description": what,
        "examples": list(_EXAMPLES[dimension]),
        "pattern": rf"^[0-9.]+([eE][+-]?[0-9]+)?[ ]*({'|'.join(_UNITS[dimension])})$",
    }
    return PlainValidator(read), PlainSerializer(write, return_type=str), WithJsonSchema(schema)


Bytes = Annotated[int, *_faces("bytes", "An amount of memory, such as 80 GiB.")]
"""Memory in bytes; typed as ``80 GiB`` or ``80 GB``, never as a bare number."""

BytesPerSecond = Annotated[int, *_faces("bytes/s", "A bandwidth, such as 400 Gb/s.")]
"""A bandwidth in bytes/s; typed as ``400 Gb/s`` or ``900 GB/s``."""

FlopsPerSecond = Annotated[int, *_faces("FLOP/s", "A rate of arithmetic, such as 989 TFLOP/s.")]
"""Floating-point operations per second; typed as ``312 TFLOP/s``."""

Seconds = Annotated[float, *_faces("seconds", "A time, such as 5 us.")]
"""A time in seconds, 0 allowed; typed as ``60 s`` or ``5 us``."""

Watts = Annotated[int, *_faces("watts", "An electric power, such as 700 W.")]
"""An electric power in watts; typed as ``700 W`` or ``1.2 kW``."""
