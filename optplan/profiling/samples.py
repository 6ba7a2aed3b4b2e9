"""What a profile times: samples in the order of their worth, and the raw table of timings."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from optplan.models.errors import Fault, InputError
from optplan.models.record import Record
from optplan.models.spec.workload import Architecture
from optplan.ranks.job import Device

Kind = Literal[
    "matmul",
    "stream",
    "products",
    "attention",
    "layer_forward",
    "layer",
    "tensor_layer",
    "pipeline",
    "data_alone",
    "data_synced",
    "head",
    "optimizer",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "p2p",
    "idle_memory",
    "head_memory",
]
"""
``matmul``: a square product. ``stream``: a copy. ``products``, ``attention``, ``layer``: the matrix
products, the fused attention and all of one layer's shard, forward and backward, ``layer_forward``
its forward pass. ``tensor_layer``: the layer really divided over all processes. ``pipeline``: a
layer a stage under 1F1B. ``data_alone`` and ``data_synced``: a stack of layers without and with
its gradients reduced. ``head``: norm, head and loss. Then the optimizer, the collectives, and two
that read memory instead of time.
"""

KINDS: tuple[Kind, ...] = get_args(Kind)

COLLECTIVES: tuple[Kind, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "p2p",
)


class Sample(Record):
    """One thing to time; what does not matter to its kind is 0."""

    kind: Kind
    """What."""
    micro_batch: int = 0
    """Sequences b."""
    sequence: int = 0
    """Tokens s of each."""
    hidden: int = 0
    """Width h; of a matmul its three sides; of a head its input."""
    ways: int = 0
    """Tensor ranks t whose shard of a layer it is."""
    group: int = 0
    """Members of a collective."""
    count: int = 0
    """Micro-batches of a pipeline, layers of a stack, parameters of an optimizer, or the width of a
    head's output."""
    payload_bytes: int = 0
    """Bytes of a collective as the cost model counts them: of the whole result; of a stream what is
    read and written together."""

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def label(self) -> str:
        """Name in short."""
        shape = [f"{k}{v}" for k, v in self._letters().items() if v]
        return " ".join([self.kind.replace("_", " "), *shape])

    def _letters(self) -> dict[str, int]:
        """Return the numbers that matter by the letters of the paper."""
        return {
            "b": self.micro_batch,
            "s": self.sequence,
            "h": self.hidden,
            "t": self.ways,
            "n": self.group,
            "x": self.count,
            "B": self.payload_bytes,
        }


class Timing(Record):
    """How long a sample took, or how many bytes it held."""

    sample: Sample
    """What."""
    seconds: float
    """Median over repeats of the slowest process; of a memory kind the bytes."""
    low: float
    """Quarter of the repeats were faster."""
    high: float
    """Quarter of the repeats were slower."""
    repeats: int
    """Repeats."""
    inner: int
    """Runs of the sample in one repeat."""

    @property
    def spread(self) -> float:
        """Distance between the quartiles over the median."""
        return (self.high - self.low) / self.seconds if self.seconds > 0 else 0.0


class Grid(Record):
    """Shapes that are sampled on one kind of device."""

    square: tuple[int, ...]
    """Sides of square products."""
    layers: tuple[tuple[int, int, int, int], ...]
    """b, s, h, t of layers, those that say most first."""
    base: tuple[int, int, int]
    """b, s, h at which engines are timed."""
    small: tuple[int, int, int]
    """A second such shape, with less work."""
    head: int
    """Width of a head's output."""
    parameters: tuple[int, ...]
    """Sizes of an optimizer."""
    sizes: tuple[int, ...]
    """Bytes of collectives."""
    stream: int
    """Bytes of a copy, beyond any cache."""


GRIDS: dict[Device, Grid] = {
    "cpu": Grid(
        square=(256, 512, 1024),
        layers=(
            (1, 128, 256, 1),
            (4, 128, 256, 1),
            (1, 64, 512, 1),
            (1, 16, 64, 1),
            (4, 64, 512, 1),
            (2, 128, 256, 1),
            (1, 128, 256, 2),
            (4, 64, 512, 2),
            (8, 128, 256, 1),
            (4, 128, 128, 1),
            (1, 64, 256, 1),
            (2, 128, 512, 1),
            (4, 128, 256, 2),
            (1, 64, 512, 2),
            (1, 128, 256, 4),
            (4, 64, 512, 4),
            (2, 256, 256, 1),
            (8, 64, 512, 1),
            (1, 128, 128, 1),
        ),
        base=(2, 128, 256),
        small=(1, 64, 256),
        head=4096,
        parameters=(1_000_000, 4_000_000, 12_000_000),
        sizes=(4_096, 65_536, 524_288, 4_194_304, 16_777_216),
        stream=268_435_456,
    ),
    "cuda": Grid(
        square=(2048, 4096, 8192),
        layers=(
            (1, 2048, 2048, 1),
            (4, 2048, 2048, 1),
            (1, 4096, 4096, 1),
            (1, 16, 512, 1),
            (1, 512, 2048, 1),
            (2, 2048, 2048, 1),
            (1, 2048, 2048, 2),
            (1, 4096, 4096, 2),
            (1, 4096, 4096, 4),
            (1, 4096, 4096, 8),
            (4, 512, 1024, 1),
            (8, 2048, 2048, 1),
            (1, 1024, 4096, 1),
            (2, 4096, 4096, 1),
            (1, 2048, 2048, 4),
            (1, 512, 1024, 1),
            (2, 1024, 1024, 1),
        ),
        base=(1, 2048, 2048),
        small=(1, 512, 2048),
        head=32_768,
        parameters=(10_000_000, 100_000_000, 400_000_000),
        sizes=(16_384, 1_048_576, 16_777_216, 134_217_728, 536_870_912),
        stream=2**31,
    ),
}
GRIDS["npu"] = GRIDS["cuda"]


