"""What a measured run ran on: a device of the catalogue, or one by its row's own columns."""

from __future__ import annotations

from functools import cache

from pydantic import ValidationError

from optplan import catalogue
from optplan.models.spec.cluster import Accelerator, Cluster
from optplan.models.spec.workload import Workload
from optplan.models.units import show
from optplan.places import Refusal
from optplan.runs.stacks import Inexpressible, first_fault
from optplan.runs.table import Run


def cluster_of(
    run: Run, workload: Workload, assumed: list[str], machine: Accelerator | None = None
) -> tuple[Cluster, bool]:
    """
    Describe the machine; True where nobody knows the device.

    Parameters
    ----------
    machine
        A device that the catalogue does not know, described by whoever profiled it.
    """
    devices = run.num_devices or 1
    profiled = machine is not None and machine.name == run.accelerator
    known = machine if profiled else _known_device(run.accelerator)
    device = known or _device(run, assumed)
    if workload.precision not in device.peak:
        if workload.precision != "fp8" or "bf16" not in device.peak:
            raise Inexpressible(f"{run.accelerator} has no peak for {workload.precision}")
        peak = {**device.peak, "fp8": 2 * device.peak["bf16"]}
        device = device.model_copy(update={"peak": peak})
        assumed.append("fp8 peak twice that of bf16")
    node = run.devices_per_node or device.domain
    if run.devices_per_node is None:
        assumed.append(f"{node} devices per node")
    node = _domain(min(node, devices), device.domain, devices, assumed)
    if devices % node:
        raise Inexpressible(f"{devices} devices are no whole nodes of {node}")
    network = device.network or 50e9
    if run.inter_bw_gbs is not None:
        network = run.inter_bw_gbs * 1e9
    elif devices > node:
        assumed.append(f"network {network / 1e9:g} GB/s per device")
    stated = run.intra_bw_gbs
    if stated is not None and known is not None:
        # A calibration's efficiency is a share of what the data sheet says.
        if abs(stated * 1e9 / device.link.bandwidth - 1) > 0.01:
            nominal = device.link.bandwidth / 1e9
            assumed.append(f"links of {nominal:g} GB/s as the data sheet says, not {stated:g}")
    elif stated is not None:
        link = device.link.model_copy(update={"bandwidth": round(stated * 1e9)})
        device = device.model_copy(update={"link": link})
    try:
        return (
            Cluster(
                accelerator=device,
                nodes=devices // node,
                devices_per_node=node,
                network=show(network, "bytes/s"),  # type: ignore[arg-type]
            ),
            known is None,
        )
    except ValidationError as error:
        raise Inexpressible(first_fault(error)) from None


def _domain(node: int, domain: int, devices: int, assumed: list[str]) -> int:
    """
    Count the devices that the links of a run connect.

    Where links do not end at the server, as in a rack of 72, a node is what they join: the largest
    part of the job that is whole servers, divides it, and fits.
    """
    if domain <= node:
        return node
    wholes = range(node, min(domain, devices) + 1, node)
    wide = max((n for n in wholes if devices % n == 0), default=node)
    if wide > node:
        assumed.append(f"links that join {wide} devices, not {node}")
    return wide


@cache
def _known_device(name: str) -> Accelerator | None:
    """Find a device of the catalogue by the name that tables give it."""
    try:
        return catalogue.accelerator(name)
    except Refusal:
        return None


def _device(run: Run, assumed: list[str]) -> Accelerator:
    """Describe a device that the catalogue does not know by the row's own columns."""
    if run.peak_bf16_tflops is None:
        raise Inexpressible(
            f"accelerator {run.accelerator} is not in the catalogue, and no peak; a profile's file "
            "as --calibration describes it"
        )
    peak = run.peak_bf16_tflops * 1e12
    if run.hbm_gb is None:
        raise Inexpressible(f"accelerator {run.accelerator} is not in the catalogue, and no HBM")
    link = (run.intra_bw_gbs or 0.45 * run.peak_bf16_tflops) * 1e9
    assumed.append(
        f"{run.accelerator} by the row's own columns, memory {peak / 295e12:.3g} TB/s and links "
        f"{link / 1e9:.3g} GB/s in proportion to the peak of H100"
    )
    peaks = {"bf16": peak, "fp16": peak, "fp8": 2 * peak}
    try:
        return Accelerator.model_validate(
            dict(
                name=run.accelerator,
                peak={word: show(value, "FLOP/s") for word, value in peaks.items()},
                hbm=f"{run.hbm_gb} GB",
                hbm_bandwidth=show(peak / 295, "bytes/s"),
                link={"kind": "switch", "bandwidth": show(link, "bytes/s")},
                domain=run.devices_per_node or 8,
            )
        )
    except ValidationError as error:
        raise Inexpressible(first_fault(error)) from None
