"""An adapter that is attached to a model by PEFT, as its folder would have it: who trains and who serves read it alike.

PEFT comes with the model; whoever has none never imports this module.
"""

import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict

from adapters_store.preft.orthonormal import orthonormal_rows


def tensors_get(model: PeftModel) -> dict[str, torch.Tensor]:
    """The active adapter's tensors under their names in a folder: float32, on the CPU, R of LoReFT orthonormal."""
    tensors = {}
    for name, tensor in get_peft_model_state_dict(model, adapter_name=model.active_adapter).items():
        tensor = orthonormal_rows(tensor) if name.endswith("loreft_R.weight") else tensor
        tensors[name] = tensor.detach().to("cpu", torch.float32).contiguous()
    return tensors
