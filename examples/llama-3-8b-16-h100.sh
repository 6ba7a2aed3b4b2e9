#!/bin/bash
# Llama-3-8B on two nodes of 8 H100, to be examined: optplan doctor THIS --on h100-sxm-80gb
NNODES=2
TP=4
PP=3

ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --sequence-parallel
    --use-distributed-optimizer
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --vocab-size 128256
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --swiglu
    --disable-bias-linear
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --micro-batch-size 1
    --global-batch-size 128
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --overlap-grad-reduce
    --overlap-param-gather
    --bf16
)

torchrun --nproc_per_node 8 --nnodes $NNODES --node_rank "$NODE_RANK" \
    --master_addr "$MASTER_ADDR" pretrain_gpt.py "${ARGS[@]}" --data-path "$DATA_PATH"