def shape_of(hidden: int) -> Architecture:
    """
    Return a gated layer of some width, as Llama shapes them: heads of at most 64, ffn 8/3 h.

    The ffn is rounded so that eight tensor ranks divide it.
    """
    heads = max(4, hidden // 64)
    ffn = -(-8 * hidden // (3 * 32)) * 32
    return Architecture(
        name=f"profile-{hidden}", layers=1, hidden=hidden, heads=heads, ffn=ffn, vocabulary=1024
    )


def samples_of(device: Device, processes: int) -> list[Sample]:
    """
    List what is timed among so many processes, what says most first.

    A budget that runs out leaves out the end of the list, but none of what is ``needed``.
    """
    grid, n = GRIDS[device], processes
    every = needed(device, processes)
    every += _collectives(grid, n, ("p2p",))
    every += _layers(grid, n, grid.layers[FEWEST_LAYERS:8])
    every += [Sample(kind="optimizer", count=count) for count in grid.parameters]
    every += _engines(grid, n)
    every += _heads(grid)
    every += _layers(grid, n, grid.layers[8:])
    every += _collectives(grid, n, ("all_gather", "reduce_scatter", "all_to_all"))
    return every


FEWEST_LAYERS = 4
"""Layers without which nothing can be fitted."""


def needed(device: Device, processes: int) -> list[Sample]:
    """List the samples without which nothing can be fitted, which no budget leaves out."""
    grid = GRIDS[device]
    every = [Sample(kind="idle_memory")]
    every += [Sample(kind="matmul", hidden=side) for side in grid.square]
    every.append(Sample(kind="stream", payload_bytes=grid.stream))
    every += _collectives(grid, processes, ("all_reduce",))
    return every + _layers(grid, processes, grid.layers[:FEWEST_LAYERS])


def _layers(
    grid: Grid, processes: int, shapes: Iterable[tuple[int, int, int, int]]
) -> list[Sample]:
    """List layers, each in its parts; no shards of more ranks than there are processes."""
    kinds: tuple[Kind, ...] = ("products", "attention", "layer_forward", "layer")
    return [
        Sample(kind=kind, micro_batch=b, sequence=s, hidden=h, ways=t)
        for b, s, h, t in shapes
        if t <= processes
        for kind in kinds
    ]


def _engines(grid: Grid, n: int) -> list[Sample]:
    """List what engines for tensor, pipeline and data parallelism do, against what they carry."""
    found: list[Sample] = []
    if n == 1:
        return found
    for b, s, h in (grid.base, grid.small):
        where = {"micro_batch": b, "sequence": s, "hidden": h}
        found.append(Sample(kind="layer", ways=n, **where))
        found.append(Sample(kind="tensor_layer", ways=n, **where))
        found.append(Sample(kind="layer", ways=1, **where))
        for count in (n, 3 * n):
            found.append(Sample(kind="pipeline", group=n, count=count, **where))
    b, s, h = grid.base
    stacks: tuple[Kind, ...] = ("data_alone", "data_synced")
    for kind in stacks:
        found.append(Sample(kind=kind, micro_batch=b, sequence=s, hidden=h, group=n, count=3))
    return list(dict.fromkeys(found))


def _heads(grid: Grid) -> list[Sample]:
    """List output heads."""
    b, s, h = grid.base
    found = [
        Sample(kind="head", micro_batch=b, sequence=s, hidden=h, count=width)
        for width in (grid.head, grid.head // 4)
    ]
    memory = Sample(
        kind="head_memory", micro_batch=4 * b, sequence=s, hidden=64, count=2 * grid.head
    )
    return [*found, memory]


def _collectives(grid: Grid, n: int, kinds: Sequence[Kind]) -> list[Sample]:
    """List collectives by size, among all and among pairs."""
    groups = [g for g in dict.fromkeys((2, n)) if g <= n and n % g == 0 and g > 1]
    return [
        Sample(kind=kind, group=g, payload_bytes=size)
        for kind in kinds
        for g in groups
        for size in grid.sizes
        if kind != "p2p" or g == 2
    ]


COLUMNS = (
    *("kind", "micro_batch", "sequence", "hidden", "ways", "group", "count", "payload_bytes"),
    *("seconds", "low", "high", "repeats", "inner"),
)
"""Columns of the raw table."""


def raw_text(timings: Iterable[Timing]) -> str:
    """Write the raw table as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in timings:
        own = {**one.sample.model_dump(), **one.model_dump(exclude={"sample"})}
        writer.writerow([f"{own[c]:.9g}" if isinstance(own[c], float) else own[c] for c in COLUMNS])
    return stream.getvalue()


def read_raw(path: str | Path) -> list[Timing]:
    """
    Read a raw table.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        table = csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8")))
        rows = list(table)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise ValueError("another header")
        return [
            Timing(
                sample=Sample.model_validate(
                    {k: row[k] if k == "kind" else int(row[k]) for k in COLUMNS[:8]}
                ),
                seconds=float(row["seconds"]),
                low=float(row["low"]),
                high=float(row["high"]),
                repeats=int(row["repeats"]),
                inner=int(row["inner"]),
            )
            for row in rows
        ]
    except (OSError, UnicodeDecodeError, KeyError, ValueError, TypeError, csv.Error) as error:
        problem = f"cannot be read as a raw table of a profile ({type(error).__name__})"
        remedy = "name the CSV that optplan profile wrote"
        raise InputError([Fault(str(path), "", problem, remedy)]) from None
