"""Quantities: what is read, what is refused, and that what is printed reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from optplan.models.errors import QuantityError
from optplan.models.units import (
    LARGEST,
    LONGEST,
    Bytes,
    BytesPerSecond,
    Dimension,
    FlopsPerSecond,
    Seconds,
    bytes_text,
    parse,
    seconds_text,
    show,
)

WHOLE: tuple[Dimension, ...] = ("bytes", "bytes/s", "FLOP/s", "watts")


class Sample(BaseModel):
    memory: Bytes
    bandwidth: BytesPerSecond
    peak: FlopsPerSecond
    network: BytesPerSecond | None = None
    latency: Seconds = 0.0


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80 * 10**9),
        ("1.5 KiB", "bytes", 1536),
        (".5 kB", "bytes", 500),
        ("1e3 B", "bytes", 1000),
        ("0.1 GB", "bytes", 10**8),
        ("400 Gb/s", "bytes/s", 50 * 10**9),
        ("50 GB/s", "bytes/s", 50 * 10**9),
        ("8 b/s", "bytes/s", 1),
        ("3.35 TB/s", "bytes/s", 3350 * 10**9),
        ("989.4 TFLOP/s", "FLOP/s", 9894 * 10**11),
        ("4611686018427387904 B", "bytes", LARGEST),
        ("0 s", "seconds", 0.0),
        ("1.5 ms", "seconds", 0.0015),
        ("5 us", "seconds", 5e-6),
        ("3 ns", "seconds", 3e-9),
        ("2 min", "seconds", 120.0),
        ("2 h", "seconds", 7200.0),
        ("1 d", "seconds", 86_400.0),
        ("700 W", "watts", 700),
        ("1.2 kW", "watts", 1200),
    ],
)
def test_a_quantity_is_read(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "said"),
    [
        ("400 Gb", "bytes/s", "cannot read '400 Gb' as bytes/s; write it as 400 Gb/s or 900 GB/s"),
        ("400", "bytes/s", "'400' has no unit; write it as 400 Gb/s or 400 GB/s"),
        ("400 Gbps", "bytes/s", "cannot read '400 Gbps' as bytes/s; write it as 400 Gb/s"),
        ("25 GBps", "bytes/s", "write it as 25 GB/s or"),
        ("400 gb/s", "bytes/s", "write it as 400 GB/s or 400 Gb/s"),
        ("80", "bytes", "'80' has no unit; write it as 80 GiB or 80 GB"),
        ("80 Gb", "bytes", "cannot read '80 Gb' as bytes; write it as 80 GB or 80 GiB"),
        ("80 GB/s", "bytes", "write it as 80 GB or"),
        ("10 KB", "bytes", "write it as 10 kB or"),
        ("312 TFLOPS", "FLOP/s", "write it as 312 TFLOP/s or"),
        ("312 TFLOPs/s", "FLOP/s", "write it as 312 TFLOP/s or"),
        ("5 seconds", "seconds", "write it as 5 s or"),
        ("5 m", "seconds", "write it as 5 min or"),
        ("-1 GB", "bytes", "'-1 GB' is negative;"),
        ("-1 s", "seconds", "is negative;"),
        ("nan", "bytes", "cannot read 'nan'"),
        ("inf s", "seconds", "cannot read"),
        ("1e400", "bytes", "'1e400' is too large;"),
        ("1e400 B", "bytes", "too large;"),
        ("1e999999999999 s", "seconds", "too large;"),
        ("1e-999999999999 s", "seconds", "too small;"),
        ("1" * 41 + " B", "bytes", "is too long;"),
        ("0 GB", "bytes", "'0 GB' is zero;"),
        ("0 GB/s", "bytes/s", "is zero;"),
        ("0 FLOP/s", "FLOP/s", "is zero;"),
        ("0.1 B", "bytes", "too small;"),
        ("4611686018427387905 B", "bytes", "too large;"),
        ("", "bytes", "cannot read ''"),
        ("٣ GB", "bytes", "cannot read"),
        ("1_000 GB", "bytes", "cannot read"),
        ("80 GB; 3", "bytes", "cannot read"),
    ],
)
def test_a_wrong_quantity_is_refused_with_a_remedy(
    text: str, dimension: Dimension, said: str
) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text, dimension)
    assert said in str(caught.value)
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60), st.sampled_from((*WHOLE, "seconds")))
def test_any_text_is_read_or_refused(text: str, dimension: Dimension) -> None:
    try:
        value = parse(text, dimension)
    except QuantityError as error:
        assert "; " in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert 0 <= value <= LARGEST


@given(st.integers(1, LARGEST), st.sampled_from(WHOLE))
def test_a_whole_quantity_reads_back(value: int, dimension: Dimension) -> None:
    text = show(value, dimension)
    assert len(text) <= LONGEST
    assert parse(text, dimension) == value


@given(st.floats(0, 1e15))
def test_a_time_reads_back(seconds: float) -> None:
    text = show(seconds, "seconds")
    assert len(text) <= LONGEST
    assert parse(text, "seconds") == seconds


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (80 * 2**30, "bytes", "80 GiB"),
        (80 * 10**9, "bytes", "80 GB"),
        (1, "bytes", "1 B"),
        (50_000_000_000, "bytes/s", "50 GB/s"),
        (3350 * 10**9, "bytes/s", "3.35 TB/s"),
        (989 * 10**12, "FLOP/s", "989 TFLOP/s"),
        (60.0, "seconds", "60 s"),
        (0.0015, "seconds", "1.5 ms"),
        (0.0, "seconds", "0 s"),
        (1e-300, "seconds", "1e-300 s"),
    ],
)
def test_the_shortest_exact_form_is_shown(value: float, dimension: Dimension, text: str) -> None:
    assert show(value, dimension) == text


def test_people_get_three_digits() -> None:
    assert bytes_text(72.3 * 2**30) == "72.3 GiB"
    assert bytes_text(999) == "999 B"
    assert bytes_text(1023 * 2**20) == "0.999 GiB"
    assert bytes_text(-5e9) == "-4.66 GiB"
    assert seconds_text(9.87) == "9.87 s"
    assert seconds_text(9.996) == "10.0 s"
    assert seconds_text(0.0123) == "12.3 ms"
    assert seconds_text(0) == "0 s"
    assert seconds_text(5000) == "83.3 min"


def test_a_record_with_quantities_reads_its_own_dump() -> None:
    sample = Sample.model_validate(
        {"memory": "80 GiB", "bandwidth": "400 Gb/s", "peak": "989 TFLOP/s", "latency": "5 us"}
    )
    assert sample.bandwidth == 50_000_000_000
    dumped = sample.model_dump(mode="json")
    assert dumped["memory"] == "80 GiB"
    assert dumped["network"] is None
    assert sample.model_dump() == dumped
    assert Sample.model_validate(dumped) == sample
    assert Sample.model_validate_json(sample.model_dump_json()) == sample


@pytest.mark.parametrize(
    "value",
    [80, 80.5, True, None, [1], {}, b"80 GB", float("nan"), pytest.param(10**5000, id="huge")],
)
def test_only_text_is_a_quantity(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate({"memory": value, "bandwidth": "1 B/s", "peak": "1 FLOP/s"})
    (details,) = caught.value.errors()
    assert isinstance(details["ctx"]["error"], QuantityError)
    assert "; write" in str(details["ctx"]["error"])


def test_editors_are_told_what_to_write() -> None:
    schema = Sample.model_json_schema()["properties"]["bandwidth"]
    assert schema["type"] == "string"
    assert "400 Gb/s" in schema["examples"]
