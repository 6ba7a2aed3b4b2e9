"""Plain words for terms, parts, phases and kinds of passes."""

from __future__ import annotations

TERMS = {
    "TF": "Matrix products, attention and norms of the slowest stage, forward and backward, over "
    "all its micro-batches. Everything else is overhead.",
    "TCT": "Tensor ranks hold a part of every layer and add up their partial results after "
    "attention and feed-forward. This is the time of those exchanges on the links.",
    "TAT": "The additions themselves inside the exchanges of tensor ranks.",
    "TCC": "Context ranks hold a part of every sequence and pass keys and values (or heads) "
    "around, so that every token sees the whole sequence.",
    "TCE": "Tokens travel to the experts chosen for them, and the results travel back.",
    "TL": "The host launches operators one by one. Where a layer is too small to keep the device "
    "busy meanwhile, the device waits.",
    "TO": "Communication that runs behind arithmetic costs nothing. It is counted in the other "
    "terms and taken off here.",
    "TCD": "Data ranks add up their gradients (and gather weights, where ZeRO divides them), as "
    "far as the backward pass does not hide it.",
    "TAD": "The additions themselves inside the exchange of gradients.",
    "TB": "The pipeline fills before the last stage has work and drains after the first has none. "
    "More micro-batches or fewer stages make it smaller.",
    "TCP": "Activations go from stage to stage, gradients come back.",
    "T_opt": "The optimizer reads its states and writes new weights, once a step.",
    "T_own": "What the spec's own surcharges add to every step.",
}
"""What each term of the step time is, for a reader who has not read the paper."""

PARTS = {
    "parameters": "weights as forward and backward read them",
    "gradients": "gradients, summed over micro-batches",
    "optimizer": "master weights and moments of the optimizer",
    "activations": "what the micro-batches in flight keep for their backward pass",
    "working": "needed for a moment: logits, or a block that is computed again",
    "reserve": "what runtime, collectives and fragmentation take",
}
"""What each part of a stage's memory is."""

PHASES = {
    "start": "before the first micro-batch",
    "forward": "at the end of the forward passes it holds",
    "backward": "in a backward pass, with logits or a block computed again",
    "step": "in the optimizer's step, when no activation is held",
}
"""When each phase is."""

KINDS = {"F": "forward", "B": "backward", "W": "weight gradients"}
"""Kinds of passes of a pipeline."""

ENDED = {
    "proved": "the solver closed the search",
    "exhausted": "every layout was decided",
    "time-limit": "time ran out",
    "interrupted": "a person stopped it",
    "unsupported": "this engine cannot answer it",
    "failed": "the engine failed",
}
"""Why a search stopped."""
