"""Prices per hour: what is read, what is refused, and that what is printed reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from optplan.models.errors import QuantityError
from optplan.models.money import LEAST, MOST, PerHour, Price, price_of


class Sample(BaseModel):
    price: PerHour | None = None


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.50 USD/h", Price(2.5, "USD")),
        ("2.3EUR/h", Price(2.3, "EUR")),
        (" .5 CHF/h ", Price(0.5, "CHF")),
        ("12. JPY/h", Price(12.0, "JPY")),
    ],
)
def test_a_price_is_read(text: str, price: Price) -> None:
    assert price_of(text) == price


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2.50", "has no currency; write it as 2.50 USD/h or 2.50 EUR/h"),
        ("2.50 USD", "write it as 2.50 USD/h"),
        ("2.50 usd/h", "write it as 2.50 USD/h"),
        ("$2.50/h", "write it as 2.50 USD/h"),
        ("2.50 € per GPU-hour", "write it as 2.50 EUR/h"),
        ("2.50 USD/hour", "write it as 2.50 USD/h"),
        ("-2 USD/h", "is negative; "),
        ("0 USD/h", "is zero; "),
        ("0.00001 USD/h", "is too small; "),
        ("1000000001 USD/h", "is too large; "),
        ("1e3 USD/h", "cannot read"),
        ("cheap", "cannot read 'cheap' as a price; "),
        ("", "cannot read ''"),
        ("9" * 50, "too long; "),
    ],
)
def test_a_wrong_price_is_refused_with_a_remedy(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        price_of(text)
    assert said in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.parametrize("value", [True, [1], {"a": 1}, 2.5, 3])
def test_a_bare_number_or_another_thing_is_no_price(value: object) -> None:
    with pytest.raises(ValidationError, match="; write"):
        Sample.model_validate({"price": value})


@given(st.floats(LEAST, MOST))
def test_a_price_reads_back(amount: float) -> None:
    price = Price(amount, "USD")
    assert price_of(str(price)) == price
    assert Sample.model_validate({"price": str(price)}).model_dump()["price"] == str(price)
