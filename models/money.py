"""Prices as people write them: an amount, a currency, per hour."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from optplan.models.errors import QuantityError
from optplan.models.units import LONGEST

LEAST, MOST = 1e-4, 1e9
"""What a device may cost an hour, whatever the currency."""

EXAMPLE = "2.50 USD/h or 2.30 EUR/h"
"""What a price looks like."""

_PRICE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t]*([A-Z]{3})/h")
_NEAR = re.compile(
    r"(?P<sign>[$€£])?\s*(?P<amount>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<sign2>[$€£])?"
    r"\s*(?P<code>[A-Za-z]{3})?\s*(?:(?:/|\s+per\s+)\s*(?:(?:gpu|device)[- ]?)?h(?:ou)?r?s?)?",
    re.IGNORECASE,
)
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP"}


@dataclass(frozen=True)
class Price:
    """
    Money per hour.

    Parameters
    ----------
    amount
        Units of the currency per hour, above 0.
    currency
        Three capital letters, as ISO 4217 has them.
    """

    amount: float
    currency: str

    def __str__(self) -> str:
        """Write the price as ``price_of`` reads it."""
        return f"{self.amount!r} {self.currency}/h"


def price_of(text: str) -> Price:
    """
    Read a price per hour such as ``2.50 USD/h``.

    Raises
    ------
    QuantityError
        The text is no price, or out of range.

    Examples
    --------
    >>> price_of("2.50 USD/h")
    Price(amount=2.5, currency='USD')
    """
    text = text.strip(" \t")
    if len(text) > LONGEST:
        raise QuantityError(f"a price of {len(text)} characters is too long; write {EXAMPLE}")
    if text.startswith("-"):
        raise QuantityError(f"'{text}' is negative; write {EXAMPLE}")
    match = _PRICE.fullmatch(text)
    if match is None:
        raise QuantityError(_misread(text))
    amount = float(match[1])
    if amount < LEAST:
        raise QuantityError(f"'{text}' is {'too small' if amount else 'zero'}; write {EXAMPLE}")
    if amount > MOST:
        raise QuantityError(f"'{text}' is too large; at most {MOST:,.0f} an hour is supported")
    return Price(amount, match[2])


def _misread(text: str) -> str:
    """Word the fault of a text that is no price, with the nearest right one."""
    near = _NEAR.fullmatch(text)
    if near is None:
        return f"cannot read '{text}' as a price; write it as {EXAMPLE}"
    sign = near["sign"] or near["sign2"]
    code = near["code"] or _SIGNS.get(sign or "", "")
    amount = near["amount"]
    if not code:
        return f"'{text}' has no currency; write it as {amount} USD/h or {amount} EUR/h"
    return f"cannot read '{text}' as a price; write it as {amount} {code.upper()}/h"


def _read(value: object) -> Price:
    """Take a price, or the text of one."""
    if isinstance(value, Price):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = "true or false" if isinstance(value, bool) else f"a {type(value).__name__}"
        raise QuantityError(f"{kind} is no price; write {EXAMPLE}")
    return price_of(f"{value}")


PerHour = Annotated[
    Price,
    PlainValidator(_read),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "description": "Money per hour, such as 2.50 USD/h.",
            "examples": ["2.50 USD/h", "2.30 EUR/h"],
            "pattern": r"^[0-9.]+[ ]*[A-Z]{3}/h$",
        }
    ),
]
"""Money per hour; typed as ``2.50 USD/h``, never as a bare number."""
