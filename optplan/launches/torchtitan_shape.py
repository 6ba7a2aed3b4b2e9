"""Networks that torchtitan knows by name, and those of other sizes that it can build."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from optplan import catalogue
from optplan.launches.documents import Entry, Page, place
from optplan.launches.launch import Value
from optplan.launches.notes import refuse, shape_values
from optplan.models.errors import Fault
from optplan.models.record import LARGEST_COUNT
from optplan.models.spec.workload import Architecture, Workload
from optplan.places import short

FLAVORS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "llama-3-8b",
    ("llama3", "70B"): "llama-3-70b",
    ("llama3", "405B"): "llama-3.1-405b",
    ("qwen3", "0.6B"): "qwen3-0.6b",
    ("qwen3", "1.7B"): "qwen3-1.7b",
    ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "14B"): "qwen3-14b",
    ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
"""
Model and flavor of a job, and the network of the catalogue that they are.

Packages torchtitan 0.1.0 (llama3 alone), 0.2.0 and 0.3.0: torchtitan/models/*/__init__.py.
"""

OWN = "optplan"
"""Flavor that a written job adds for a network of its own."""

LLAMA = {
    "dim": "hidden",
    "n_layers": "layers",
    "n_heads": "heads",
    "n_kv_heads": "kv_heads",
    "vocab_size": "vocabulary",
}
"""Arguments of TransformerModelArgs, torchtitan/models/llama3/model/args.py of package 0.2.0."""

QWEN = LLAMA | {
    "head_dim": "head_dim",
    "hidden_dim": "ffn",
    "qk_norm": "qk_norm",
    "enable_weight_tying": "tied_embeddings",
    "moe_inter_dim": "experts.ffn",
}
"""Arguments of Qwen3ModelArgs, torchtitan/models/qwen3/model/args.py of package 0.2.0."""

DEEPSEEK = {
    "dim": "hidden",
    "n_layers": "layers",
    "n_heads": "heads",
    "vocab_size": "vocabulary",
    "inter_dim": "ffn",
    "moe_inter_dim": "experts.ffn",
    "n_dense_layers": "experts.leading_dense",
    "q_lora_rank": "latent.q_rank",
    "kv_lora_rank": "latent.kv_rank",
    "qk_nope_head_dim": "latent.nope",
    "qk_rope_head_dim": "latent.rope",
    "v_head_dim": "latent.value",
}
"""Arguments of DeepSeekV3ModelArgs, torchtitan/models/deepseek_v3/model/args.py of 0.2.0."""

_MOE = {"num_experts": "experts.count", "top_k": "experts.per_token"}
ARGUMENTS = {
    "TransformerModelArgs": LLAMA,
    "Qwen3ModelArgs": QWEN,
    "DeepSeekV3ModelArgs": DEEPSEEK,
    "llama3_network": LLAMA | {"hidden_dim": "ffn", "enable_weight_tying": "tied_embeddings"},
    "qwen3_network": QWEN | _MOE,
}
_PLAIN: Mapping[str, Value] = {
    "gated": True,
    "tied_embeddings": False,
    "biases": "none",
    "qk_norm": False,
    "norm": "rmsnorm",
    "learned_positions": 0,
    "dropout": False,
    "sinks": False,
    "mtp": 0,
}
"""What every one of these networks is unless its arguments say otherwise."""


def known(name: str, flavor: str) -> dict[str, Value] | None:
    """Return the shape of a named network as torchtitan trains it; None for another."""
    entry = FLAVORS.get((name, flavor))
    if entry is None:
        return None
    shape = catalogue.architecture(entry)
    # torchtitan/models/deepseek_v3/model/model.py of 0.2.0 builds no multi-token prediction.
    return shape_values(shape.model_copy(update={"mtp": 0}))


def named(shape: Architecture, models: Iterable[str]) -> tuple[str, str] | None:
    """Return model and flavor that are a network already; None where there is none."""
    wanted = shape_values(shape)
    for model, flavor in FLAVORS:
        if model in models and known(model, flavor) == wanted:
            return model, flavor
    return None


_FLAGS = ("qk_norm", "tied_embeddings")


def _fits(name: str, entry: Entry, faults: list[Fault]) -> bool:
    """Tell whether an argument is of the kind that a size or a switch is; else a fault."""
    value = entry.value
    if name in _FLAGS:
        fits = isinstance(value, bool)
    else:
        least = 0 if name in ("latent.q_rank", "latent.rope", "experts.leading_dense") else 1
        fits = type(value) is int and least <= value <= LARGEST_COUNT
    if not fits and not (value is None and name == "kv_heads"):
        what = f"'{short(str(value))}' is no {'switch' if name in _FLAGS else 'size'}"
        remedy = "write True or False" if name in _FLAGS else "write a whole number such as 4096"
        faults.append(Fault(place(entry.line), entry.path, what, remedy))
    return fits


def values_of(calls: Iterable[Entry], faults: list[Fault]) -> dict[str, tuple[Value, Entry]]:
    """
    Return the shape that a job's own flavor gives, each value with its entry.

    Parameters
    ----------
    calls
        Entries ``TransformerModelArgs.dim`` and so on, as `arguments` returns them.
    """
    given = {entry.path: entry for entry in calls}
    found: dict[str, tuple[Value, Entry]] = {}
    for call, names in ARGUMENTS.items():
        mine = [path for path in given if path.startswith(f"{call}.")]
        if not mine:
            continue
        anchor = given[mine[0]]
        for name, value in _PLAIN.items():
            found[name] = value, anchor
        for path in mine:
            ours, size = names.get(path.partition(".")[2]), given[path].value
            if ours and _fits(ours, given[path], faults):
                assert isinstance(size, int)
                found[ours] = size, given[path]
        _experts(given, call, found)
        _widths(given, call, found)
    return found


def _experts(given: Mapping[str, Entry], call: str, found: dict[str, tuple[Value, Entry]]) -> None:
    """Complete what a network says of its experts, or drop it where it has none."""
    moe = {p.partition(".")[2]: e for p, e in given.items() if p.startswith("MoEArgs.")}
    if call == "qwen3_network":
        moe = {p.partition(".")[2]: e for p, e in given.items() if p.endswith(".num_experts")}
        moe |= {"num_shared_experts": Entry("", 0, "no shared experts", 0)} if moe else {}
        moe |= {"load_balance_coeff": Entry("", None, "no correction", 0)} if moe else {}
    switched = given.get(f"{call}.moe_enabled")
    if not moe or (call == "Qwen3ModelArgs" and not (switched and switched.value is True)):
        for name in [n for n in found if n.startswith("experts.")]:
            del found[name]
        return
    for theirs, ours in _MOE.items():
        said = moe[theirs].value if theirs in moe else None
        if isinstance(said, int) and type(said) is int and 1 <= said <= LARGEST_COUNT:
            found[ours] = said, moe[theirs]
    anchor = next(iter(moe.values()))
    # Defaults of MoEArgs, torchtitan/models/moe/moe.py of package 0.2.0: one shared expert of a
    # routed one's width, scores corrected by a bias.
    shared = moe["num_shared_experts"].value if "num_shared_experts" in moe else 1
    coefficient = moe["load_balance_coeff"].value if "load_balance_coeff" in moe else 1e-3
    width = found.get("experts.ffn")
    if isinstance(shared, int) and width and isinstance(width[0], int):
        found["experts.shared_ffn"] = shared * width[0], moe.get("num_shared_experts", anchor)
    found["experts.router_bias"] = coefficient is not None, moe.get("load_balance_coeff", anchor)
    found.setdefault("experts.leading_dense", (0, anchor))
    found["experts.shared_gate"] = False, anchor


def _widths(given: Mapping[str, Entry], call: str, found: dict[str, tuple[Value, Entry]]) -> None:
    """Add what a network derives: key heads, width of a head, width of the feed-forward."""
    heads, hidden = found.get("heads"), found.get("hidden")
    if heads is None or hidden is None:
        return
    assert isinstance(heads[0], int)
    assert isinstance(hidden[0], int)
    if call == "DeepSeekV3ModelArgs":
        found["kv_heads"] = heads
        if "latent.value" in found:
            found["head_dim"] = found["latent.value"]
        return
    found.setdefault("kv_heads", heads)
    if call == "llama3_network":
        found["head_dim"] = hidden[0] // max(1, heads[0]), hidden[1]
    if call == "TransformerModelArgs":
        found["head_dim"] = hidden[0] // max(1, heads[0]), hidden[1]
        multiple = given.get(f"{call}.multiple_of")
        factor = given.get(f"{call}.ffn_dim_multiplier")
        times, steps = factor.value if factor else None, multiple.value if multiple else None
        width = llama_width(
            hidden[0],
            steps if isinstance(steps, int) else 256,
            times if isinstance(times, int | float) else None,
        )
        found["ffn"] = width, factor or multiple or hidden[1]


def llama_width(dim: int, multiple_of: int, factor: float | None) -> int:
    """
    Width of a Llama feed-forward layer by torchtitan's rule.

    Two thirds of four times the width, times the factor, up to a whole multiple
    (torchtitan/models/llama3/model/model.py, FeedForward, package 0.2.0).
    """
    width = int(2 * 4 * dim / 3)
    if factor is not None and 0 < factor < 1e6:
        width = int(factor * width)
    return -(-width // max(1, multiple_of)) * max(1, multiple_of)


def arguments(page: Page, names: Mapping[str, str], faults: list[Fault]) -> list[Entry]:
    """
    Read the keyword arguments of calls in Python source, which is never run.

    Parameters
    ----------
    names
        Calls of interest by their last name, and the path to put in front.
    """
    try:
        tree = ast.parse(page.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = page.line + (getattr(error, "lineno", None) or 1) - 1
        fault = Fault(f"line {line}", "", "this is no Python", "mend the file that is written here")
        faults.append(fault)
        return []
    lines = page.text.splitlines(keepends=True)
    starts = [0]
    for one in lines:
        starts.append(starts[-1] + len(one))

    def offset(row: int, column: int) -> int:
        return starts[row - 1] + len(lines[row - 1].encode()[:column].decode(errors="ignore"))

    found: list[Entry] = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        head = ast.unparse(call.func).split(".")
        front = names.get(head[-1], names.get(".".join(head[-2:])))
        for keyword in call.keywords if front is not None else ():
            value = keyword.value
            if keyword.arg is None:
                continue
            try:
                plain = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                plain = ast.unparse(value)
            first = offset(value.lineno, value.col_offset)
            last = offset(value.end_lineno or value.lineno, value.end_col_offset or 0)
            quote = isinstance(plain, str) and page.text[first : first + 1] in "\"'"
            span = page.span(first + quote, last - quote)
            written = f"{keyword.arg}={ast.unparse(value)}"[:100]
            path = f"{front}.{keyword.arg}" if front else keyword.arg
            found.append(Entry(path, plain, written, page.line_of(first), span))
    return found


def cannot(workload: Workload, models: Iterable[str]) -> list[Fault]:
    """Return what of a workload torchtitan's networks of free size lack."""
    shape, faults = workload.architecture, []
    experts = shape.experts
    wanted: tuple[tuple[str, object, object], ...] = (
        ("gated", shape.gated, True),
        ("biases", shape.biases, "none"),
        ("norm", shape.norm, "rmsnorm"),
        ("learned_positions", shape.learned_positions, 0),
        ("dropout", shape.dropout, False),
        ("sinks", shape.sinks, False),
        ("mtp", shape.mtp, 0),
        ("sliding_window", shape.sliding_window, None),
        ("lora", workload.lora, None),
        ("flash_attention", workload.flash_attention, True),
        ("capacity_factor", workload.capacity_factor, None),
        ("experts.shared_gate", experts.shared_gate if experts else False, False),
    )
    for name, value, legal in wanted:
        if value != legal:
            said = str(getattr(value, "rank", value))
            what = f"{name} is {said}, and torchtitan's networks have none of it"
            remedy = f"take a workload with {name} {'left out' if legal is None else legal}"
            faults.append(refuse(f"workload.architecture.{name}", what, remedy))
    return faults
