"""
How many parameters a block, the ends and the whole network hold, whole and per rank.

Matrices are divided over the tensor group, and so are the biases of column-parallel layers; norms,
routers and the biases that are added after a reduction are on every rank, as Megatron-LM places
them. Every part is rounded up on its own. Degrees may be numbers or arrays.
"""

from __future__ import annotations

from optplan.models.cost.arrays import Bool, Int, ceil_div, where_int
from optplan.models.spec.workload import Architecture, Experts, Latent, Workload


def attention_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """
    Parameters of one block's attention on one tensor rank, without the block's norms.

    With more tensor ranks than key heads every rank holds a copy of one key and one value head.
    In latent attention the matrices that compress are on every rank with their norms, those that
    expand are column-parallel (DeepSeek-V2, arXiv 2405.04434, section 2.1; placement as in
    Megatron-LM's ``MLASelfAttention``).
    """
    h = shape.hidden
    sinks = ceil_div(shape.heads, tp) if shape.sinks else 0
    output = h if shape.biases in ("attention", "all") else 0
    if shape.latent:
        return _latent_parameters(shape, shape.latent, tp) + sinks + output
    into = h if shape.biases == "none" else h + 1
    query = ceil_div((into + h) * shape.query_width, tp)
    key = 2 * into * key_width(shape, tp)
    norms = 2 * shape.head_width * _norm_vectors(shape) if shape.qk_norm else 0
    return query + key + sinks + output + norms


def key_width(shape: Architecture, tp: Int = 1) -> Int:
    """Width of the key heads on one tensor rank (values are as wide again): at least one head."""
    return where_int(tp > shape.key_heads, shape.head_width, ceil_div(shape.key_width, tp))


def _latent_parameters(shape: Architecture, latent: Latent, tp: Int) -> Int:
    """Parameters of latent attention; biases, where there are any, on what compresses."""
    h, vectors = shape.hidden, _norm_vectors(shape)
    bias = 0 if shape.biases == "none" else 1
    queries = shape.heads * (latent.nope + latent.rope)
    values = shape.heads * latent.value
    whole = (h + bias) * (latent.kv_rank + latent.rope) + vectors * latent.kv_rank
    divided = latent.kv_rank * (shape.heads * latent.nope + values) + values * h
    if latent.q_rank:
        whole += (h + bias) * latent.q_rank + vectors * latent.q_rank
        divided += latent.q_rank * queries
    else:
        divided += h * queries
    return whole + ceil_div(divided, tp)


def dense_ffn_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """Parameters of one plain feed-forward layer on one tensor rank."""
    return _feed_forward(shape, shape.ffn, tp)


def norm_parameters(shape: Architecture) -> int:
    """Parameters of one block's two norms, on every rank."""
    return 2 * shape.hidden * _norm_vectors(shape)


def layer_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """Parameters of one block with a plain feed-forward layer on one tensor rank."""
    return (
        attention_parameters(shape, tp) + dense_ffn_parameters(shape, tp) + norm_parameters(shape)
    )


def moe_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """
    Parameters of one block with experts on one tensor rank, without the routed experts.

    Attention, norms, the router and the shared experts' gate (both on every rank), and the shared
    experts (divided like a plain feed-forward layer).
    """
    experts = _experts(shape)
    router = experts.count * (shape.hidden + (1 if experts.router_bias else 0))
    count = attention_parameters(shape, tp) + norm_parameters(shape) + router
    if experts.shared_gate:
        count = count + shape.hidden
    if experts.shared_ffn:
        count = count + _feed_forward(shape, experts.shared_ffn, tp)
    return count


def expert_parameters(shape: Architecture, ep: Int = 1, etp: Int = 1) -> Int:
    """
    Parameters of the routed experts of one block on one rank.

    Parameters
    ----------
    ep
        Expert-parallel degree: the fullest rank has ``ceil(count / ep)`` experts.
    etp
        Tensor-parallel degree inside an expert.
    """
    experts = _experts(shape)
    return ceil_div(experts.count, ep) * _feed_forward(shape, experts.ffn, etp)


def front_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """Parameters before the first block on one tensor rank: the embedding, learned positions."""
    return _table(shape, tp) + shape.learned_positions * shape.hidden


def back_parameters(shape: Architecture, tp: Int = 1, alone: Bool = True) -> Int:
    """
    Parameters after the last block on one tensor rank, without the routed experts among them.

    The final norm, the output head, and the multi-token-prediction blocks.

    Parameters
    ----------
    tp
        Tensor-parallel degree.
    alone
        Whether the first stage is the same device. If not, tied embeddings are two copies of one
        matrix, and multi-token prediction needs a copy of the embedding.
    """
    copied = shape.tied_embeddings or shape.mtp > 0
    tables = where_int(alone, 0, 1 if copied else 0) + (0 if shape.tied_embeddings else 1)
    final = shape.hidden * _norm_vectors(shape)
    return final + tables * _table(shape, tp) + mtp_parameters(shape, tp)


def mtp_parameters(shape: Architecture, tp: Int = 1) -> Int:
    """
    Parameters of all multi-token-prediction modules on one tensor rank, without routed experts.

    Each is a block of the kind that the network ends with, a column-parallel projection from two
    widths to one, and three norms: of the hidden state, of the embedding and before the head
    (DeepSeek-V3, arXiv 2412.19437, section 2.2; ``enorm``, ``hnorm``, ``eh_proj`` and
    ``shared_head.norm`` of its weights). Embedding and head are the network's own.
    """
    block = moe_parameters(shape, tp) if shape.experts else layer_parameters(shape, tp)
    joint = ceil_div(2 * shape.hidden * shape.hidden, tp)
    return shape.mtp * (block + joint + 3 * shape.hidden * _norm_vectors(shape))


