"""Wrong specs, and the place and the words of every fault in them."""

from __future__ import annotations

CALIBRATION = (
    "{utilization_peak: 0.6, reserve: 4 GiB, measured: false, "
    "fitted_on: a prior, range: any, error: unknown, sources: {}}"
)
GOOD = f"""\
workload: {{architecture: llama-3-70b, sequence_length: 8192, precision: bf16}}
cluster:
  accelerator: h100-sxm-80gb
  nodes: 8
  devices_per_node: 8
  network: 400 Gb/s
search:
  global_batch: 512
  tp: [1, 2, 4, 8]
limits:
  - pp * tp <= 32
goal: fastest
calibration: {CALIBRATION}
"""
INLINE = "{layers: 4, hidden: 64, heads: 4, ffn: 128, vocabulary: 100}"
DEVICE = (
    "{peak: {bf16: 1 TFLOP/s}, hbm: 1 GiB, hbm_bandwidth: 1 GB/s, "
    "link: {kind: switch, bandwidth: 1 GB/s}, domain: 4, network: 8 Gb/s}"
)

Expected = dict[str, str]
"""For every fault: its place without the file's name, and words from it."""


def swap(*pairs: str) -> str:
    """Return the good spec with every first text replaced by the second."""
    text = GOOD
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def architecture(old: str, new: str) -> str:
    """Return the good spec with an inline architecture that is changed."""
    assert INLINE.count(old) == 1
    return swap("llama-3-70b", INLINE.replace(old, new))


def device(old: str, new: str) -> str:
    """Return the good spec with an inline accelerator that is changed."""
    assert DEVICE.count(old) == 1
    return swap("h100-sxm-80gb", DEVICE.replace(old, new))


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))

