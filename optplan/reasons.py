"""Why a rule of a clash is broken: the nearest plan, its numbers, and what usual remedies do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from optplan.judge import judge
from optplan.models.cost.estimate import estimate
from optplan.models.cost.memory import Slice
from optplan.models.cost.price import Estimate, StageUse
from optplan.models.domains import FLAGS
from optplan.models.errors import InputError
from optplan.models.formulate import Formulation, plan_of
from optplan.models.numbers import listed
from optplan.models.program import Choice, Fits, Table
from optplan.models.rules.registry import Rule
from optplan.models.rules.search import Listed
from optplan.models.spec.plan import Plan
from optplan.models.units import bytes_like, bytes_text, seconds_text
from optplan.result import Reason
from optplan.solvers.core import Clash, Closest, closest

NEAREST_SECONDS = 20.0
"""Time to look for the nearest plan of one rule."""

MOST_BROKEN = 4
"""Rules that one value is said to break at most."""

STATES = ("parameters", "gradients", "optimizer")
"""Parts of a stage's memory that a batch does not change."""


def reason_of(form: Formulation, found: Clash, name: str) -> Reason:
    """
    Put one rule of a clash into numbers.

    The nearest plan breaks nothing but this rule; where several things clash at once, nothing else
    of this clash. A rule about memory or time is told by the least that any such plan takes.
    """
    family = name.split("[")[0]
    sentence = form.program.sentences.get(family, family)
    apart = _apart(form, name)
    near = closest(form.program, found.rules, apart, NEAREST_SECONDS)
    if near is None:
        return Reason(rule=name, sentence=sentence, text=_legal(form, name))
    plan = form.decode(near.point)
    price = estimate(form.problem, plan)
    rule = next((one for one in form.rules if one.name == family), None)
    details: tuple[str, ...] = ()
    if family.startswith("capacity.") and near.high is not None:
        text, details = _memory(form, near), tuple(_held(form, plan, price))
    elif near.high is not None and near.least is not None:
        text = _bound(form, near, sentence, price)
    elif isinstance(rule, Listed):
        shown = _word(_choice(form, rule.choice), near.point[rule.choice])
        text = f"the nearest plan has {rule.choice} {shown}{_values(form, rule)}"
        details = tuple(_refused(form, rule, near.point))
    else:
        text = _finding(form, rule, plan, price) or _legal(form, name)
    return Reason(rule=name, sentence=sentence, text=text, plan=plan, details=details)


def _apart(form: Formulation, name: str) -> frozenset[str]:
    """Set a rule apart; those about a device's memory are one."""
    fits = {s.name for s in form.program.statements if isinstance(s, Fits)}
    return frozenset(fits) if name in fits else frozenset({name})


def _least(near: Closest) -> str:
    """Say how sure the smallest number is."""
    return "at least" if near.proved else "in the nearest plan found"


def _memory(form: Formulation, near: Closest) -> str:
    """Compare the least that any plan holds with what a device has."""
    assert near.least is not None
    hbm, reserve = form.problem.cluster.accelerator.hbm, form.problem.calibration.reserve
    room = hbm - reserve
    least = near.least - reserve
    more = bytes_text(least - room)
    return (
        f"{_least(near)} {bytes_text(least)} against {bytes_text(room)} ({bytes_text(hbm)} less a "
        f"reserve of {bytes_text(reserve)}): {more} too much"
    )


def _bound(form: Formulation, near: Closest, sentence: str, price: Estimate) -> str:
    """Compare the least that any plan takes with a limit, in the limit's own unit."""
    assert near.least is not None
    assert near.high is not None
    if abs(near.least - price.memory.peak_bytes) <= 1:
        least, most = (bytes_like(size, sentence) for size in (near.least, near.high))
    else:
        tick = float(form.tick)
        least, most = (seconds_text(ticks * tick) for ticks in (near.least, near.high))
    return f"{_least(near)} {least} against {most}"


def _finding(form: Formulation, rule: Rule | None, plan: Plan, price: Estimate) -> str:
    """Let a rule say itself what is wrong with a plan."""
    found = rule.holds(form.problem, plan, price) if rule else ()
    return next((one.text for one in found if not one.holds), "")