def mtp_expert_parameters(shape: Architecture, ep: Int = 1, etp: Int = 1) -> Int:
    """Parameters of the routed experts of all multi-token-prediction modules on one rank."""
    return shape.mtp * expert_parameters(shape, ep, etp) if shape.experts and shape.mtp else 0


def adapter_parameters(workload: Workload, tp: Int = 1) -> Int:
    """
    Parameters of the low-rank adapters of one plain block on one tensor rank; 0 without any.

    A linear layer from n to m gets ``A: n x r`` and ``B: r x m``. Beside a column-parallel layer A
    is on every rank and B divided, beside a row-parallel one A is divided and B on every rank (as
    in ``LoraParallelLinear`` of Hugging Face peft); beside what is not divided both are whole.
    Queries, keys, values, gate and up have one each.
    """
    ffn = _feed_forward_adapters(workload, workload.architecture.ffn, tp)
    return _attention_adapters(workload, tp) + ffn


def moe_adapter_parameters(workload: Workload, tp: Int = 1) -> Int:
    """
    Parameters of the low-rank adapters of one block with experts on one tensor rank.

    Those of the attention and of the shared experts; router and routed experts carry none.
    """
    width = _experts(workload.architecture).shared_ffn
    return _attention_adapters(workload, tp) + _feed_forward_adapters(workload, width, tp)


def stage_parameters(shape: Architecture, layers: Int, first: Bool, last: Bool, tp: Int = 1) -> Int:
    """
    Parameters of one stage of plain blocks on one tensor rank.

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
    front = where_int(first, front_parameters(shape, tp))
    back = where_int(last, back_parameters(shape, tp, alone=first))
    return layers * layer_parameters(shape, tp) + front + back


def total_parameters(shape: Architecture) -> int:
    """Parameters of the whole network, each matrix once, multi-token prediction included."""
    if shape.experts is None:
        return int(stage_parameters(shape, shape.layers, first=True, last=True))
    sparse = shape.layers - shape.experts.leading_dense
    blocks = shape.experts.leading_dense * layer_parameters(shape)
    blocks = blocks + sparse * (moe_parameters(shape) + expert_parameters(shape))
    ends = front_parameters(shape) + back_parameters(shape) + mtp_expert_parameters(shape)
    return int(blocks + ends)


def active_parameters(shape: Architecture) -> int:
    """
    Parameters that one token meets: all but the routed experts that it does not take.

    Embedding and head both count, as in the figures of Mixtral and Qwen3 (others leave the
    embedding out); multi-token prediction does not.
    """
    plain = shape.model_copy(update={"mtp": 0})
    if shape.experts is None:
        return total_parameters(plain)
    sparse = shape.layers - shape.experts.leading_dense
    idle = shape.experts.count - shape.experts.per_token
    return total_parameters(plain) - sparse * idle * int(_feed_forward(shape, shape.experts.ffn, 1))


def _attention_adapters(workload: Workload, tp: Int) -> Int:
    """Parameters of the adapters of one block's attention on one tensor rank."""
    if workload.lora is None:
        return 0
    shape, r = workload.architecture, workload.lora.rank
    h = shape.hidden
    if shape.latent is None:
        # h wide at one side, as wide as the heads at the other.
        return r * (4 * h + ceil_div(2 * shape.query_width, tp) + 2 * key_width(shape, tp))
    latent = shape.latent
    queries = shape.heads * (latent.nope + latent.rope)
    keys, values = shape.heads * latent.nope, shape.heads * latent.value
    # Keys and values down and up, the output; queries down and up, or straight.
    whole = (h + latent.kv_rank + latent.rope) + latent.kv_rank + h
    whole += h + 2 * latent.q_rank
    return r * (whole + ceil_div(queries + keys + 2 * values, tp))


def _feed_forward_adapters(workload: Workload, width: int, tp: Int) -> Int:
    """Parameters of the adapters of a feed-forward layer of some width on one tensor rank."""
    if workload.lora is None or workload.lora.layers == "attention" or width == 0:
        return 0
    shape, r = workload.architecture, workload.lora.rank
    into = 2 if shape.gated else 1
    return r * ((into + 1) * shape.hidden + ceil_div((into + 1) * width, tp))


def _feed_forward(shape: Architecture, width: int, tp: Int) -> Int:
    """Parameters of a feed-forward layer of some width on one tensor rank."""
    h, into = shape.hidden, 2 if shape.gated else 1
    if shape.biases == "all":
        return ceil_div((into * (h + 1) + h) * width, tp) + h
    return ceil_div((into + 1) * h * width, tp)


def _table(shape: Architecture, tp: Int) -> Int:
    """Parameters of the embedding, or of the head, on one tensor rank."""
    return ceil_div(shape.vocabulary * shape.hidden, tp)


def _norm_vectors(shape: Architecture) -> int:
    """Vectors of one norm: a weight, and for LayerNorm a bias."""
    return 2 if shape.norm == "layernorm" else 1


def _experts(shape: Architecture) -> Experts:
    """Return the shape's experts."""
    if shape.experts is None:
        raise ValueError(f"{shape.name} has no experts")
    return shape.experts
