"""Where the devices of a plan sit: nodes, groups, and the links that each group uses."""

from __future__ import annotations

from dataclasses import dataclass

from optplan.models.cost.traffic import crossings, data_inside, expert_data, group
from optplan.models.numbers import counted
from optplan.models.spec.plan import Plan
from optplan.models.spec.problem import Problem
from optplan.models.spec.space import ORDERS
from optplan.models.units import show
from optplan.report.html.ranks import coordinates, stage_ranks
from optplan.report.html.tables import Cell, Column, Table, cells, columns

MOST_DEVICES = 128
"""Devices drawn, in whole nodes; at least one node, or its first so many devices."""

TINTS = 4
"""Tints that groups take in turn."""

ACROSS = 8
"""Devices in a row of a node."""

MOST_STAGES = 64
"""Stages in the table; of more, the first and the last half of so many."""

KINDS = {
    "tp": "tensor",
    "cp": "context",
    "dp": "data",
    "pp": "pipeline",
    "ep": "expert",
}
"""Kinds of groups by the coordinate that tells its members apart."""


@dataclass(frozen=True)
class Device:
    """
    One device of the drawing.

    Parameters
    ----------
    x, y
        Column and row inside its node.
    lines
        What stands in its box.
    tip
        All that is known of it.
    groups
        Number of its group, by kind; empty where it is idle.
    tint
        Tint of its group of the first kind, 0 to 3; -1 where it is idle.
    """

    x: int
    y: int
    lines: tuple[str, ...]
    tip: str
    groups: dict[str, int]
    tint: int


@dataclass(frozen=True)
class Node:
    """One server."""

    name: str
    ranks: str
    devices: tuple[Device, ...]
    rows: int


@dataclass(frozen=True)
class Placement:
    """Drawing and tables."""

    nodes: tuple[Node, ...]
    kinds: tuple[tuple[str, str], ...]
    order: str
    note: str
    links: Table
    stages: Table | None
    lead: str


