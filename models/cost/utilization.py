"""How much of the peak a matrix product reaches: the published form of rho."""

from __future__ import annotations

from optplan.models.cost.arrays import Float, Int
from optplan.models.cost.calibration import Calibration, Lump


def rho(
    calibration: Calibration | Lump,
    micro_batch: Float,
    sequence_length: Float,
    hidden: int,
    tp: Int,
) -> Float:
    """
    Time multiplier of a matrix product: the reciprocal of its utilization.

    ``rho = (1 + c1 / (b s) + c2 t / h) / u_peak``, which is ``rho_inf (1 + b0 / b)`` with ``b0``
    and ``rho_inf`` free of ``b``: positive, falling in ``b``, rising in ``t``.

    Parameters
    ----------
    calibration
        ``utilization_peak`` (u_peak), ``tokens_half`` (c1, tokens) and ``shard_loss`` (c2, no
        unit).
    micro_batch
        Sequences b, at least 1.
    sequence_length
        Tokens s of a sequence.
    hidden
        Width h of the residual stream.
    tp
        Tensor-parallel degree t.

    Returns
    -------
    float or ndarray
        At least 1.

    Notes
    -----
    The paper (arXiv 2501.00254) names rho(b,s,h,t) and prints neither its form nor its data; this
    form is ours.
    """
    tokens = micro_batch * sequence_length
    loss = calibration.tokens_half / tokens + calibration.shard_loss * tp / hidden
    return (1.0 + loss) / calibration.utilization_peak
