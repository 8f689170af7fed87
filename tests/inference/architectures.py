"""python -m tests.inference.architectures [NAME[:REGIME]...]: is every architecture served as transformers computes it?

For each a tiny model of random weights, adapters of every kind and the base, mixed in one cramped engine on the CPU:
greedy tokens by vLLM against two phases in transformers and against the trainer's one pass. An engine a name, a minute
each. A regime is an engine that test_parity's cannot be at the same time; test_regimes runs those, each on another
architecture. The other models are no part of any test run, because they repeat what is proven for those.
docs/inference.md has the results.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 512
LENGTHS = (1, 31, 33, 150)
KINDS = (
    ("lora", "prefill"),
    ("lora", "all"),
    ("direft", "prefill"),
    ("direft", "all"),
    ("loreft", "prefill"),
    ("loreft", "all"),
)

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
#: transformers' config class, and what differs from _COMMON.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "mistral-window": ("MistralConfig", {"sliding_window": 64}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "gemma": ("GemmaConfig", {}),
    # Without soft caps: transformers' default attention leaves them out.
    "gemma2": ("Gemma2Config", {"query_pre_attn_scalar": 32, "attn_logit_softcapping": None}),
    "gemma3": ("Gemma3TextConfig", {"query_pre_attn_scalar": 32}),
}


@dataclass(frozen=True)
class Regime:
    """vLLM's options, how many to generate, and counters of vLLM that show that it took place."""

    options: dict[str, Any]
    tokens: int = 24
    counters: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


REGIMES = {
    "": Regime({}),
    # A step then has several tokens of a request that decodes, and those that are refused are computed again.
    "ngram": Regime(
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}},
        tokens=80,
        counters=("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    ),
    # Two processes, each with half of every projection's adapter.
    "tensor-parallel": Regime({"tensor_parallel_size": 2}, environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"}),
}


def architecture_of(name: str) -> str:
    """The name of its class, as config.json will have it."""
    return MODELS[name][0].removesuffix("Config").removesuffix("Text") + "ForCausalLM"


def write_model(folder: Path, name: str) -> None:
    """A model folder with tokenizer, as vLLM and transformers load it."""
    import torch
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    kind, changes = MODELS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**_COMMON | changes))
    if name.startswith("gemma"):
        # Its embeddings are its output matrix and enter multiplied: at full size it repeats every token for ever.
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(0.15 if name == "gemma3" else 0.3)
    for parameter in (value for key, value in model.named_parameters() if key.endswith("bias")):
        torch.nn.init.normal_(parameter, std=0.1)  # zero at the start, and then nothing would show a lost one
    model.float().save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{number}": number for number in range(VOCABULARY)}, unk_token="t3"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="t0", eos_token="t1", pad_token="t2", unk_token="t3"
    ).save_pretrained(folder)


def questions(base: Path, folder: Path, tokens: int) -> list[Any]:
    from tests.inference.adapters import random_adapter
    from tests.inference.engine import Question

    rng, seeds = np.random.default_rng(7), count()
    adapters = [
        random_adapter(
            folder / f"{method}-{position}", base=base, method=method, position=position, seed=next(seeds)
        )
        for method, position in KINDS
    ]
    prompts = [rng.integers(10, VOCABULARY, length).tolist() for length in LENGTHS]
    return [Question(prompt, adapter, tokens) for prompt in prompts for adapter in (None, *adapters)]


def check(case: str) -> str:
    """Raise AssertionError, or say what was compared."""
    name, _, regime_name = case.partition(":")
    regime = REGIMES[regime_name]
    os.environ |= regime.environment | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
    from adapters_store.architectures import PROVEN
    from inference.architectures import LAYERS
    from tests.inference.engine import engine
    from tests.inference.reference import Reference
    from tests.inference.trainer_side import TrainerSide

    PROVEN.update(LAYERS)  # which is what is to be seen
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / name
        write_model(base, name)
        asked = questions(base, Path(folder), regime.tokens)
        for running in engine(base, **regime.options):
            running.ask(asked)
            for counter in regime.counters:
                assert running.counter(counter), f"{case}: {counter} is 0, so it proves nothing"
        reference, trainer = Reference(base), TrainerSide(base)
        sure = 0
        for question in asked:
            where = f"{case}, {len(question.prompt)} tokens, {question.adapter and question.adapter.manifest.method}"
            two_phase = reference.two_phase(question.prompt, question.answer, question.adapter)
            assert two_phase.agrees(question.answer), f"two phases: {where}"
            one_pass = trainer.one_pass(question.prompt, question.answer, question.adapter)
            assert one_pass.agrees(question.answer), f"one pass: {where}"
            sure += len(two_phase.sure)
    asked_for = sum(question.count for question in asked)
    assert sure >= 0.8 * asked_for, f"{case}: the reference was sure of {sure} tokens of {asked_for}"
    for start in range(1, len(KINDS) + 1):
        pairs = zip(asked[start :: len(KINDS) + 1], asked[:: len(KINDS) + 1], strict=True)
        assert any(adapted.answer != plain.answer for adapted, plain in pairs), (
            f"{case}: {KINDS[start - 1]} does nothing"
        )
    return f"{case}: {sure} of {asked_for} tokens compared, all equal"


def main(names: list[str]) -> int:
    if len(names) == 1:
        print(check(names[0]))
        return 0
    failed = 0
    for name in names or MODELS:
        # A process each: one engine lives in it, and the plugin stays.
        failed |= subprocess.run([sys.executable, "-m", __spec__.name, name], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
