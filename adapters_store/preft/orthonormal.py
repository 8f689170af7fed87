"""LoReFT's R has orthonormal rows by construction: training keeps any matrix, and this is what it stands for."""

import torch


def orthonormal_rows(matrix: torch.Tensor) -> torch.Tensor:
    """The rows of `matrix` [r, d], r <= d, made orthonormal by QR; rows that are orthonormal already stay as they are.

    QR leaves the sign of each row open: it is the one that `matrix` has. Computed in float32.
    """
    q, upper = torch.linalg.qr(matrix.float().T)
    rows: torch.Tensor = (q * torch.where(upper.diagonal() < 0, -1.0, 1.0)).T.to(matrix.dtype)
    return rows
