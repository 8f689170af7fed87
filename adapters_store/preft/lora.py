"""LoRA: f(x) + scale*B*A*x (Hu et al. 2021; paper appendix A.1)."""

from typing import Any


def lora_delta(x: Any, a: Any, b: Any, scale: float) -> Any:
    """What LoRA adds to a linear layer's output.

    x [..., in], a [r, in], b [out, r], all one float dtype, numpy or torch; returns [..., out]. With x [B, T, in] every
    row may have its own a [B, r, in] and b [B, out, r].
    """
    return (x @ a.mT) @ b.mT * scale
