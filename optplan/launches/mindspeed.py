"""MindSpeed-LLM on Ascend: the options of Megatron with some of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from optplan.launches.launch import Value
from optplan.launches.megatron import Megatron
from optplan.launches.megatron_amend import amended
from optplan.launches.megatron_job import Groups, Job, Option
from optplan.launches.megatron_options import Given, Options, read_options
from optplan.launches.megatron_reading import Layout
from optplan.launches.megatron_shape import read_shape
from optplan.launches.megatron_writing import plan_options
from optplan.launches.reading import Reading
from optplan.launches.script import Draft
from optplan.models.errors import Fault
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem

CORES = (((2, 1), (0, 12)), ((2, 0), (0, 8)), ((1, 0), (0, 6)))
"""Megatron Core that a release stands on (MindSpeed's table of versions), newest first."""

SAME = {
    "multi_head_latent_attention": "multi_latent_attention",
    "qk_nope_head_dim": "qk_head_dim",
    "qk_rope_head_dim": "qk_pos_emb_head_dim",
    "moe_intermediate_size": "moe_ffn_hidden_size",
}
"""Options that MindSpeed-LLM called otherwise before it took Megatron's names."""

ALGORITHMS = {"ring": "megatron_cp_algo", "ulysses": "ulysses_cp_algo"}
"""``--context-parallel-algo`` by what it does."""

_MARKS = re.compile(
    r"mindspeed|torch_npu|ascend|hccl_|npu_|--use-fused-rmsnorm|--reuse-fp32-param|"
    r"--context-parallel-algo|--num-layer-list",
    re.IGNORECASE,
)


class MindSpeed(Megatron):
    """Reads, writes and amends launches of MindSpeed-LLM."""

    name = "mindspeed"

    def recognises(self, text: str) -> bool:
        """Tell whether a file has options of Megatron and a mark of Ascend."""
        return bool(_MARKS.search(text)) and super().recognises(text)

    def options(self, text: str) -> Options:
        """Read options, under Megatron's names where they mean the same."""
        found = read_options(text)
        given = {SAME.get(name, name): one for name, one in found.given.items()}
        given = {name: replace(one, name=name) for name, one in given.items()}
        often = given.get("moe_layer_freq")
        if often is not None and often.words and often.words[0].text.lstrip("-").isdigit():
            # A number is how often layers have experts; -1 and 1 mean all that may have them.
            given = {k: v for k, v in given.items() if k != "moe_layer_freq"}
        return replace(found, given=given)

    def shape(self, reading: Reading) -> None:
        """Read the network."""
        read_shape(reading)
        reading.find("moe_layer_freq")
        dense, shared = reading.find("first_k_dense_replace"), reading.find("n_shared_experts")
        if not reading.stated_count("experts.count"):
            return
        if dense is not None and dense.words and not dense.words[0].text.startswith("-"):
            reading.state("experts.leading_dense", reading.whole(dense, 0), dense)
        count = reading.whole(shared, 0)
        width = reading.stated_count("experts.ffn")
        if shared is not None and count and width:
            reading.state("experts.shared_ffn", count * width, shared, literal=False)

    def layout(self, reading: Reading) -> Layout:
        """Return what reads the layout."""
        return Lists(reading)

    def surroundings(self, reading: Reading, layout: Layout) -> None:
        """Ascend asks for nothing of the environment."""

    def groups(self, plan: Plan, job: Job, faults: list[Fault]) -> Groups:
        """Return the options of a plan."""
        groups = plan_options(plan, _on_core(job), faults)
        if plan.cp > 1:
            groups["cp"].append(("--context-parallel-algo", ALGORITHMS[plan.context]))
        groups["context"] = []
        if plan.zero > 1:
            text = f"zero {plan.zero}; MindSpeed shares the optimizer's state alone"
            faults.append(Fault("", "zero", text, "take zero 0 or 1"))
        return groups

    def workload(self, problem: Problem, job: Job, faults: list[Fault]) -> Groups:
        """Return the options of a workload."""
        groups = super().workload(problem, _on_core(job), faults)
        if problem.workload.architecture.norm == "rmsnorm":
            groups["network"].append(("--use-fused-rmsnorm",))
        if problem.workload.architecture.gated:
            groups["network"].append(("--use-fused-swiglu",))
        return groups

    def numbers(self, problem: Problem, job: Job) -> list[Option]:
        """Return number formats and attention."""
        return super().numbers(problem, replace(job, version=(0, 9)))

    def draft(self, problem: Problem, plan: Plan, version: str, job: Job) -> Draft:
        """Begin a script."""
        draft = super().draft(problem, plan, version, job)
        draft.home = "MINDSPEED_PATH"
        draft.environment = {
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
        }
        draft.sections["MODEL_ARGS"] = [("--use-mcore-models",)]
        return draft

    def amend(self, text: str, changes: Mapping[str, Value]) -> str:
        """
        Return a script with some values changed, and nothing else touched.

        Raises
        ------
        InputError
            A change cannot be launched, or the text is no script.
        """
        return amended(text, self.options(text), self.read, changes, self.groups, "2.1")


class Lists(Layout):
    """Reads a layout as MindSpeed-LLM states it."""

    def degrees(self) -> None:
        """State the parallel degrees; experts may take the tensor ranks too."""
        super().degrees()
        wide = self.reading.on("moe_tp_extend_ep")
        if wide is not None and self.tp > 1 and self.reading.stated_count("experts.count"):
            ep = self.reading.stated_count("ep") or 1
            self.reading.state("ep", ep * self.tp, wide, literal=False)
            self.reading.state("etp", 1, wide, literal=False)

    def context(self) -> None:
        """State how context ranks exchange."""
        reading = self.reading
        given = reading.find("context_parallel_algo")
        if self.cp == 1:
            return
        word = reading.text(given) or "megatron_cp_algo"
        if given is None:
            reading.assume("context", "ring", "no --context-parallel-algo: megatron_cp_algo")
            return
        ring = word in ("megatron_cp_algo", "kvallgather_cp_algo")
        reading.state("context", "ring" if ring else "ulysses", given, literal=False)
        if word not in ALGORITHMS.values():
            reading.remark(
                "megatron.context",
                "note",
                f"{given.written} is not modelled; it is priced as {'ring' if ring else 'ulysses'}",
                "nothing, or an algorithm that is modelled",
                given,
            )

    def stages(self) -> None:
        """State the layers of every stage, listed or not."""
        reading = self.reading
        listed = reading.find("num_layer_list")
        reading.find("noop_layers")
        noop: Given | None = self.options.given.get("noop_layers")
        if noop is not None:
            reading.remark(
                "mindspeed.noop-layers",
                "note",
                f"{noop.written}: layers that do nothing are priced as if they did",
                "read time and memory of their stages with care",
                noop,
            )
        if listed is None:
            super().stages()
            return
        text = "".join(word.text for word in listed.words)
        if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", text):
            reading.refuse(listed, f"'{text[:80]}' is no list of layers", "write 7,8,8,7")
            return
        layers = tuple(int(n) for n in text.split(","))
        if len(layers) != self.pp or (self.layers and sum(layers) != self.layers):
            reading.remark(
                "megatron.layout",
                "error",
                f"{listed.written} holds {sum(layers)} layers on {len(layers)} stages; "
                f"--num-layers is {self.layers}, the pipeline degree {self.pp}",
                f"list {self.pp} numbers that add up to {self.layers}",
                listed,
            )
            return
        reading.assume("vpp", 1, "no virtual stages with --num-layer-list")
        reading.state("layers_per_stage", layers, listed, literal=False)

    def attention(self) -> None:
        """State whether attention is fused; here only where it is asked for."""
        flash = self.reading.on("use_flash_attn")
        self.reading.find("attention_backend", "transformer_impl")
        if flash is not None:
            self.reading.state("flash_attention", True, flash, literal=False)
        else:
            self.reading.assume("flash_attention", False, "no --use-flash-attn")


def _on_core(job: Job) -> Job:
    """Take a release for the Megatron Core that it stands on."""
    core = next((core for since, core in CORES if job.version >= since), (0, 6))
    return replace(job, version=core)


DIALECT = MindSpeed()

__all__ = ["DIALECT", "MindSpeed"]
