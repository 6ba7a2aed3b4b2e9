"""Rules of the user's own: from a file, from an installed package, and every way they can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import optplan
from optplan.models.errors import InputError
from tests.optplan.command import ROOT, run
from tests.optplan.installed import installed
from tests.sweep_kills import SPEC

RULE = '''\
"""Rules of the house."""

import optplan


class FewStages(optplan.Rule):
    name = "house.few_stages"
    sentence = "pp is at most 1"
    source = "a test"

    def post(self, say, problem):
        say.allow(self.name, ("pp",), lambda pp: pp <= 1)

    def holds(self, problem, plan, estimate):
        yield optplan.Finding(self.name, plan.pp <= 1, f"pp {plan.pp}")
'''

ANOTHER = RULE.replace("FewStages", "OneRank").replace("few_stages", "one_rank").replace("pp", "tp")

POST = '        say.allow(self.name, ("pp",), lambda pp: pp <= 1)\n'
HOLDS = '        yield optplan.Finding(self.name, plan.pp <= 1, f"pp {plan.pp}")\n'


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A small spec."""
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return str(path)


def written(folder: Path, text: str, name: str = "house.py") -> str:
    """Write a file of rules."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an entry point, as an installer would leave it."""
    text = RULE + ANOTHER.partition("import optplan")[2]
    points = ("optplan.rules", {"house": "house_rules"})
    return installed(tmp_path, monkeypatch, "house-rules", "1.2", points, text)


def test_a_file_of_rules_is_obeyed_and_named(spec: str, tmp_path: Path) -> None:
    many = ("--set", "architecture=llama-2-70b", "--set", "nodes=4")
    free = json.loads(run("solve", spec, "--json", *many)[1])
    assert free["plan"]["pp"] > 1
    assert free["rules"] == []
    rules = written(tmp_path, RULE)
    status, out, err = run("solve", spec, "--json", *many, "--rules", rules)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["plan"]["pp"] == 1
    assert found["rules"] == ["house.few_stages"]
    assert found["certificate"]["removed_by_rule"]["house.few_stages"] > 0
    plan = written(tmp_path, out, "plan.json")
    status, out, _ = run("verify", plan)
    assert status == 3
    assert "house.few_stages; give their file by --rules" in " ".join(out.split())
    assert run("verify", plan, "--rules", rules)[0] == 0


def test_every_command_takes_rules(spec: str, tmp_path: Path) -> None:
    rules = written(tmp_path, RULE)
    status, out, _ = run("evaluate", spec, "pp=2", "tp=1", "--json", "--rules", rules)
    assert status == 1
    assert json.loads(out)["verdict"]["broken"] == {"house.few_stages": "pp 2"}
    status, out, _ = run("explain", spec, "--set", "pp=2", "--json", "--rules", rules)
    assert status == 1
    core = json.loads(out)["result"]["explanation"]["core"]
    assert {"house.few_stages", "search.pp"} == {one["rule"] for one in core}
    plans = []  # two devices share the weights as stages, or else as tensor ranks
    for more in ((), ("--rules", rules)):
        out = run("size", spec, "--json", "--set", "zero=0", *more)[1]
        plans.append(json.loads(out)["fewest"]["plan"])
    assert [plan["pp"] for plan in plans] == [2, 1]


def test_the_rules_of_an_installed_package_are_found(spec: str, package: Path) -> None:
    found = optplan.installed_rules()
    assert [rule.name for rule in found] == ["house.few_stages", "house.one_rank"]
    out = run("solve", spec, "--json")[1]
    assert json.loads(out)["rules"] == ["house.few_stages", "house.one_rank"]
    out = run("solve", spec, "--json", "--rules", "none")[1]
    assert json.loads(out)["rules"] == []


