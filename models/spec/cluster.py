"""The machine: accelerators, nodes, and the links inside and between them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from optplan.models.money import PerHour, Price
from optplan.models.record import Record, Text
from optplan.models.spec.workload import Precision
from optplan.models.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, Watts

Held = Literal["all", "nodes", "devices"]
"""Which devices a job pays for and keeps under power."""


class Link(Record):
    """How the accelerators of one node reach each other."""

    kind: Literal["mesh", "switch"]
    """``mesh``: a direct link for every pair. ``switch``: all devices on one switch."""
    bandwidth: BytesPerSecond
    """One direction. For a mesh the link of one pair, for a switch all that one device can send."""
    latency: Seconds = 0.0
    """Time of one hop, however small the message."""


class Accelerator(Record):
    """One device, by its data sheet."""

    name: Text = "custom"
    """What to call it in print."""
    peak: dict[Precision, FlopsPerSecond] = Field(min_length=1)
    """Dense peak of the matrix units, per number format."""
    hbm: Annotated[Bytes, Field(le=2**45)]
    """Memory of one device that a job can address."""
    hbm_bandwidth: BytesPerSecond
    """Bytes that one device reads or writes per second."""
    units: Annotated[int, Strict(), Field(ge=1, le=65_536)] | None = None
    """Processors that each work on one tile of a matrix product at a time, such as the streaming
    multiprocessors of a GPU; left out: products are not rounded up to whole waves of tiles."""
    link: Link
    """Links inside the node."""
    domain: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Devices that the links of one node connect, in the usual machine."""
    network: BytesPerSecond | None = None
    """Between servers in the usual machine, per device, one direction."""
    power: Annotated[Watts, Field(le=1_000_000)] | None = None
    """Most that one device draws, by its data sheet; left out: energy is not told."""
    price: PerHour | None = None
    """Of one device; left out: money is not told unless the cluster has a price."""


class Host(Record):
    """The server around the accelerators, for an optimizer that lives there."""

    memory: Annotated[Bytes, Field(le=2**50)]
    """Memory of one server that a job can use."""
    link: BytesPerSecond
    """Between the host and one accelerator, one direction."""
    bandwidth: BytesPerSecond
    """Bytes that the processors of one server read or write per second."""


class Cluster(Record):
    """The machine a job may use."""

    accelerator: Accelerator
    """The device, or the name of one in the catalogue."""
    nodes: Annotated[int, Strict(), Field(ge=1, le=1_048_576)]
    """Servers."""
    devices_per_node: Annotated[int, Strict(), Field(ge=1, le=65_536)]
    """Accelerators in one server; left out: the accelerator's usual number."""
    network: BytesPerSecond
    """Between servers, per device, one direction; left out: the accelerator's usual network."""
    network_latency: Seconds = 0.0
    """Time of one hop between servers."""
    host: Host | None = None
    """The servers themselves; left out: the optimizer stays on the accelerators."""
    price: PerHour | None = None
    """Of one device; left out: the accelerator's own, if it has one."""
    held: Held = "all"
    """Devices that are paid for and powered: ``all``, whole ``nodes`` in use, or ``devices`` in
    use, where idle ones can be handed back."""
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] | None = None
    """Energy of the whole building over that of its devices; left out: the devices alone."""

    @model_validator(mode="after")
    def _bounded(self) -> Cluster:
        if self.devices > 2**20:
            raise ValueError(
                f"{self.nodes} nodes of {self.devices_per_node} are {self.devices} devices; "
                f"at most {2**20} are supported"
            )
        return self

    @property
    def devices(self) -> int:
        """Accelerators in all."""
        return self.nodes * self.devices_per_node

    @property
    def device_price(self) -> Price | None:
        """Money per hour of one device, where it is known."""
        return self.price or self.accelerator.price

    def held_devices(self, used: Any) -> Any:
        """Count the devices that are held where so many are in use: a number, or an array."""
        if self.held == "devices":
            return used
        if self.held == "nodes":
            return -(-used // self.devices_per_node) * self.devices_per_node
        return used * 0 + self.devices
