"""LoReFT's R has orthonormal rows by construction: training keeps any matrix, and this is what it stands for."""

import torch


def orthonormal_rows(matrix: torch.Tensor) -> torch.Tensor:
    """The rows of `matrix` [..., r, d], r <= d, made orthonormal by QR; those that are orthonormal already stay.

    QR leaves the sign of each row open: it is the one that `matrix` has. Computed in float32.
    """
    q, upper = torch.linalg.qr(matrix.float().mT)
    signs = torch.where(upper.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    rows: torch.Tensor = (q * signs.unsqueeze(-2)).mT.to(matrix.dtype)
    return rows
