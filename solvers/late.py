"""What a program asks after layers are handed out, and what of it bounds can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optplan.models.program import Fits, Integers, Pipeline, Program, Row, Statement, Table

if TYPE_CHECKING:
    from optplan.solvers.grid import Block

Mask = NDArray[np.bool_]

ASKS_MORE = "a limit asks more of time or memory than to be small; cp-sat can answer"
"""Why an engine that goes by bounds from below has no answer."""


def room_of(statement: Fits, columns: Mapping[str, Integers]) -> Integers:
    """Bytes that the parts of a rule may take, by point."""
    room = np.asarray(statement.pipeline.room, dtype=np.int64)
    return room - columns["fetched"] if "activations" in statement.parts else room


class Late:
    """
    Statements that come after the layers are handed out.

    Before that, time and memory are known from below only, so that these can refuse a point only
    where they bound them from above; anything else about them waits.
    """

    def __init__(self, program: Program) -> None:
        pipeline = program.pipeline
        unknown = set(pipeline.defines) if pipeline else set()
        self.statements: list[Statement] = []
        self.easy: list[Row] = []
        for statement in program.statements:
            if not unknown & set(statement.reads) or isinstance(statement, Fits | Pipeline):
                continue
            self.statements.append(statement)
            if pipeline and isinstance(statement, Row) and self._bounds(statement, pipeline):
                self.easy.append(statement)
            unknown |= set(statement.defines)
        self._ids = {id(s) for s in self.statements}
        self.hard = len(self.easy) < sum(isinstance(s, Row | Table) for s in self.statements)

    def __contains__(self, statement: Statement) -> bool:
        """Tell whether a statement is one of them."""
        return id(statement) in self._ids

    def _bounds(self, row: Row, pipeline: Pipeline) -> bool:
        """Tell whether a row bounds time or memory from above, and one of them only."""
        late = [(k, c) for k, c in row.terms if c in pipeline.defines]
        others = {c for _, c in row.terms} - set(pipeline.defines)
        defined = {c for s in self.statements for c in s.defines}
        return (
            row.low is None
            and row.when is None
            and len({c for _, c in late}) == 1
            and all(k > 0 for k, _ in late)
            and not others & defined
        )

    def judge(self, statement: Statement, block: Block) -> Mask | None:
        """Ask what can be asked of time and memory from below."""
        if not any(statement is row for row in self.easy):
            return None
        assert isinstance(statement, Row)
        if any(column not in block.columns for _, column in statement.terms):
            return None
        assert statement.high is not None
        total = sum(
            (k * block.columns[c] for k, c in statement.terms),
            start=np.zeros((1,) * len(block.shape), dtype=np.int64),
        )
        ok: Mask = total <= statement.high
        return ok
