"""Tiny tensors are fastest on one thread, most of all on a busy machine."""

import torch

torch.set_num_threads(1)
