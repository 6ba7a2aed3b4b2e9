"""Launches of Megatron: layouts, options, logs, and what comes back of a plan."""

from __future__ import annotations

import random

import pytest

from optplan.launches.dialects import dialect, known, recognise
from optplan.launches.launch import Launch
from optplan.launches.logs import measured
from optplan.launches.megatron_layout import LayoutError, parse, stages, write
from optplan.launches.megatron_shape import layer_pattern
from optplan.launches.shell import Source
from optplan.launches.values import plan_from, shape_from
from optplan.models.errors import InputError
from tests.launches.samples import CLEAN, changed, with_options
from tests.round_trip import round_trips

MEGATRON = dialect("megatron-core")

LOG = """
using world size: 16, data-parallel size: 2
------------------------ arguments ------------------------
  add_bias_linear ................................. False
  bf16 ............................................ True
  ffn_hidden_size ................................. 14336
  global_batch_size ............................... 128
  group_query_attention ........................... True
  hidden_size ..................................... 4096
  micro_batch_size ................................ 1
  num_attention_heads ............................. 32
  num_layers ...................................... 32
  num_query_groups ................................ 8
  padded_vocab_size ............................... 128256
  pipeline_model_parallel_size .................... 2
  position_embedding_type ......................... rope
  recompute_granularity ........................... None
  seq_length ...................................... 8192
  sequence_parallel ............................... True
  swiglu .......................................... True
  tensor_model_parallel_size ...................... 4
  untie_embeddings_and_output_weights ............. True
  use_distributed_optimizer ....................... True
  world_size ...................................... 16
-------------------- end of arguments ---------------------
 iteration  1/ 100 | elapsed time per iteration (ms): 90000.0 | throughput per GPU (TFLOP/s/GPU): 50.0 |
 iteration  9/ 100 | elapsed time per iteration (ms): 9000.0 | throughput per GPU (TFLOP/s/GPU): 380.5 |
"""  # noqa: E501


def read(text: str) -> Launch:
    return MEGATRON.read(text)


def rules(text: str) -> set[str]:
    return {one.rule.partition(".")[2] for one in read(text).remarks}


def test_layouts_come_back() -> None:
    rng = random.Random(2)
    for _ in range(500):
        chunks = [rng.randint(0, 5) for _ in range(rng.randint(1, 24))]
        mtp = rng.choice((0, 0, 1, 2))
        found = parse(write(chunks, mtp))
        assert [one.layers for one in found] == chunks
        assert found[-1].predictions == mtp


def test_a_published_layout() -> None:
    # DeepSeek-V3 on 16 stages of 2 chunks, in the words of Megatron Core's own documentation.
    chunks = parse("Et*3|(tt|)*29,m|L")
    assert len(chunks) == 32
    assert sum(stages(chunks, 16)) == 61
    with pytest.raises(LayoutError, match="no multiple"):
        stages(chunks, 5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begin"),
        ("tL", "begin"),
        ("Et", "end"),
        ("EmtL", "after"),
        ("Ex|L", "none of"),
        ("E(t|L", "never closed"),
        ("Et)L", "never opened"),
        ("E(t(t)*2)*2L", "inside"),
        ("Et*L", "number"),
        ("E(t)*999999L", "more than"),
        ("(" * 5000, "inside"),
    ],
)
def test_a_layout_that_is_none_says_why(text: str, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", [1, 1, 1]), ("2", [1, 0, 1]), ("([0]*1+[1]*2)", [0, 1, 1]), ("[0,1,1]", [0, 1, 1])],
)
def test_patterns_of_layers(text: str, expected: list[int]) -> None:
    assert layer_pattern(text, 3) == [bool(one) for one in expected]


def test_a_script_is_read() -> None:
    launch = read(CLEAN)
    plan, (shape, taken, fault) = plan_from(launch, {}), shape_from(launch)
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batches, plan.zero) == (4, 2, 2, 64, 1)
    assert plan.layers_per_stage == (16, 16)
    assert shape is not None
    assert (shape.name, shape.key_heads, shape.biases, fault, taken) == (
        *("llama-3-8b", 8, "none", ""),
        (),
    )
    assert launch.overlap == ("grad-reduce-overlap",)
    assert launch.remarks == ()
    found = launch.find("tp")
    assert found is not None
    assert found.span is not None
    assert (CLEAN[slice(*found.span)], found.line) == ("4", 5)


def test_a_log_says_the_same_as_a_script() -> None:
    launch = read(LOG)
    assert plan_from(launch, {}) == plan_from(read(CLEAN), {})
    shape, _, _ = shape_from(launch)
    assert shape is not None
    assert (shape.vocabulary, shape.biases) == (128256, "none")
    speed = measured(LOG)
    assert speed is not None
    assert speed.tflops == pytest.approx((50.0 + 380.5) / 2)
    assert launch.value("measured_tflops") == speed.tflops


