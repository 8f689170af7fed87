"""PreFT as PEFT methods: prefill-only LoRA, DiReFT and LoReFT, which PEFT's and TRL's own tools then use unmodified.

Importing this package registers them. All-position LoRA is PEFT's own `LoraConfig`.
"""

from training_jobs.attach.lora import PreftLoraConfig
from training_jobs.attach.prompt_mask import PromptEndUnknown
from training_jobs.attach.reft import DireftConfig, LoreftConfig

__all__ = ["DireftConfig", "LoreftConfig", "PreftLoraConfig", "PromptEndUnknown"]
