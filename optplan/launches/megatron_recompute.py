"""What the backward pass computes again, in the options of Megatron."""

from __future__ import annotations

from optplan.launches.megatron_options import Given
from optplan.launches.megatron_state import State


class Recompute(State):
    """Reads recomputation."""

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


def blocks_of(layers: int, some: int, vpp: int) -> int:
    """Count the layers that a stage recomputes where each of its chunks recomputes some."""
    # A chunk that an end shortens holds one layer less than the others.
    each, over = divmod(layers, vpp)
    return over * min(some, each + 1) + (vpp - over) * min(some, each)
