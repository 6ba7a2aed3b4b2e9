"""The layout in the options of Megatron: degrees, batches, stages, overlap, machine."""

from __future__ import annotations

from math import gcd

from optplan.launches import megatron_layout
from optplan.launches.megatron_options import Given, Options
from optplan.launches.megatron_shape import read_shape
from optplan.launches.reading import MOST, Reading

STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stages by ``--data-parallel-sharding-strategy``."""

FUSED = ("flash", "fused", "auto")
"""Values of ``--attention-backend`` that never write the scores to memory."""

NOT_MODELLED = (
    "grad_reduce_in_bf16",
    "fp8_param_gather",
    "main_grads_dtype",
    "exp_avg_dtype",
    "exp_avg_sq_dtype",
    "cpu_offloading",
    "fine_grained_activation_offloading",
    "reuse_fp32_param",
    "swap_attention",
    "swap_optimizer",
    "recompute_activation_function",
)
"""Options that save memory in ways that have no price here."""

ARGUMENTS = "megatron/training/arguments.py"


class Layout:
    """
    Reads a layout.

    Parameters
    ----------
    reading
        Where it is noted.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.options = reading.options
        self.layers = 0
        self.tp = self.pp = self.cp = self.vpp = 1
        self.world: int | None = None
        self.node = 0

    def read(self) -> None:
        """State everything."""
        self.machine()
        self.degrees()
        self.batches()
        self.stages()
        self.recompute()
        self.sharding()
        self.number_format()
        self.surroundings()

    # -- machine ----------------------------------------------------------------------------------

    def machine(self) -> None:
        """State nodes and devices of a node, as torchrun, srun or a log has them."""
        reading, started = self.reading, self.options.launcher
        each = next((started[n] for n in _PER_NODE if n in started), None)
        nodes = next((started[n] for n in ("nnodes", "nodes") if n in started), None)
        reading.used.update((*_PER_NODE, "nnodes", "nodes", "ntasks", "node_rank"))
        world = reading.find("world_size") if self.options.kind == "log" else None
        per = self._machine("devices_per_node", each)
        count = self._machine("nodes", nodes)
        tasks = started.get("ntasks")
        if count is None and per and tasks is not None and _plain(tasks):
            total = int(tasks.words[0].text)
            if total % per == 0:
                count = total // per
                reading.state("nodes", count, tasks, literal=False)
        if nodes is None and tasks is None and each is not None and per:
            # torchrun starts one node unless told otherwise.
            reading.assume("nodes", 1, "no --nnodes: one node")
            count = 1
        self.node = per or 0
        if count and per:
            self.world = count * per
        elif world is not None:
            self.world = reading.whole(world)
            reading.state("devices", self.world, world)
        if each is None and nodes is None and world is None and self.options.has("num_gpus"):
            reading.find("num_gpus")

    def _machine(self, name: str, given: Given | None) -> int | None:
        """State a number of the machine; what nobody sets is left to the caller."""
        if given is None or not given.words:
            return None
        word = given.words[0]
        if word.unknown:
            names = " and ".join(f"${n}" for n in word.unknown)
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{given.flag} depends on {names}, which nobody sets",
                f"give it, as in --set {word.unknown[0]}=8",
                given,
            )
            return None
        if not _plain(given):
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{given.written} is no number",
                "give the number with a spec's cluster",
                given,
            )
            return None
        value = self.reading.whole(given)
        if value is not None and value > MOST[name]:
            self.reading.refuse(given, f"{value} is out of range", "write a smaller number")
            return None
        self.reading.state(name, value, given)
        return value

    # -- degrees ----------------------------------------------------------------------------------

    def degrees(self) -> None:
        """State the parallel degrees."""
        reading = self.reading
        one = "1 unless given"
        self.layers = reading.stated_count("layers")
        self.tp = reading.count("tp", "tensor_model_parallel_size", default=1, why=one)
        self.pp = reading.count("pp", "pipeline_model_parallel_size", default=1, why=one)
        self.cp = reading.count("cp", "context_parallel_size", default=1, why=one)
        experts = any(s.name == "experts.count" for s in reading.stated)
        ep = reading.find("expert_model_parallel_size")
        etp = reading.find("expert_tensor_parallel_size")
        if experts:
            if ep is not None:
                reading.state("ep", reading.whole(ep), ep)
            else:
                reading.assume("ep", 1, one)
            if etp is not None:
                reading.state("etp", reading.whole(etp), etp)
            else:
                why = f"no --expert-tensor-parallel-size: etp is tp ({ARGUMENTS})"
                reading.assume("etp", self.tp, why)
        elif ep is not None and (reading.whole(ep) or 1) > 1:
            reading.remark(
                "megatron.experts-missing",
                "error",
                f"{ep.written} without --num-experts; Megatron refuses it",
                "add --num-experts, or leave the expert degree out",
                ep,
            )
        self._sequence()
        self.context()
        order = reading.on("use_tp_pp_dp_mapping")
        if order is not None:
            reading.state("order", "pipeline_inside", order, literal=False)

    def _sequence(self) -> None:
        """State sequence parallelism."""
        reading = self.reading
        given = reading.on("sequence_parallel")
        if given is None:
            reading.assume("sequence_parallel", False, "no --sequence-parallel")
        elif self.tp == 1:
            reading.assume("sequence_parallel", False, f"switched off at tp 1 ({ARGUMENTS})")
            if self.options.kind != "log":
                reading.remark(
                    "megatron.sequence-parallel-ignored",
                    "warning",
                    "--sequence-parallel at --tensor-model-parallel-size 1 is switched off",
                    "leave it out, or raise the tensor degree",
                    given,
                )
        else:
            reading.state("sequence_parallel", True, given, literal=False)

    def context(self) -> None:
        """State how context ranks exchange."""
        reading = self.reading
        given = reading.find("cp_comm_type")
        word = (reading.text(given) or "p2p").lower()
        if given is None or self.cp == 1:
            return
        reading.state("context", "ulysses" if word.startswith("a2a") else "ring", given, False)
        if word not in ("p2p", "a2a"):
            like = "a2a" if word.startswith("a2a") else "p2p"
            reading.remark(
                "megatron.context",
                "note",
                f"{given.written} is not modelled; it is priced as {like}",
                f"write {like} to compare like with like",
                given,
            )

    def batches(self) -> None:
        """State sequence and batches."""
        reading = self.reading
        reading.count("sequence_length", "seq_length", "encoder_seq_length")
        micro = reading.count("micro_batch", "micro_batch_size")
        given = reading.find("global_batch_size")
        if given is not None:
            reading.state("global_batch", reading.whole(given), given)
        elif micro and self.world and self.world % (self.tp * self.pp * self.cp) == 0:
            ranks = self.world // (self.tp * self.pp * self.cp)
            why = f"no --global-batch-size: micro-batch * dp {ranks} ({ARGUMENTS})"
            reading.assume("global_batch", micro * ranks, why)
        ramp = reading.find("rampup_batch_size")
        if ramp is not None and ramp.words:
            reading.remark(
                "megatron.batch-ramp",
                "note",
                f"{ramp.written} starts with smaller batches; prices are of the full batch",
                "nothing, or price the smaller batch too",
                ramp,
            )

    # -- stages -----------------------------------------------------------------------------------

    def stages(self) -> None:
        """State virtual stages and the layers of every stage."""
        reading = self.reading
        layout = reading.find("pipeline_model_parallel_layout")
        first = reading.find("decoder_first_pipeline_num_layers")
        last = reading.find("decoder_last_pipeline_num_layers")
        front = reading.on("account_for_embedding_in_pipeline_split")
        back = reading.on("account_for_loss_in_pipeline_split")
        each = reading.find("num_layers_per_virtual_pipeline_stage")
        chunks = reading.find("num_virtual_stages_per_pipeline_rank")
        told = reading.find("virtual_pipeline_model_parallel_size")
        reading.find("microbatch_group_size_per_virtual_pipeline_stage")
        if layout is not None and layout.words:
            self.laid_out(layout)
            return
        if first is not None or last is not None:
            self.ends(first, last)
            self._chunks(chunks or told)
            return
        if not self.layers:
            self._chunks(chunks or told)
            return
        self._equal(bool(front), bool(back), front or back, each, chunks or told)

    def _chunks(self, given: Given | None) -> None:
        """State virtual stages by their number."""
        reading = self.reading
        if given is None:
            reading.assume("vpp", 1, "no virtual stages")
            return
        self.vpp = reading.whole(given) or 1
        if self._interleaves(given):
            reading.state("vpp", self.vpp, given)
            reading.state("schedule", "interleaved", given, literal=False)

    def _interleaves(self, given: Given) -> bool:
        """Tell whether chunks mean anything; one stage has no order to choose."""
        if self.pp == 1 and self.vpp > 1:
            self.reading.remark(
                "megatron.chunks",
                "error",
                f"{given.written} with one pipeline stage; Megatron refuses it",
                "leave it out, or raise the pipeline degree",
                given,
            )
            self.vpp = 1
        return self.vpp > 1

    def _equal(
        self,
        front: bool,
        back: bool,
        ends: Given | None,
        each: Given | None,
        chunks: Given | None,
    ) -> None:
        """State equal stages, embedding and head counted as layers where asked."""
        reading, pp = self.reading, self.pp
        total = self.layers + front + back
        per_stage, over = divmod(total, pp)
        where = self.options.given.get("pipeline_model_parallel_size") or ends
        if over:
            held = per_stage * pp
            lost = total - held
            counted = f" ({self.layers} and {front + back} for the ends)" if front + back else ""
            reading.remark(
                "megatron.layers-lost",
                "error",
                f"{total} layers{counted} do not divide into {pp} stages: {per_stage} each are "
                f"{held}; packages up to 0.8 lose {lost} in silence, later ones refuse the launch",
                _stage_remedy(total, pp),
                where,
            )
        if each is not None:
            size = reading.whole(each) or 1
            if per_stage % size:
                reading.remark(
                    "megatron.chunks",
                    "error",
                    f"{per_stage} layers a stage are no multiple of {each.flag} {size}",
                    f"write {_nearest_divisor(per_stage, size)}",
                    each,
                )
            self.vpp = max(1, per_stage // size)
            if self._interleaves(each):
                reading.state("vpp", self.vpp, each, literal=False)
                reading.state("schedule", "interleaved", each, literal=False)
        else:
            self._chunks(chunks)
            if chunks is not None and self.vpp > 1 and per_stage % self.vpp:
                reading.remark(
                    "megatron.chunks",
                    "error",
                    f"{per_stage} layers a stage are no multiple of {chunks.written}",
                    f"write {_nearest_divisor(per_stage, self.vpp)}",
                    chunks,
                )
        if ends is not None and pp > 1:
            layers = [per_stage] * pp
            layers[0] -= front
            layers[-1] -= back
            if min(layers) >= 0:
                reading.state("layers_per_stage", tuple(layers), ends, literal=False)
        else:
            reading.assume("layers_per_stage", (per_stage,) * pp, "layers / stages")

    def ends(self, first: Given | None, last: Given | None) -> None:
        """State stages whose ends have numbers of their own."""
        reading, pp = self.reading, self.pp
        one, other = reading.whole(first), reading.whole(last)
        given = last or first
        assert given is not None
        if pp == 1:
            kept = min(n for n in (one, other) if n is not None) if one or other else 0
            reading.remark(
                "megatron.last-stage-alone",
                "error",
                f"{given.written} with one pipeline stage: it may train {kept} of {self.layers} "
                "layers and report an absurd throughput (NVIDIA/Megatron-LM issue 1778)",
                f"leave {given.flag} out where --pipeline-model-parallel-size is 1",
                given,
            )
            return
        middle = pp - (one is not None) - (other is not None)
        left = self.layers - (one or 0) - (other or 0)
        if middle < 0 or (middle == 0 and left) or (middle and (left <= 0 or left % middle)):
            each = f"{left} layers on {middle} stages between" if middle else f"{left} layers over"
            reading.remark(
                "megatron.layers-lost",
                "error",
                f"{given.written} leaves {each} at pp {pp}; every stage between must hold as many",
                _end_remedy(self.layers, pp, one, other),
                given,
            )
            return
        layers = [left // middle if middle else 0] * pp
        if one is not None:
            layers[0] = one
        if other is not None:
            layers[-1] = other
        reading.state("layers_per_stage", tuple(layers), given, literal=False)

    def laid_out(self, given: Given) -> None:
        """State what a layout says."""
        reading = self.reading
        text = given.words[0].text
        try:
            chunks = megatron_layout.parse(text)
            layers = megatron_layout.stages(chunks, self.pp)
        except megatron_layout.LayoutError as error:
            reading.refuse(given, f"'{text[:80]}' is no layout: {error}", "write Et*4|t*4|t*4L")
            return
        self.vpp = len(chunks) // self.pp
        if self.vpp > 1:
            reading.state("vpp", self.vpp, given, literal=False)
            reading.state("schedule", "interleaved", given, literal=False)
        held = sum(layers)
        if self.layers and held != self.layers:
            reading.remark(
                "megatron.layout",
                "error",
                f"the layout holds {held} layers, --num-layers is {self.layers}",
                f"write --num-layers {held}, or another layout",
                given,
            )
        wanted = reading.stated_count("mtp")
        found = sum(chunk.predictions for chunk in chunks)
        if found != wanted:
            reading.remark(
                "megatron.layout",
                "error",
                f"the layout holds {found} blocks of prediction, --mtp-num-layers is {wanted}",
                f"write --mtp-num-layers {found}, or another layout",
                given,
            )
        reading.state("layers_per_stage", layers, given, literal=False)

    # -- the rest ---------------------------------------------------------------------------------

    def recompute(self) -> None:
        """State what the backward pass computes again."""
        reading = self.reading
        kind = reading.find("recompute_granularity")
        short = reading.on("recompute_activations")
        method, number = reading.find("recompute_method"), reading.find("recompute_num_layers")
        modules = reading.find("recompute_modules")
        reading.find("distribute_saved_activations")
        word = reading.text(kind)
        if word is None and short is not None:
            reading.state("recompute", "selective", short, literal=False)
        elif word == "selective" and kind is not None:
            reading.state("recompute", "selective", kind)
        elif word == "full" and kind is not None:
            self.full(kind, method, number)
            return
        else:
            reading.assume("recompute", "none", "no --recompute-granularity")
            some = method or number
            if some is not None and self.options.kind != "log":
                reading.remark(
                    "megatron.recompute-ignored",
                    "warning",
                    f"{some.written} without --recompute-granularity does nothing",
                    "add --recompute-granularity full, or leave it out",
                    some,
                )
            return
        if number is not None and self.options.kind != "log":
            reading.remark(
                "megatron.recompute-refused",
                "error",
                f"{number.written} with selective recomputation; Megatron refuses it "
                "(megatron/core/transformer/transformer_config.py)",
                "leave it out, or write --recompute-granularity full",
                number,
            )
        words = [word.text for word in modules.words] if modules is not None else []
        others = [w for w in words if w != "core_attn"]
        if others and modules is not None:
            reading.remark(
                "megatron.recompute-modules",
                "note",
                f"{' '.join(others)} of {modules.flag} is not modelled; selective is priced as "
                "core_attn",
                "read memory and time with care",
                modules,
            )

    def full(self, kind: Given, method: Given | None, number: Given | None) -> None:
        """State recomputation of whole layers, of all or of some in every chunk."""
        reading = self.reading
        how = (reading.text(method) or "").lower()
        some = reading.whole(number)
        if method is None or number is None:
            missing = "--recompute-method" if method is None else "--recompute-num-layers"
            reading.remark(
                "megatron.recompute-incomplete",
                "error",
                f"--recompute-granularity full without {missing}; Megatron refuses it "
                "(megatron/core/transformer/transformer_config.py)",
                "add --recompute-method uniform --recompute-num-layers 1",
                kind,
            )
        reading.state("recompute", "full", kind)
        layers = next(
            (
                s.value
                for s in (*reversed(reading.stated), *reading.assumed)
                if s.name == "layers_per_stage"
            ),
            None,
        )
        if how == "block" and some is not None and number is not None and isinstance(layers, tuple):
            again = self.blocks(layers, some)
            reading.state("recomputed_layers_per_stage", again, number, literal=False)
        elif how == "uniform" and some is not None and some > 1 and number is not None:
            reading.remark(
                "megatron.recompute-uniform",
                "note",
                f"{number.written} keeps one input for every {some} layers and holds {some} "
                "layers at once when it computes them again; it is priced as 1",
                "read memory with care",
                number,
            )

    def blocks(self, layers: tuple[int, ...], some: int) -> tuple[int, ...]:
        """Count what ``--recompute-method block`` recomputes on every stage."""
        return tuple(blocks_of(n, some, self.vpp) for n in layers)

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

    def number_format(self) -> None:
        """State precision and attention."""
        reading = self.reading
        half, brain = reading.on("fp16"), reading.on("bf16")
        small = reading.find("fp8_format", "fp8")
        if half and brain:
            reading.remark(
                "megatron.precision",
                "error",
                "--fp16 and --bf16 together; Megatron refuses it",
                "leave one of them out",
                half,
            )
        if small is not None and reading.text(small):
            reading.state("precision", "fp8", small, literal=False)
        elif brain is not None:
            reading.state("precision", "bf16", brain, literal=False)
        elif half is not None:
            reading.state("precision", "fp16", half, literal=False)
        else:
            reading.assume("precision", "fp32", "neither --bf16 nor --fp16")
            reading.remark(
                "megatron.precision",
                "warning",
                "neither --bf16 nor --fp16: everything is computed in fp32",
                "add --bf16",
            )

        found = [self.options.given[n].flag for n in NOT_MODELLED if reading.on(n)]
        if found:
            reading.remark(
                "megatron.not-modelled",
                "note",
                f"{', '.join(found)}: what it changes of memory is not modelled",
                "read memory with care",
                self.options.given[next(n for n in NOT_MODELLED if n in self.options.given)],
            )
        self.attention()

    def attention(self) -> None:
        """State whether attention is fused."""
        reading = self.reading
        flash, backend = reading.on("use_flash_attn"), reading.find("attention_backend")
        implementation = reading.find("transformer_impl")
        word = (reading.text(backend) or "").lower().rpartition(".")[2]
        environment = self.options.environment
        off = [environment.get(n) for n in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN")]
        if word and backend is not None:
            reading.state("flash_attention", word in FUSED, backend, literal=False)
        elif flash is not None:
            reading.state("flash_attention", True, flash, literal=False)
        elif all(one is not None and one.text == "0" for one in off):
            reading.assume("flash_attention", False, "NVTE_FLASH_ATTN=0, NVTE_FUSED_ATTN=0")
        elif reading.text(implementation) == "local":
            reading.assume("flash_attention", False, "--transformer-impl local")
        else:
            reading.assume("flash_attention", True, "Transformer Engine's fused attention")

    def surroundings(self) -> None:
        """Look at the environment and at what the shell made of the script."""
        for flag, line in self.options.lost:
            self.reading.remark(
                "shell.cut-off",
                "error",
                f"{flag} and what follows is a command of its own: the line before it ends without "
                "a backslash, or with a comment or a blank behind it",
                "end the line before with a backslash and nothing behind it",
                line,
            )
        for word in self.options.loose:
            self.reading.remark(
                "launch.unknown",
                "note",
                f"{word.text} may hold more options, and nobody sets it",
                "give it, as in --set NAME='--option 1'",
                word.line,
            )


_PER_NODE = ("nproc_per_node", "gpus_per_node", "ntasks_per_node")


def _plain(given: Given) -> bool:
    """Tell whether an option's value is a number and nothing else."""
    return bool(given.words) and given.words[0].text.isdigit()


def in_node(node: int, alone: bool, members: int, stride: int) -> int:
    """Count the members of a group that one node holds, as ``models.cost.traffic.group`` does."""
    if alone:
        return members
    return gcd(members, max(1, gcd(node, stride * members) // stride))


def blocks_of(layers: int, some: int, vpp: int) -> int:
    """Count the layers that a stage recomputes where each of its chunks recomputes some."""
    # A chunk that an end shortens holds one layer less than the others.
    each, over = divmod(layers, vpp)
    return over * min(some, each + 1) + (vpp - over) * min(some, each)


def _stage_remedy(layers: int, pp: int) -> str:
    """Name stages that divide the layers, and uneven ones."""
    legal = [p for p in range(1, layers + 1) if layers % p == 0]
    below = max(p for p in legal if p <= pp)
    above = min((p for p in legal if p > pp), default=None)
    near = f"{below} or {above}" if above else f"{below}"
    if layers < pp:
        return f"write --pipeline-model-parallel-size {near}"
    each, over = divmod(layers, pp)
    return (
        f"write --pipeline-model-parallel-size {near}, or from core 0.13 on a layout with {over} "
        f"stages of {each + 1} and {pp - over} of {each} (--pipeline-model-parallel-layout)"
    )


def _end_remedy(layers: int, pp: int, first: int | None, last: int | None) -> str:
    """Name numbers of layers for the last (or first) stage that leave the others equal."""
    given = last if last is not None else first
    other = (first or 0) if last is not None else 0
    middle = pp - 1 - (first is not None and last is not None)
    legal = [n for n in range(1, layers) if middle and (layers - other - n) % middle == 0]
    legal = [n for n in legal if layers - other - n > 0]
    near = sorted(legal, key=lambda n: abs(n - (given or 0)))[:2]
    if not near:
        return "write numbers that leave as many layers to every stage between"
    return f"write {' or '.join(map(str, sorted(near)))}"


def _nearest_divisor(total: int, near: int) -> int:
    """Return the divisor of a number that is nearest to another."""
    divisors = [n for n in range(1, max(1, total) + 1) if max(1, total) % n == 0]
    return min(divisors, key=lambda n: abs(n - near))


def overlap_of(reading: Reading, vpp: int) -> tuple[str, ...]:
    """Return the overlaps that are switched on, and remark those that cannot work."""
    found: list[str] = []
    grads, params = reading.on("overlap_grad_reduce"), reading.on("overlap_param_gather")
    tensor = reading.on("tp_comm_overlap")
    experts = reading.on("overlap_moe_expert_parallel_comm")
    reading.on("overlap_p2p_comm", "overlap_p2p_communication")
    off = reading.on("no_overlap_p2p_communication")
    zero = next((s.value for s in reading.stated if s.name == "zero"), 0)
    split = any(s.name == "sequence_parallel" and s.value for s in reading.stated)
    if grads:
        found.append("grad-reduce-overlap")
    if params:
        found.append("param-gather-overlap")
        lacks = [
            flag
            for flag, there in (
                ("--use-distributed-optimizer", zero or _sharded(reading.options)),
                ("--overlap-grad-reduce", grads),
            )
            if not there
        ]
        if lacks:
            reading.remark(
                "megatron.overlap",
                "error",
                f"--overlap-param-gather without {' and '.join(lacks)}; Megatron refuses it "
                f"({ARGUMENTS})",
                f"add {' '.join(lacks)}",
                params,
            )
    if tensor:
        found.append("tp-overlap")
        if not split:
            reading.remark(
                "megatron.overlap",
                "error",
                f"--tp-comm-overlap without sequence parallelism; Megatron refuses it "
                f"({ARGUMENTS})",
                "add --sequence-parallel at a tensor degree of 2 or more",
                tensor,
            )
    if vpp > 1 and not off:
        found.append("p2p-overlap")
    if experts:
        found.append("expert-overlap")
    return tuple(found)


def _sharded(options: Options) -> bool:
    """Tell whether the distributed optimizer is asked for, whatever it comes to."""
    return options.has("use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp")


def connections(reading: Reading, tp: int, cp: int) -> None:
    """Remark the number of CUDA connections where the launch would stop, or wait, for it."""
    if reading.options.kind != "script":
        return
    given = reading.options.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    fsdp = reading.options.has("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
    line = given.line if given is not None else 0
    if given is not None and given.unknown:
        return
    if fsdp and given is not None and given.text == "1":
        reading.remark(
            "megatron.connections",
            "error",
            f"CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP; Megatron refuses it ({ARGUMENTS})",
            "export CUDA_DEVICE_MAX_CONNECTIONS=8",
            line,
        )
    elif not fsdp and (tp > 1 or cp > 1) and (given is None or given.text != "1"):
        experts = reading.options.has("overlap_moe_expert_parallel_comm")
        said = "is not set" if given is None else f"is {given.text}"
        reading.remark(
            "megatron.connections",
            "warning" if experts else "error",
            f"CUDA_DEVICE_MAX_CONNECTIONS {said} at tp {tp}, cp {cp}; before Blackwell Megatron "
            f"refuses anything but 1 there ({ARGUMENTS})",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
            line,
        )


def read_launch(options: Options) -> tuple[Reading, Layout]:
    """Read everything but what one framework has beyond another."""
    reading = Reading(options)
    read_shape(reading)
    layout = Layout(reading)
    layout.read()
    return reading, layout
