"""What data ranks share, in the options of Megatron."""

from __future__ import annotations

from math import gcd

from optplan.launches.megatron_options import Given
from optplan.launches.megatron_state import ARGUMENTS, State

STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stages by ``--data-parallel-sharding-strategy``."""


class Sharding(State):
    """Reads ZeRO, its instances and the optimizer's place."""

    def sharding(self) -> None:
        """State what data ranks share."""
        reading = self.reading
        fsdp = reading.on("use_megatron_fsdp", "use_custom_fsdp")
        two = reading.on("use_torch_fsdp2")
        strategy = reading.find("data_parallel_sharding_strategy")
        optimizer = reading.on("use_distributed_optimizer")
        instances = reading.find("num_distributed_optimizer_instances")
        taken = self.tp * self.pp * self.cp
        ranks = self.cp * (self.world // taken) if self.world and self.world % taken == 0 else 0
        given: Given | None = None
        zero = 0
        if fsdp is not None:
            word = (reading.text(strategy) or "no_shard").lower()
            zero, given = STRATEGIES.get(word, 0), strategy or fsdp
        elif two is not None:
            zero, given = 3, two
        elif optimizer is not None:
            zero, given = 1, optimizer
        if given is None:
            reading.assume("zero", 0, "no --use-distributed-optimizer")
        elif zero and ranks == 1:
            reading.assume("zero", 0, "one data rank has nothing to share")
            if self.options.kind != "log":
                reading.remark(
                    "megatron.sharding-alone",
                    "note",
                    f"{given.written} with one data rank shares nothing",
                    "nothing; or lower tp, pp or cp so that there are ranks to share with",
                    given,
                )
        else:
            reading.state("zero", zero, given, literal=False)
        if strategy is not None and fsdp is None and self.options.kind != "log":
            reading.remark(
                "megatron.sharding-ignored",
                "warning",
                f"{strategy.written} without --use-megatron-fsdp is ignored",
                "add --use-megatron-fsdp, or leave it out",
                strategy,
            )
        count = reading.whole(instances)
        if instances is not None and count and count > 1:
            self._instances(instances, count, ranks, zero)
        offload = reading.on("optimizer_cpu_offload")
        reading.find("optimizer_offload_fraction")
        precise = reading.on("use_precision_aware_optimizer")
        if offload is not None:
            reading.state("offload", True, offload, literal=False)
            if precise is None:
                reading.remark(
                    "megatron.offload-refused",
                    "error",
                    "--optimizer-cpu-offload without --use-precision-aware-optimizer; Megatron "
                    f"refuses it ({ARGUMENTS})",
                    "add --use-precision-aware-optimizer",
                    offload,
                )

    def _instances(self, given: Given, count: int, ranks: int, zero: int) -> None:
        """State sharding inside the nodes, where that is what the instances come to."""
        reading = self.reading
        if not ranks or not self.node:
            return
        inside = in_node(self.node, self.world == self.node, ranks, self.tp)
        if self.options.given.get("use_tp_pp_dp_mapping"):
            inside = in_node(self.node, self.world == self.node, ranks, self.tp * self.pp)
        reading.state("hsdp", bool(zero), given, literal=False)
        if zero and ranks != inside * count:
            reading.remark(
                "megatron.instances",
                "note",
                f"{count} instances share over {ranks // count or 1} of {ranks} ranks; what is "
                f"priced is sharing inside a node, {inside} ranks",
                f"write {max(1, ranks // inside)} for sharing inside a node",
                given,
            )


def in_node(node: int, alone: bool, members: int, stride: int) -> int:
    """Count the members of a group that one node holds, as ``models.cost.traffic.group`` does."""
    if alone:
        return members
    return gcd(members, max(1, gcd(node, stride * members) // stride))