def _refused(form: Formulation, rule: Listed, near: Mapping[str, int]) -> Iterator[str]:
    """Put a value that is asked for into the nearest plan, and let the rules say what it breaks."""
    problem, own = form.problem, rule.name
    value = min(rule.values, key=lambda one: abs(one - near[rule.choice]), default=None)
    if value is None:
        return
    tried = []
    for others in ({}, {"tp": 1, "pp": 1, "cp": 1}, {"zero": 0, "hsdp": 0}):
        at = {name: near[name] for name in form.program.domain} | others | {rule.choice: value}
        if rule.choice in ("tp", "pp", "cp"):
            at["dp"] = max(1, problem.devices // (at["tp"] * at["pp"] * at["cp"]))
        if rule.choice != "micro_batches":
            at["micro_batches"] = max(1, at["global_batch"] // (at["dp"] * at["micro_batch"]))
        if at["dp"] * at["cp"] == 1 and rule.choice != "zero":
            at |= {"zero": 0, "hsdp": 0}
        changed = plan_of(problem, at)
        said = judge(problem, form.rules, changed, estimate(problem, changed)).broken
        apart = ("capacity.", "limits.", own)
        tried.append({name: text for name, text in said.items() if not name.startswith(apart)})
    broken = min(tried, key=len)
    word = _word(_choice(form, rule.choice), value)
    for name, text in list(broken.items())[:MOST_BROKEN]:
        yield f"with {rule.choice} {word}, {name}: {text}"


def _values(form: Formulation, rule: Listed) -> str:
    """Say what a choice could be besides."""
    every = form.program.domain.get(rule.choice, ())
    words = _choice(form, rule.choice)
    free = [_word(words, v) for v in every]
    return f"; possible here: {listed(free)}" if free else ""


def _choice(form: Formulation, name: str) -> Choice:
    return next(choice for choice in form.program.choices if choice.name == name)


def _word(choice: Choice, value: int) -> str:
    """Write a value as a person would: a flag is on or off."""
    if choice.name in FLAGS:
        return "on" if value else "off"
    return choice.word(value)


def _legal(form: Formulation, name: str) -> str:
    """List what a rule over one choice would accept."""
    for statement in form.program.statements:
        if isinstance(statement, Table) and statement.name == name and len(statement.keys) == 1:
            key = statement.keys[0]
            words = _choice(form, key)
            every = [_word(words, v) for v in words.values]
            legal = [_word(words, v) for v in words.values if (v,) in statement.index]
            if not legal:
                return f"none of that is possible here; {key} can be in {listed(every)}"
            return f"legal: {key} in {listed(legal)} of {listed(every)}"
    return ""


# -- memory: what the nearest plan holds, and what would change it ---------------------------------


def _held(form: Formulation, plan: Plan, price: Estimate) -> Iterator[str]:
    """Say what fills the fullest stage, and try each of the usual remedies on that plan."""
    memory = price.memory
    use = memory.stages[memory.binding_stage]
    states = sum(use.parts[part] for part in STATES)
    room = memory.capacity_bytes - use.parts["reserve"]
    stage = f"stage {use.stage} of {plan.pp}" if plan.pp > 1 else "each device"
    yield (
        f"{stage} holds {bytes_text(states)} of model states (parameters "
        f"{bytes_text(use.parts['parameters'])}, gradients {bytes_text(use.parts['gradients'])}, "
        f"optimizer {bytes_text(use.parts['optimizer'])}), {bytes_text(use.parts['activations'])} "
        f"of activations, {bytes_text(use.parts['working'])} of working memory"
    )
    alone = states > room
    if alone:
        yield (
            "model states alone are too much: what frees activations (recomputation, a smaller "
            "micro-batch or sequence) cannot help"
        )
    else:
        yield f"most of it: {_largest(form, plan, use)}"
    for remedy, effect in _remedies(form, plan, price, alone):
        yield f"{remedy}: {effect}"


def _largest(form: Formulation, plan: Plan, use: StageUse) -> str:
    """Name the part that weighs most, and of working memory what it is."""
    parts = {
        "model states": sum(use.parts[part] for part in STATES),
        "activations": use.parts["activations"],
        "working memory": use.parts["working"],
    }
    name = max(parts, key=lambda part: parts[part])
    text = f"{name}, {parts[name] / sum(parts.values()):.0%}"
    if name == "working memory":
        from optplan.models.cost.memory import logits_bytes

        at = Slice(plan.tp, plan.cp, plan.micro_batch, int(plan.sequence_parallel))
        logits = int(logits_bytes(form.problem, at))
        if 2 * logits > parts[name]:
            words = form.problem.workload.architecture.vocabulary
            text += f" (logits of {words} words, {bytes_text(logits)})"
    if name == "activations":
        tokens = plan.micro_batch * form.problem.workload.sequence_length
        text += f" (of {use.in_flight} micro-batches of {tokens} tokens)"
    return text


def _remedies(
    form: Formulation, plan: Plan, price: Estimate, alone: bool
) -> Iterator[tuple[str, str]]:
    """Try what people try, each on the nearest plan."""
    ranks = plan.dp * plan.cp
    if plan.zero == 3:
        yield "ZeRO 3", f"shares all states among {ranks} data ranks already"
    elif ranks == 1:
        yield "ZeRO", "cannot help at dp 1, there are no data ranks to share states among"
    else:
        yield f"ZeRO {plan.zero + 1}", _tried(form, plan, price, zero=plan.zero + 1)
    if plan.zero == 0 and ranks > 1:
        yield "ZeRO 3", _tried(form, plan, price, zero=3)
    wide = _wider(plan)
    if wide is None:
        yield f"tp {2 * plan.tp}", f"needs more than the {form.problem.devices} devices"
    else:
        changed, what = wide
        yield f"tp {2 * plan.tp} {what}", _effect(form, changed, price)
    if not plan.offload:
        yield "optimizer on the host", _offloaded(form, plan, price)
    if alone:
        return
    if plan.recomputed_layers_per_stage == plan.layers_per_stage:
        yield "recomputation", "all layers already"
    else:
        every = {"recompute": "full", "recomputed_layers_per_stage": plan.layers_per_stage}
        yield "recompute all layers", _tried(form, plan, price, **every)
    if plan.micro_batch == 1:
        yield "micro-batch", "1 already"
    elif plan.micro_batch % 2 == 0:
        half = {
            "micro_batch": plan.micro_batch // 2,
            "micro_batches": 2 * plan.micro_batches,
        }
        yield f"micro-batch {plan.micro_batch // 2}", _tried(form, plan, price, **half)
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "sequence parallel", _tried(form, plan, price, sequence_parallel=True)
    if plan.dp % 2 == 0 and form.problem.prices != "paper":
        less = {"cp": 2 * plan.cp, "dp": plan.dp // 2, "micro_batches": 2 * plan.micro_batches}
        yield f"cp {2 * plan.cp} dp {plan.dp // 2}", _tried(form, plan, price, **less)


def _wider(plan: Plan) -> tuple[Plan, str] | None:
    """Double the tensor degree at the cost of another one."""
    if plan.dp % 2 == 0:
        less = {"dp": plan.dp // 2, "micro_batches": 2 * plan.micro_batches}
        if plan.dp == 2 and plan.cp == 1:
            less |= {"zero": 0, "hsdp": False}
        return plan.model_copy(update={"tp": 2 * plan.tp, **less}), f"dp {plan.dp // 2}"
    if plan.cp % 2 == 0:
        less = {"cp": plan.cp // 2}
        if plan.cp == 2 and plan.dp == 1:
            less |= {"zero": 0, "hsdp": False}
        return plan.model_copy(update={"tp": 2 * plan.tp, **less}), f"cp {plan.cp // 2}"
    if plan.pp % 2 == 0:
        layers, again = (
            tuple(one + two for one, two in zip(some[::2], some[1::2], strict=True))
            for some in (plan.layers_per_stage, plan.recomputed_layers_per_stage)
        )
        held = {"layers_per_stage": layers, "recomputed_layers_per_stage": again}
        fewer = {"tp": 2 * plan.tp, "pp": plan.pp // 2, **held}
        return plan.model_copy(update=fewer), f"pp {plan.pp // 2}"
    return None


def _offloaded(form: Formulation, plan: Plan, price: Estimate) -> str:
    """Say what an optimizer on the host would leave, or why it cannot be there."""
    problem = form.problem
    if problem.cluster.host is not None:
        return _tried(form, plan, price, offload=True)
    if problem.framework is not None and not problem.framework.offload:
        return f"{problem.framework.name} cannot"
    if problem.prices == "paper":
        return "not in the paper's space"
    held = max(use.peak_bytes - use.parts["optimizer"] for use in price.memory.stages)
    room = held - problem.calibration.reserve
    return f"would leave {bytes_text(room)}; the spec gives no cluster.host"


def _tried(form: Formulation, plan: Plan, price: Estimate, **changed: object) -> str:
    """Say what one change would do to the nearest plan."""
    return _effect(form, plan.model_copy(update=changed), price)


def _effect(form: Formulation, changed: Plan, before: Estimate) -> str:
    """Price a changed plan: the rule that refuses it, or what it holds."""
    try:
        price = estimate(form.problem, changed)
    except (InputError, ValueError, ZeroDivisionError):
        return "no layout"
    broken = judge(form.problem, form.rules, changed, price).broken
    others = [name for name in broken if not name.startswith("capacity.")]
    if others:
        what, _, _ = broken[others[0]].partition("; ")
        return f"refused by {others[0]} ({what})"
    reserve = form.problem.calibration.reserve
    now, then = (e.memory.peak_bytes - reserve for e in (price, before))
    if now == then:
        return "changes nothing"
    return f"{'would still hold' if now < then else 'would hold more,'} {bytes_text(now)}"