def test_a_package_that_cannot_be_loaded_is_named(spec: str, package: Path) -> None:
    (package / "house_rules.py").write_text("import no_such_module\n")
    status, out, err = run("solve", spec)
    assert (status, out) == (2, "")
    assert "entry point house (house-rules 1.2): it cannot be loaded: ModuleNotFoundError" in err
    assert "--rules none" in err
    assert run("solve", spec, "--rules", "none")[0] == 0


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("def broken(:\n", 1, "this is no Python"),
        ("import optplan\n\nx = 1 / 0\n", 3, "the rule fails: ZeroDivisionError"),
        ("import sys\nsys.exit(0)\n", 2, "the rule fails: SystemExit"),
        ("import no_such_module\n", 1, "ModuleNotFoundError"),
        ("import optplan\n", None, "the file defines no rule"),
        ("", None, "the file defines no rule"),
        ("\0", 1, "this is no Python"),
        (RULE.replace("    def holds", "    def other"), 6, "FewStages: the rule has no holds"),
        (RULE.replace("    sentence =", "    other ="), 6, "the rule has no sentence"),
        (RULE.replace("house.few_stages", "few stages"), 6, "is no name of a rule"),
        (RULE.replace("house.few_stages", "capacity.hbm"), 6, "a name of optplan's own"),
        (RULE.replace("house.few_stages", "limits.mine"), 6, "a name of optplan's own"),
        (RULE + ANOTHER.replace("one_rank", "few_stages"), 6, "two rules have this name"),
        (RULE.replace(POST, "        say.allow(self.name, ('ppp',), len)\n"), 12, "the rule fails"),
        (RULE.replace(POST, "        problem.nodes\n"), 12, "the rule fails: AttributeError"),
        (RULE.replace(HOLDS, "        yield plan.ppp\n"), 15, "the rule fails: AttributeError"),
        (RULE.replace(HOLDS, "        yield True\n"), 6, "holds gives True, which is no finding"),
        (RULE.replace(HOLDS, "        return None\n"), 6, "the rule fails: TypeError"),
        (
            RULE.replace("plan.pp <= 1", "plan.pp > 1"),
            6,
            "post lets a plan through that holds refuses: pp 1",
        ),
    ],
)
def test_a_faulty_file_is_refused_at_its_line(
    text: str, line: int | None, told: str, spec: str, tmp_path: Path
) -> None:
    rules = written(tmp_path, text)
    status, out, err = run("solve", spec, "--rules", rules)
    assert (status, out) == (2, ""), err
    place = rules if line is None else f"{rules}:{line}"
    if "two rules" in told:
        place = rules
    assert err.startswith(f"{place}: " if line is None else place), err
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize("missing", ["no-such-file.py", "."])
def test_a_file_that_cannot_be_read_is_refused(missing: str, spec: str) -> None:
    status, out, err = run("solve", spec, "--rules", missing)
    assert (status, out) == (2, "")
    assert err.startswith(missing)


def test_the_example_is_a_file_of_rules() -> None:
    if not (ROOT / "examples").is_dir():
        pytest.skip("the examples are not here")
    (rule,) = optplan.read_rules(ROOT / "examples" / "custom_rule.py")
    assert rule.name == "house.enough_layers"


def test_rules_that_no_other_process_finds_are_refused(spec: str) -> None:
    class Local(optplan.Rule):
        name = "test.local"
        sentence = source = "a test"

        def post(self, say: optplan.Builder, problem: optplan.Problem) -> None: ...

        def holds(self, *given: object) -> list[optplan.Finding]:
            return []

    with pytest.raises(InputError, match="cannot be sent to another process"):
        optplan.sweep(spec, ["nodes=1"], rules=[Local()])
    Local.__module__ = "__main__"
    with pytest.raises(InputError, match="no other process can find it"):
        optplan.sweep(spec, ["nodes=1"], rules=[Local()])


def test_a_rule_that_does_not_apply_is_not_asked(tmp_path: Path) -> None:
    text = RULE.replace(
        "    def post", "    def applies(self, problem):\n        return 0\n\n    def post"
    )
    rules = optplan.read_rules(written(tmp_path, text))
    result = optplan.solve(SPEC, top=0, rules=rules, sets=["pp=2"])
    assert result.plan is not None
    assert result.plan.pp == 2
