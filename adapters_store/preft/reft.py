"""ReFT: low-rank edits of the residual stream after a decoder layer (Wu et al. 2024; paper appendix A.2)."""

from typing import Any


def direft_delta(h: Any, a: Any, bias: Any, b: Any, scale: float) -> Any:
    """DiReFT, scale*B*(A*h + bias).

    h [..., d], a [r, d], bias [r], b [d, r], all one float dtype, numpy or torch; returns [..., d]. With h [B, T, d]
    every row may have its own a [B, r, d], bias [B, 1, r] and b [B, d, r].
    """
    return (h @ a.mT + bias) @ b.mT * scale


def loreft_delta(h: Any, r: Any, w: Any, bias: Any, scale: float) -> Any:
    """LoReFT, scale*Rt*(W*h + bias - R*h), with the rows of R orthonormal.

    h [..., d], r [rank, d], w [rank, d], bias [rank]; returns [..., d]. It is DiReFT with A = W - R and B = Rt; every
    row may have its own, as there.
    """
    return direft_delta(h, w - r, bias, r.mT, scale)
