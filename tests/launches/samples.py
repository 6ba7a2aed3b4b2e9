"""A launch of our own, sound as it stands, and ways to break it."""

from __future__ import annotations

CLEAN = r"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-2}
TP=4
PP=2
MACHINE_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES
"
GPT_ARGS="
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --sequence-parallel \
    --num-layers 32 \
    --hidden-size 4096 \
    --ffn-hidden-size 14336 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 8 \
    --seq-length 8192 \
    --max-position-embeddings 8192 \
    --position-embedding-type rope \
    --swiglu \
    --disable-bias-linear \
    --normalization RMSNorm \
    --untie-embeddings-and-output-weights \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --vocab-size 128256 \
    --micro-batch-size 1 \
    --global-batch-size 128 \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --bf16
"
torchrun $MACHINE_ARGS pretrain_gpt.py $GPT_ARGS --data-path $DATA_PATH
"""


def changed(*changes: tuple[str, str]) -> str:
    """The clean launch with texts replaced; a text that is not there is a fault of the test."""
    text = CLEAN
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def with_options(options: str, *changes: tuple[str, str]) -> str:
    """The clean launch with options added."""
    return changed(("--bf16", f"{options} --bf16"), *changes)
