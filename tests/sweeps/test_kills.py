"""A sweep that is killed, at home and on a cluster, comes to the same table as one that is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import optplan
from optplan.models.errors import InputError
from optplan.sweeps import cluster
from optplan.tables import Table
from tests import sweep_dask, sweep_kills

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL as on POSIX")


COUNT = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The table of a run that nobody disturbs, by one worker."""
    return sweep_kills.undisturbed(tmp_path_factory.mktemp("whole"), COUNT, workers=1)


def test_killed_and_begun_again_it_is_the_same_table(tmp_path: Path, whole: Table) -> None:
    found = sweep_kills.compare(tmp_path, COUNT, kills=2, seed=1, whole=whole)
    assert found.faults == []
    assert (found.problems, found.kills) == (60, 2)
    assert set(found.counts) == {"optimal", "infeasible", "input"}


def test_a_lost_worker_of_a_dask_cluster_changes_nothing(tmp_path: Path, whole: Table) -> None:
    pytest.importorskip("distributed")
    found = sweep_dask.compare(tmp_path, COUNT, whole)
    assert found.faults == []
    assert (found.problems, found.kills) == (60, 1)


def test_a_scheduler_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    spec = tmp_path / "spec.yaml"
    spec.write_text(sweep_kills.SPEC, encoding="utf-8")
    for address in ("tcp://127.0.0.1:1", "nonsense://", "127.0.0.1:99999999"):
        with pytest.raises(InputError, match="no scheduler answers"):
            optplan.sweep(spec, ["nodes=1"], path=tmp_path / "t.sqlite", dask=address)