def placement(problem: Problem, plan: Plan) -> Placement:
    """Place every rank of a plan."""
    per = problem.cluster.devices_per_node
    used = [kind for kind in KINDS if getattr(plan, kind) > 1]
    drawn = max(1, min(problem.cluster.nodes, MOST_DEVICES // per))
    tints: dict[int, int] = {}
    nodes = tuple(_node(problem, plan, n, used, tints) for n in range(drawn))
    inner = "tensor, context, data, pipeline"
    if plan.order != "data_inside":
        inner = "tensor, context, pipeline, data"
    return Placement(
        nodes,
        tuple((kind, KINDS[kind]) for kind in used),
        f"Ranks are numbered node by node; groups nest from the inside out: {inner}.",
        _note(problem, plan, drawn),
        _links(problem, plan),
        _stages(problem, plan) if plan.pp > 1 else None,
        _lead(problem, plan),
    )


def _node(
    problem: Problem, plan: Plan, number: int, used: list[str], tints: dict[int, int]
) -> Node:
    """Draw one server; groups are tinted in turn, in the order in which they appear."""
    per = problem.cluster.devices_per_node
    shown = min(per, MOST_DEVICES)
    first = number * per
    devices = tuple(_device(plan, first + i, i, number, used, tints) for i in range(shown))
    return Node(f"node {number}", f"{first} to {first + per - 1}", devices, -(-shown // ACROSS))


def _device(
    plan: Plan, rank: int, place: int, node: int, used: list[str], tints: dict[int, int]
) -> Device:
    """Draw one device."""
    x, y = place % ACROSS, place // ACROSS
    if rank >= plan.devices:
        return Device(x, y, ("idle",), f"rank {rank}: idle, node {node}, device {place}", {}, -1)
    at = coordinates(plan, rank)
    words = [f"{kind[0]}{getattr(at, kind)}" for kind in used]
    half = 2 if len(words) > 2 else 1
    lines = tuple(" ".join(words[i : i + half]) for i in range(0, len(words), half))
    told = ", ".join(f"{kind} {getattr(at, kind)}" for kind in used) or "the only one"
    tip = f"rank {rank}: {told}; node {node}, device {place}"
    groups = _groups(plan, rank, used)
    first = groups[used[0]] if used else 0
    tint = tints.setdefault(first, len(tints) % TINTS)
    return Device(x, y, lines or (str(rank),), tip, groups, tint)


def _groups(plan: Plan, rank: int, used: list[str]) -> dict[str, int]:
    """Name the groups of a rank by their lowest ranks, which no other of their kind holds."""
    at = coordinates(plan, rank)
    close, data_first = plan.tp * plan.cp, plan.order == "data_inside"
    stride = {
        "tp": 1,
        "cp": plan.tp,
        "dp": close if data_first else close * plan.pp,
        "pp": close * plan.dp if data_first else close,
    }
    found = {kind: rank - getattr(at, kind) * stride[kind] for kind in used if kind in stride}
    if "ep" in used:
        found["ep"] = rank - at.ep * plan.etp
    return found


def _note(problem: Problem, plan: Plan, drawn: int) -> str:
    """Say what the drawing leaves out, and how it goes on."""
    nodes, per = problem.cluster.nodes, problem.cluster.devices_per_node
    if per > MOST_DEVICES:
        return f"Drawn: the first {MOST_DEVICES} of {per:,} devices of the first node."
    if drawn == nodes:
        return ""
    text = f"Drawn: the first {drawn} of {nodes:,} nodes. The others follow the same order"
    width = plan.tp * plan.cp * plan.dp
    if plan.order != "data_inside" or plan.pp == 1 or width % per:
        return f"{text}; the table of stages says which ranks each one has."
    each = width // per
    return f"{text}: each stage fills {each:,} whole nodes, stage k from node {each:,} k on."


def _links(problem: Problem, plan: Plan) -> Table:
    """Say over which links each kind of group speaks."""
    link, net = problem.cluster.accelerator.link, problem.cluster.network
    inner = f"{link.kind}, {show(link.bandwidth, 'bytes/s')}"
    outer = f"network, {show(net, 'bytes/s')} a device"
    order = ORDERS.index(plan.order)
    near = data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, order)
    spread = [
        ("tensor", plan.tp, int(group(problem, plan.tp, 1).inside)),
        ("context", plan.cp, int(group(problem, plan.cp, plan.tp).inside)),
        ("data (with context)", plan.dp * plan.cp, int(near)),
    ]
    if plan.ep > 1:
        spread.append(("expert", plan.ep, int(group(problem, plan.ep, plan.etp).inside)))
        far = expert_data(plan.tp, plan.cp, plan.dp, plan.ep, plan.etp, near)
        spread.append(("data of experts", int(far.members), int(far.inside)))
    rows = []
    for name, members, inside in spread:
        if members < 2:
            continue
        where = [inner] * (inside > 1) + [outer] * (inside < members)
        rows.append(cells(name, _number(members), _number(inside), " + ".join(where)))
    if plan.pp > 1:
        far_hops = int(crossings(problem, plan.tp, plan.pp, plan.dp, plan.cp, order))
        where = [inner] * (far_hops < plan.pp - 1) + [outer] * (far_hops > 0)
        text = f"{far_hops} of {plan.pp - 1} boundaries between nodes: {' + '.join(where)}"
        rows.append(cells("pipeline", _number(plan.pp), Cell("-"), text))
    heads = (
        Column("group"),
        Column("members", True, told=True),
        Column("in one node", told=True),
        Column("speaks over", told=True),
    )
    return Table("Groups and their links", heads, tuple(rows), sortable=False)


def _number(number: int) -> Cell:
    """Print a count."""
    return Cell(f"{number:,}", number)


def _stages(problem: Problem, plan: Plan) -> Table:
    """Say which ranks and nodes hold each stage."""
    heads = columns("stage", "layers", "ranks", "nodes", right=("stage", "layers"))
    chosen = list(range(plan.pp))
    if plan.pp > MOST_STAGES:
        chosen = chosen[: MOST_STAGES // 2] + chosen[-MOST_STAGES // 2 :]
    rows = []
    for stage in chosen:
        layers = _number(plan.layers_per_stage[stage])
        nodes = _nodes(problem, plan, stage)
        rows.append(cells(_number(stage), layers, stage_ranks(plan, stage), nodes))
    left = plan.pp - len(chosen)
    title = "Stages and their ranks" + (f" ({left} in the middle left out)" if left else "")
    return Table(title, heads, tuple(rows))


def _nodes(problem: Problem, plan: Plan, stage: int) -> str:
    """Name the nodes of a stage."""
    per = problem.cluster.devices_per_node
    width = plan.tp * plan.cp * (plan.dp if plan.order == "data_inside" else 1)
    first, last = stage * width // per, ((stage + 1) * width - 1) // per
    span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    return span if plan.order == "data_inside" or plan.dp == 1 else f"{span}, and so on"


def _lead(problem: Problem, plan: Plan) -> str:
    """Say what stays inside a node and what does not."""
    cluster = problem.cluster
    if plan.devices == 1:
        return "One device: nothing is exchanged."
    if cluster.nodes == 1:
        return f"All {plan.devices} devices share one node; nothing goes over the network."
    near = data_inside(problem, plan.tp, plan.pp, plan.dp, plan.cp, ORDERS.index(plan.order))
    spread = {
        "tensor": (plan.tp, int(group(problem, plan.tp, 1).inside)),
        "context": (plan.cp, int(group(problem, plan.cp, plan.tp).inside)),
        "data": (plan.dp * plan.cp, int(near)),
        "expert": (plan.ep, int(group(problem, plan.ep, plan.etp).inside)),
    }
    inside = [n for n, (members, close) in spread.items() if members == close > 1]
    across = [n for n, (members, close) in spread.items() if members > close]
    parts = []
    if inside:
        parts.append(f"{_and(inside)} groups stay inside a node")
    if across:
        parts.append(f"{_and(across)} groups reach over the network")
    if plan.pp > 1:
        order = ORDERS.index(plan.order)
        far = int(crossings(problem, plan.tp, plan.pp, plan.dp, plan.cp, order))
        parts.append(
            f"{far} of {counted(plan.pp - 1, 'stage boundary').replace('ys', 'ies')} "
            f"{'lies' if far == 1 else 'lie'} between nodes"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _and(names: list[str]) -> str:
    """Join names as a sentence does."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
