"""Stages, chunks and the layers of each in the options of Megatron."""

from __future__ import annotations

from optplan.launches import megatron_layout
from optplan.launches.megatron_options import Given
from optplan.launches.megatron_state import State


class Stages(State):
    """Reads virtual stages and the layers of every stage."""

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
