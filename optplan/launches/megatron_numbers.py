"""Number formats and attention in the options of Megatron."""

from __future__ import annotations

from optplan.launches.megatron_state import State

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


class Numbers(State):
    """Reads precision and attention."""

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