CASES: dict[str, tuple[str, Expected]] = {
    # keys
    "missing workload": (
        GOOD.partition("\n")[2],
        {":1:1": "workload: 'workload' is missing; add it"},
    ),
    "missing architecture": (
        swap("architecture: llama-3-70b, ", ""),
        {":1:11": "'architecture' is missing; add it, such as 'architecture: llama-3-70b'"},
    ),
    "missing sequence length": (
        swap(", sequence_length: 8192", ""),
        {":1:11": "'sequence_length' is missing"},
    ),
    "missing accelerator": (
        swap("  accelerator: h100-sxm-80gb\n", ""),
        {":3:3": "cluster.accelerator: 'accelerator' is missing"},
    ),
    "missing accelerator, node and network": (
        swap(
            "  accelerator: h100-sxm-80gb\n", "", "  devices_per_node: 8\n  network: 400 Gb/s\n", ""
        ),
        {":3:3": "cluster.accelerator: 'accelerator' is missing"},
    ),
    "missing nodes": (swap("  nodes: 8\n", ""), {":3:3": "'nodes: 8'"}),
    "missing global batch": (swap("  global_batch: 512\n", ""), {":8:3": "'global_batch: 512'"}),
    "misspelt key": (
        swap("network:", "netwrok:"),
        {":6:3": "cluster.netwrok: unknown key 'netwrok'; did you mean 'network'?"},
    ),
    "unknown key": (
        swap("goal: fastest", "colour: red"),
        {":12:1": "unknown key 'colour'; known here: workload, cluster, search"},
    ),
    "misspelt search key": (swap("  tp:", "  tpp:"), {":9:3": "did you mean 'tp'?"}),
    "key in a range": (
        swap("[1, 2, 4, 8]", "{mx: 8}"),
        {":9:8": "search.tp.mx: unknown key 'mx'; did you mean 'max'?"},
    ),
    "duplicate key": (
        swap("goal: fastest", "goal: fastest\ngoal: fastest"),
        {":13:1": "key 'goal' is given twice; keep one of them, the first stands at"},
    ),
    "duplicate key in a list": (
        swap("- pp * tp <= 32", "- {rule: pp <= 4, rule: pp <= 2}"),
        {":11:21": "limits.0.rule: key 'rule' is given twice"},
    ),
    "number as key": (swap("  tp:", "  8:"), {":9:3": "key '8' is no word; keys are words"}),
    "null as key": (swap("  tp:", "  ~:"), {":9:3": "key '~' is no word"}),
    "list as key": (swap("  tp:", "  ? [tp]\n  :"), {":9:5": "a list stands where a key"}),
    "merge key": (swap("  tp:", "  <<:"), {":9:3": "no merge key"}),
    # whole numbers
    "zero nodes": (swap("nodes: 8", "nodes: 0"), {":4:10": "'0' is below 1; write at least 1"}),
    "negative nodes": (swap("nodes: 8", "nodes: -8"), {":4:10": "'-8' is below 1"}),
    "half a node": (swap("nodes: 8", "nodes: 8.0"), {":4:10": "'8.0' is no whole number"}),
    "nodes in quotes": (swap("nodes: 8", "nodes: '8'"), {":4:10": "'8' is no whole number"}),
    "true nodes": (swap("nodes: 8", "nodes: true"), {":4:10": "'true' is no whole number"}),
    "null nodes": (swap("nodes: 8", "nodes:"), {":4:3": "an empty value is no whole"}),
    "list of nodes": (swap("nodes: 8", "nodes: [8]"), {":4:10": "a list is no whole number"}),
    "huge integer": (
        swap("nodes: 8", "nodes: " + "9" * 5000),
        {":4:10": "has more than 18 digits; write a smaller number"},
    ),
    "large nodes": (swap("node: 8", "node: 65537"), {":5:21": "'65537' is above 65536; write at"}),
    "too many devices": (swap("nodes: 8", "nodes: 1000000"), {":3:3": "at most 1048576 are"}),
    "infinite nodes": (swap("nodes: 8", "nodes: .inf"), {":4:10": "is no finite number"}),
    "no number of nodes": (swap("nodes: 8", "nodes: .nan"), {":4:10": "is no finite number"}),
    "1e400 nodes": (swap("nodes: 8", "nodes: 1e400"), {":4:10": "'1e400' is too large"}),
    "micro batch 0": (
        swap("  tp:", "  micro_batch: 0\n  tp:"),
        {":9:16": "search.micro_batch: '0' is below 1"},
    ),
    "wrong value in a list": (swap("4, 8]", "four, 8]"), {":9:14": "search.tp.2: 'four' is no"}),
    "empty list": (swap("[1, 2, 4, 8]", "[]"), {":9:7": "a list is too short; write at least 1"}),
    "range without values": (
        swap("[1, 2, 4, 8]", "{min: 9, max: 10, multiple_of: 4}"),
        {":9:7": "no multiple of 4 lies between 9 and 10; widen the range"},
    ),
    "nested list": (swap("[1, 2, 4, 8]", "[[1]]"), {":9:8": "a list is no whole number"}),
    # words
    "unknown precision": (
        swap("bf16}", "bf17}"),
        {
            ":1:73": "'bf17' is no choice here; did you mean 'bf16'? "
            "(choices: bf16, fp16, fp32, fp8)"
        },
    ),
    "money without a price": (
        swap("goal: fastest", "goal: cheapest"),
        {":12:7": "add it under cluster, such as 'price: 2.50 USD/h'"},
    ),
    "energy without a power": (
        swap("goal: fastest", "goal: [fastest, least-energy]", "h100-sxm-80gb", DEVICE),
        {":12:7": "write the accelerator out with its power, such as 'power: 700 W'"},
    ),
    "goal named twice": (
        swap("goal: fastest", "goal: [fastest, fastest]"),
        {":12:7": "goal names fastest twice; name each once"},
    ),
    "devices as the first goal": (
        swap("goal: fastest", "goal: [fewest-devices, fastest]"),
        {":12:7": "'optplan size' finds the fewest devices alone"},
    ),
    "price without a currency": (
        swap("  nodes: 8", "  nodes: 8\n  price: 2.50"),
        {":5:10": "write it as 2.5 USD/h or 2.5 EUR/h"},
    ),
    "price by the year": (
        swap("  nodes: 8", "  nodes: 8\n  price: 2.50 USD/a"),
        {":5:10": "cannot read '2.50 USD/a' as a price"},
    ),
    "devices held": (
        swap("  nodes: 8", "  nodes: 8\n  held: node"),
        {":5:9": "did you mean 'nodes'?"},
    ),
    "more cooling than energy": (
        swap("  nodes: 8", "  nodes: 8\n  pue: 0.9"),
        {":5:8": "below 1"},
    ),
    "power in horses": (
        device("domain: 4", "domain: 4, power: 1 hp"),
        {":3:136": "write it as 700 W"},
    ),
    "unknown goal": (swap("goal: fastest", "goal: fast"), {":12:7": "did you mean 'fastest'?"}),
    "recompute": (
        swap("  tp:", "  recompute: [none, som]\n  tp:"),
        {":9:21": "search.recompute.1: 'som' is no choice here"},
    ),
    "zero 4": (swap("  tp:", "  zero: 4\n  tp:"), {":9:9": "search.zero: '4' is above 3"}),
    "no such schedule": (
        swap("  tp:", "  schedule: [1f1b, zb-h3]\n  tp:"),
        {":9:20": "search.schedule.1: 'zb-h3' is no choice here; did you mean 'zb-h2'?"},
    ),
    "no such context": (
        swap("  tp:", "  context: rings\n  tp:"),
        {":9:12": "did you mean 'ring'? (choices: ring, ulysses)"},
    ),
    "no such order": (
        swap("  tp:", "  order: data-inside\n  tp:"),
        {":9:10": "did you mean 'data_inside'?"},
    ),
    "hsdp 1": (swap("  tp:", "  hsdp: 1\n  tp:"), {":9:9": "'1' is neither true nor false"}),
    "cp 0": (swap("  tp:", "  cp: 0\n  tp:"), {":9:7": "search.cp: '0' is below 1"}),
    "layers by a wrong word": (
        swap("  tp:", "  layers_per_stage: odd\n  tp:"),
        {":9:21": "'odd' is no choice here; write one of any, even"},
    ),
    "no layers": (swap("  tp:", "  layers_per_stage: []\n  tp:"), {":9:21": "too short"}),
    "layers below none": (
        swap("  tp:", "  layers_per_stage: [81, -1]\n  tp:"),
        {":9:26": "search.layers_per_stage.1: '-1' is below 0"},
    ),
    "no such framework": (
        swap("goal:", "framework: torchtitn\ngoal:"),
        {":12:12": "no framework 'torchtitn' in the catalogue; did you mean 'torchtitan'?"},
    ),
    "no version": (
        swap("goal:", "framework: megatron-core@9x\ngoal:"),
        {":12:12": "'9x' is no version of megatron-core; write one such as megatron-core@"},
    ),
    "a version of long ago": (
        swap("goal:", "framework: megatron-core@0.1\ngoal:"),
        {":12:12": "nothing is known of megatron-core@0.1; known: from megatron-core@0.5 on"},
    ),
    "no such overlap": (
        swap("goal:", "overlap: [tp-overlp]\ngoal:"),
        {":12:11": "overlap.0: 'tp-overlp' is no choice here; did you mean 'tp-overlap'?"},
    ),
    "an overlap that the framework lacks": (
        swap("goal:", "framework: megatron-deepspeed\noverlap: [tp-overlap]\ngoal:"),
        {":1:1": "has no tp-overlap; it has grad-reduce-overlap"},
    ),
    "a host without its links": (
        swap("  nodes: 8", "  nodes: 8\n  host: {memory: 1 TiB, bandwidth: 400 GB/s}"),
        {":5:9": "cluster.host.link: 'link' is missing"},
    ),
    "flag yes": (
        swap("  tp:", "  sequence_parallel: yes\n  tp:"),
        {":9:22": "'yes' is neither true nor false; write true or false"},
    ),
    "flag True": (
        swap("precision: bf16", "flash_attention: True"),
        {":1:79": "'True' is neither true nor false"},
    ),
    "mapping for a flag": (
        swap("  tp:", "  sequence_parallel: {max: 1}\n  tp:"),
        {":9:22": "a mapping does not fit here; write one value or a list of values"},
    ),
    "unknown workload": (
        swap("llama-3-70b", "llama-3-70c"),
        {":1:26": "no workload 'llama-3-70c' in the catalogue; did you mean 'llama-3-70b'"},
    ),
    "unknown accelerator": (
        swap("h100-sxm-80gb", "h100-sxm-8gb"),
        {":3:16": "did you mean 'h100-sxm-80gb'"},
    ),
    "unknown accelerator without kin": (
        swap("h100-sxm-80gb", "zzz"),
        {":3:16": "no accelerator 'zzz' in the catalogue; list all with `optplan catalogue`"},
    ),
    "unknown calibration": (
        swap(CALIBRATION, "ascend-910c"),
        {":13:14": "no calibration 'ascend-910c' in the catalogue; did you mean 'ascend-910b'"},
    ),
    "number for a name": (swap("h100-sxm-80gb", "100"), {":3:16": "'100' stands where a mapping"}),
    "missing calibration file": (
        swap(CALIBRATION, "none.yaml"),
        {":13:14": "calibration: 'none.yaml': there is no such file; check its name"},
    ),
    "missing config.json": (
        swap("architecture: llama-3-70b", "hf: none.json"),
        {":1:16": "workload.hf: cannot read"},
    ),
    "two architectures": (
        swap("architecture: llama-3-70b", "architecture: llama-3-70b, hf: config.json"),
        {":1:39": "'hf' and 'architecture' are both given; keep one of them"},
    ),
    "number for a config": (
        swap("architecture: llama-3-70b", "hf: 5"),
        {":1:16": "'5' is no file name; write 'hf: config.json'"},
    ),
    "precision without a peak": (
        swap("h100-sxm-80gb", DEVICE, "bf16}", "fp16}"),
        {":1:73": "workload.precision: precision fp16 has no peak on accelerator custom; known"},
    ),
    # quantities
    "bare network": (
        swap("400 Gb/s", "400"),
        {":6:12": "cluster.network: '400' has no unit; write it as 400 Gb/s or 400 GB/s"},
    ),
    "Gb for GB": (
        device("hbm: 1 GiB", "hbm: 80 Gb"),
        {":3:47": "cannot read '80 Gb' as bytes; write it as 80 GB or 80 GiB"},
    ),
    "Gb for Gb/s": (
        swap("400 Gb/s", "400 Gb"),
        {":6:12": "cannot read '400 Gb' as bytes/s; write it as 400 Gb/s or 900 GB/s"},
    ),
    "negative network": (swap("400 Gb/s", "-400 Gb/s"), {":6:12": "'-400 Gb/s' is negative;"}),
    "zero network": (swap("400 Gb/s", "0 Gb/s"), {":6:12": "'0 Gb/s' is zero;"}),
    "endless network": (swap("400 Gb/s", "1e400 Gb/s"), {":6:12": "'1e400 Gb/s' is too large;"}),
    "unending network": (swap("400 Gb/s", ".inf"), {":6:12": "'.inf' is no finite number;"}),
    "null network": (swap("400 Gb/s", "null"), {":6:12": "null is no quantity;"}),
    "TFLOPS": (
        device("1 TFLOP/s", "312 TFLOPS"),
        {":3:30": "cannot read '312 TFLOPS' as FLOP/s; write it as 312 TFLOP/s"},
    ),
    "latency": (
        swap("400 Gb/s", "400 Gb/s\n  network_latency: 5"),
        {":7:20": "'5' has no unit; write it as 5 s or 5 us"},
    ),
    # inline records
    "heads that do not divide": (
        architecture("heads: 4", "heads: 5"),
        {":1:26": "workload.architecture: hidden 64 is no multiple of heads 5; give head_dim"},
    ),
    "misspelt shape": (
        architecture("ffn: 128", "fnn: 128"),
        {":1:26": "'ffn' is missing", ":1:60": "unknown key 'fnn'; did you mean 'ffn'?"},
    ),
    "zero layers": (architecture("layers: 4", "layers: 0"), {":1:35": "'0' is below 1"}),
    "unknown format in a peak": (
        device("{bf16:", "{bf17:"),
        {":3:24": "cluster.accelerator.peak.bf17: unknown key 'bf17'; did you mean 'bf16'?"},
    ),
    "kind of link": (device("switch", "swich"), {":3:90": "did you mean 'switch'?"}),
    "missing link": (
        device("link: {kind: switch, bandwidth: 1 GB/s}, ", ""),
        {":3:16": "cluster.accelerator.link: 'link' is missing"},
    ),
    "missing domain": (
        device("domain: 4, ", "").replace("  devices_per_node: 8\n", ""),
        {":3:16": "cluster.accelerator.domain: 'domain' is missing"},
    ),
    "no network anywhere": (
        device(", network: 8 Gb/s", "").replace("  network: 400 Gb/s\n", ""),
        {":3:3": "'network' is missing and the accelerator has no usual one; add it"},
    ),
    "share above 1": (
        swap("utilization_peak: 0.6", "utilization_peak: 1.5"),
        {":13:33": "calibration.utilization_peak: '1.5' is above 1; write at most 1"},
    ),
    "no calibration fields": (swap("range: any, ", ""), {":13:14": "'range' is missing"}),
    # wrong shapes
    "list for a mapping": (
        swap("search:\n  global_batch: 512\n  tp: [1, 2, 4, 8]", "search: [1]"),
        {":7:9": "a list stands where a mapping is expected; write 'key: value' pairs"},
    ),
    "null for a mapping": (
        swap("search:\n  global_batch: 512\n  tp: [1, 2, 4, 8]", "search:"),
        {":7:1": "an empty value stands where a mapping"},
    ),
    "mapping for a list": (
        swap("  - pp * tp <= 32", "  a: pp <= 4"),
        {":11:3": "limits: a mapping stands where a list is expected"},
    ),
    "text for limits": (
        swap("limits:\n  - pp * tp <= 32", "limits: pp <= 4"),
        {":10:9": "'pp <= 4' stands where a list is expected"},
    ),
    "empty limits": (swap("  - pp * tp <= 32\n", ""), {":10:1": "'limits' is empty; write a list"}),
    "top is a list": ("- a\n- b\n", {":1:1": "a list is no spec; begin with"}),
    "top is a word": ("hello\n", {":1:1": "'hello' is no spec; begin with"}),
    # limits
    "unknown name in a limit": (
        swap("pp * tp <= 32", "pp * tq <= 32"),
        {":11:10": "limits.0: 'tq' is not a name"},
    ),
    "half a limit in quotes": (
        swap("pp * tp <= 32", '{rule: "pp * tq <= 32"}'),
        {":11:18": "limits.0.rule: 'tq' is not a name"},
    ),
    "limit that is a number": (swap("pp * tp <= 32", "32"), {":11:5": "'32' stands where"}),
    "empty limit": (swap("pp * tp <= 32", "''"), {":11:5": "an empty value is too short;"}),
    "limit without a rule": (
        swap("pp * tp <= 32", "{name: x}"),
        {":11:5": "limits.0.rule: 'rule' is missing"},
    ),
    "limit with a bad name": (
        swap("pp * tp <= 32", "{name: a b, rule: pp <= 4}"),
        {":11:12": "limits.0.name: 'a b' is no name; begin with a letter"},
    ),
    "duplicate limit names": (
        swap("- pp * tp <= 32", "- {name: a, rule: pp <= 4}\n  - {name: a, rule: tp <= 4}"),
        {":12:12": "limits.1.name: limit name 'a' is given twice; give each limit its own name"},
    ),
    "name like an automatic one": (
        swap("- pp * tp <= 32", "- pp <= 4\n  - {name: limit-1, rule: tp <= 4}"),
        {":12:12": "limit name 'limit-1' is given twice"},
    ),
    # YAML
    "tab as indentation": (swap("  nodes: 8", "\tnodes: 8"), {":4:1": "a tab cannot indent"}),
    "open bracket": (swap("4, 8]", "4, 8"), {":10:7": "a '[' is not closed before this"}),
    "open brace": (GOOD.replace("bf16}", "bf16"), {":2:8": "a '{' is not closed before this"}),
    "open quote": (swap("goal: fastest", 'goal: "fastest'), {":14:1": "a quote is not closed"}),
    "colon in a value": (swap("fastest", "a: b"), {":12:8": "a ':' does not fit here"}),
    "wrong indentation": (swap("  nodes: 8", "   nodes: 8"), {":4:9": "a ':' does not fit here"}),
    "value with an at sign": (swap("fastest", "@fast"), {":12:7": "put the value in quotes"}),
    "bracket too many": (swap("goal: fastest", "]"), {":12:1": "that was never opened"}),
    "comma for a value": (swap("[1, 2, 4, 8]", "[1,, 2]"), {":9:10": "a value is missing"}),
    "dash in a line": (swap("fastest", "- a"), {":12:7": "a '- ' does not fit here"}),
    "block on one line": (swap("fastest", "> a"), {":12:9": "begin the text on the next line"}),
    "behind the end": (f"{GOOD}...\nmore\n", {":15:1": "a second document starts here"}),
    "unknown escape": (swap("fastest", '"\\q"'), {":12:9": "use single quotes"}),
    "python tag": (
        swap("fastest", "!!python/object/apply:os.system [ls]"),
        {":12:7": "tag 'tag:yaml.org,2002:python/object/apply:os.system' is not supported"},
    ),
    "text tag": (swap("fastest", "!!str fastest"), {":12:7": "is not supported; remove it"}),
    "unknown alias": (swap("fastest", "*fast"), {":12:7": "no anchor 'fast' stands above"}),
    "alias to itself": ("a: &a [*a]\n", {":1:8": "anchor 'a' contains itself"}),
    "anchor bomb": (f"a0: &a0 [1]\n{BOMB}", {":5:35": "expands to more than 10 000 values"}),
    "two documents": (f"{GOOD}---\n{GOOD}", {":14:1": "a second document starts here"}),
    "long list": (
        swap("[1, 2, 4, 8]", "[" + "1, " * 20_000 + "1]"),
        {":9:29978": "expands to more than 10 000 values"},
    ),
    "deep nesting": (swap("[1, 2, 4, 8]", "[" * 50 + "]" * 50), {":9:45": "deeper than 40 levels"}),
    "very deep nesting": ("[" * 100_000 + "\n", {":1:41": "nests deeper than 40 levels; flatten"}),
    "very deep mappings": ("{a: " * 50_000 + "\n", {":1:161": "nests deeper than 40 levels"}),
    "NUL": (swap("fastest", "fast\0est"), {":12:11": "character U+0000 is no part of a text"}),
    "empty": ("", {"": "the spec is empty; begin with 'workload:'"}),
    "only comments": ("# nothing\n", {"": "the spec is empty"}),
    "two faults at once": (
        swap("nodes: 8", "nodes: 0", "400 Gb/s", "400 Gb", "goal:", "gaol:"),
        {":4:10": "below 1", ":6:12": "400 Gb/s or", ":12:1": "did you mean 'goal'?"},
    ),
    "syntax of values and records at once": (
        swap("[1, 2, 4, 8]", "1e400\n  tp: 4", "fastest", "fast"),
        {":9:7": "too large", ":10:3": "given twice", ":13:7": "fastest"},
    ),
}
