"""How many parameters a stage holds, whole and per tensor rank."""

from __future__ import annotations

from optplan.models.cost.arrays import Bool, Int, ceil_div, where_int
from optplan.models.spec.workload import Architecture


def layer_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """
    Parameters of one block on one tensor rank.

    Matrices and the biases of column-parallel layers are divided over the tensor group, norms and
    the biases that are added after a reduction are on every rank.
    """
    h, q, kv, f = shape.hidden, shape.query_width, shape.key_width, shape.ffn
    into = 2 if shape.gated else 1
    divided = h * (q + 2 * kv) + q * h + into * h * f + f * h
    if shape.biases in ("qkv", "all"):
        divided += q + 2 * kv
    whole = 2 * h * _norm_vectors(shape)
    if shape.biases == "all":
        divided += into * f
        whole += 2 * h
    return ceil_div(divided, tp) + whole


def stage_parameters(shape: Architecture, layers: Int, first: Bool, last: Bool, tp: Int = 1) -> Int:
    """
    Parameters of one stage on one tensor rank.

    Parameters
    ----------
    layers
        Blocks of the stage.
    first, last
        Whether it holds the input embedding, and the final norm and output head.
    tp
        Tensor-parallel degree.

    Notes
    -----
    Tied embeddings are one matrix while first and last stage are the same device, and two copies
    otherwise.
    """
    table = ceil_div(shape.vocabulary * shape.hidden, tp)
    positions = shape.learned_positions * shape.hidden
    head = where_int(first, 0, table) if shape.tied_embeddings else table
    front = where_int(first, table + positions)
    back = where_int(last, head + shape.hidden * _norm_vectors(shape))
    return layers * layer_parameters(shape, tp) + front + back


def total_parameters(shape: Architecture) -> int:
    """Parameters of the whole network."""
    return int(stage_parameters(shape, shape.layers, first=True, last=True))


def _norm_vectors(shape: Architecture) -> int:
    """Vectors of one norm: a weight, and for LayerNorm a bias."""
    return 2 if shape.norm == "layernorm" else 1