def test_defaults_are_named() -> None:
    text = changed(("    --ffn-hidden-size 14336 \\\n", ""), ("--group-query-attention", ""))
    launch = read(text)
    assert launch.value("ffn") == 10880  # two thirds of 4 h, in whole 64s
    assert launch.value("kv_heads") == 32
    assert "query-groups-ignored" in rules(text)
    experts = read(with_options("--num-experts 8"))
    etp = experts.find("etp")
    assert etp is not None
    assert (etp.value, etp.line) == (4, 0)
    assert "etp is tp" in etp.written


def test_unknown_variables_matter_where_their_value_does() -> None:
    text = changed(("TP=4", "TP=$1"))
    with pytest.raises(InputError, match=r"--set 1=8"):
        read(text)
    assert read(Source(text, {"1": "2"})).value("tp") == 2
    assert read(changed(("$DATA_PATH", "$SOMEWHERE"))).remarks == ()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("--recompute-num-layers 1", "recompute-ignored"),
        ("--recompute-granularity full", "recompute-incomplete"),
        ("--recompute-activations --recompute-num-layers 2", "recompute-refused"),
        ("--overlap-param-gather --no-x", None),
        ("--tp-comm-overlap", None),
        ("--optimizer-cpu-offload", "offload-refused"),
        ("--fp16", "precision"),
        ("--expert-model-parallel-size 2", "experts-missing"),
        ("--data-parallel-sharding-strategy optim", "sharding-ignored"),
        ("--decoder-last-pipeline-num-layers 15", None),
        ("--pipeline-model-parallel-layout Et*15|t*16L", "layout"),
        ("--pipeline-model-parallel-layout Et*15|t*17L", None),
        ("--num-layers-per-virtual-pipeline-stage 5", "chunks"),
        ("--num-layers-per-virtual-pipeline-stage 4", None),
        ("--rampup-batch-size 16 16 1000", "batch-ramp"),
        ("--grad-reduce-in-bf16", "not-modelled"),
    ],
)
def test_each_fault_has_its_remark(options: str, rule: str | None) -> None:
    assert rules(with_options(options)) == ({rule} if rule else set())


def test_overlaps_that_cannot_work() -> None:
    alone = with_options("--overlap-param-gather", ("    --use-distributed-optimizer \\\n", ""))
    assert rules(alone) == {"overlap"}
    tensor = with_options("--tp-comm-overlap", ("    --sequence-parallel \\\n", ""))
    assert rules(tensor) == {"overlap"}


def test_options_behind_a_comment_are_lost() -> None:
    text = "torchrun x.py --num-layers 4 --hidden-size 8 \\\n  # --x 1 \\\n  --bf16\n"
    (cut,) = [r for r in read(text).remarks if r.rule == "shell.cut-off"]
    assert (cut.severity, cut.line) == ("error", 3)


@pytest.mark.parametrize("name", known())
def test_plans_come_back(name: str) -> None:
    done, wrong, _ = round_trips(name, 6, 3, each=2)
    assert wrong == []
    assert done == 6


def test_the_right_dialect_is_found() -> None:
    found = recognise(CLEAN)
    assert found is not None
    assert found.name == "megatron-core"
    ascend = recognise(with_options("--use-fused-rmsnorm"))
    assert ascend is not None
    assert ascend.name == "mindspeed"
    assert recognise("echo hello\n") is None
    with pytest.raises(InputError, match="megatron"):
        dialect("megatrn")


def test_a_value_is_changed_where_it_is_decided() -> None:
    text = MEGATRON.amend(CLEAN, {"tp": 2, "micro_batch": 2})
    assert text == changed(("TP=4", "TP=2"), ("--micro-batch-size 1", "--micro-batch-size 2"))
    more = MEGATRON.amend(CLEAN, {"recompute": "selective"})
    assert "--recompute-granularity selective" in more
    assert MEGATRON.amend(more, {"recompute": "none"}) == CLEAN
    assert read(MEGATRON.amend(CLEAN, {"layers_per_stage": (15, 17)})).value("pp") == 2


def test_a_variable_that_means_two_things_is_not_changed() -> None:
    shared = changed(("TP=4", "TP=2"), ("PP=2", "PP=$TP"))
    text = MEGATRON.amend(shared, {"tp": 4})
    assert (read(text).value("tp"), read(text).value("pp")) == (4, 2)


def test_mindspeed_has_words_of_its_own() -> None:
    text = with_options(
        "--use-fused-rmsnorm --num-layer-list 15,17 --context-parallel-size 2 "
        "--context-parallel-algo ulysses_cp_algo --num-experts 8 --moe-router-topk 2 "
        "--moe-intermediate-size 512 --n-shared-experts 2 --first-k-dense-replace 1 "
        "--moe-tp-extend-ep --expert-model-parallel-size 2 --moe-layer-freq -1",
        ("NNODES:-2", "NNODES:-4"),
    )
    launch = dialect("mindspeed").read(text)
    assert launch.value("layers_per_stage") == (15, 17)
    assert launch.value("context") == "ulysses"
    assert (launch.value("ep"), launch.value("etp")) == (8, 1)
    assert launch.value("experts.shared_ffn") == 1024
    assert launch.value("experts.leading_dense") == 1
