"""Parallel degrees, sequence and batches in the options of Megatron."""

from __future__ import annotations

from optplan.launches.megatron_state import ARGUMENTS, State


class Degrees(State):
    """Reads degrees and batches."""

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
