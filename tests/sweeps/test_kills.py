"""A sweep that is killed, at home and on a cluster, comes to the same table as one that is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import sweep_dask, sweep_kills

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL as on POSIX")


def test_killed_and_begun_again_it_is_the_same_table(tmp_path: Path) -> None:
    found = sweep_kills.compare(tmp_path, count=60, kills=2, seed=1)
    assert found.faults == []
    assert (found.problems, found.kills) == (60, 2)
    assert set(found.counts) == {"optimal", "infeasible", "input"}


def test_a_lost_worker_of_a_dask_cluster_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    found = sweep_dask.compare(tmp_path, count=60)
    assert found.faults == []
    assert (found.problems, found.kills) == (60, 1)


def test_a_scheduler_that_is_not_there_is_told(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    import optplan
    from optplan.models.errors import InputError

    spec = tmp_path / "spec.yaml"
    spec.write_text(sweep_kills.SPEC, encoding="utf-8")
    for address in ("tcp://127.0.0.1:1", "nonsense://", "127.0.0.1:99999999"):
        with pytest.raises(InputError, match="no scheduler answers"):
            optplan.sweep(spec, ["nodes=1"], path=tmp_path / "t.sqlite", dask=address)
