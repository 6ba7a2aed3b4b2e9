"""What a matrix product loses to its shape: whole waves of tiles, and columns out of line."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from optplan.models.cost.arrays import Float
from optplan.models.spec.problem import Problem

TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.9))
"""
Rows and columns of a tile, and its speed relative to the fastest. Libraries choose among a few;
256 x 128 is the most efficient and smaller ones reuse less (NVIDIA, Matrix Multiplication
Background User's Guide, sections 4.2 and 4.3; the guide gives no number for 128 x 128, whose tenth
of loss is ours: 0.8 to 0.95 fit the runs alike).
"""

ALIGNED = 64
"""
Columns whose multiples are read at full speed: 128 bytes of 16-bit numbers (same guide, 4.1).
"""


def tile_loss(problem: Problem, rows: Float, columns: Float, products: Float = 1) -> Float:
    """
    Time of products of matrices over what it would be if tiles filled every processor.

    The processors of a device work on a tile each, wave by wave, and the last wave may be nearly
    empty; tiles that reach over the edge work for nothing.

    Parameters
    ----------
    rows, columns
        Shape of each product, at least a fraction of one.
    products
        How many alike are launched as one.

    Returns
    -------
    float or ndarray
        At least 1; exactly 1 where the accelerator's processors are not known or paper prices ask.
    """
    units = problem.cluster.accelerator.units
    if units is None or problem.prices == "paper":
        return 1.0
    best: Any = np.inf
    for high, wide, speed in TILES:
        tiles = products * np.ceil(rows / high) * np.ceil(columns / wide)
        waves = np.ceil(tiles / units)
        spent = waves * (units * high * wide / speed)
        best = np.minimum(best, spent / (products * rows * columns))
    return cast(Float, float(best) if np.ndim(best) == 0 else best)


def alignment(problem: Problem, columns: Float) -> Float:
    """
    Extra time of a matrix product for columns that no large power of two divides, as a share.

    Parameters
    ----------
    columns
        Of an input or an output on one device; what is no whole number counts as odd.
    """
    loss = problem.calibration.alignment_loss
    if not loss or problem.prices == "paper":
        return 0.0
    whole = np.where(np.floor(columns) == columns, columns, 1).astype(np.int64)
    halvings = np.log2(ALIGNED / np.gcd(whole, ALIGNED))
    return cast(Float, loss * (float(halvings) if np.ndim(halvings) == 0 else halvings))
