"""What an engine can and cannot serve: refused at start or at load, by name, never silently served wrong."""

import json
from pathlib import Path
from typing import Any

import torch

from adapters_store.architectures import PROVEN
from adapters_store.errors import AdapterCorrupt, AdapterError, AdapterMissing, AdapterUnsupported, BadName
from adapters_store.manifest import CONFIG_FILE
from adapters_store.names import parse_name
from adapters_store.peft_config import plain_lora
from adapters_store.weights import manifest_read
from inference.architectures import LAYERS
from inference.convert import is_attune_folder
from inference.phase import position_of
from inference.residual import SITE, ResidualStream

#: Options of a plain LoRA that vLLM 0.26 reads past. Later versions obey them.
_READ_PAST = ("rank_pattern", "alpha_pattern")

START = "Start vLLM with inference.engine_args.preft_engine_args()."


class Unservable(RuntimeError):
    """The engine's configuration would serve wrong or unproven answers; the message says which part and what to do."""


class AdapterMismatch(AdapterError):
    """Weights that were to be written over a live adapter's are another adapter's."""

    code = "adapter_mismatch"


def check_config(vllm_config: Any, model: Any, *, platform: str) -> str | None:
    """Refuse configurations that cannot be served exactly; returns the path of the decoder layer that gets a SITE.

    None if only LoRA is asked for. Raises Unservable in the worker while it loads, which ends the engine's start.
    """
    lora = vllm_config.lora_config
    targets = lora.target_modules
    if targets is None or {"lm_head", "embed_tokens"} & set(targets):
        raise Unservable(f"Adapters on lm_head or embed_tokens are not served. {START}")
    if lora.fully_sharded_loras:
        raise Unservable("fully_sharded_loras is not served; leave it off.")
    if vllm_config.kv_transfer_config is not None:
        raise Unservable(
            "KV connectors store blocks under keys that do not know adapted positions; leave them off."
        )
    if vllm_config.kv_events_config is not None and vllm_config.kv_events_config.enable_kv_cache_events:
        raise Unservable("KV events do not tell adapted positions; leave enable_kv_cache_events off.")
    if (quantization := vllm_config.model_config.quantization) is not None:
        raise Unservable(
            f"The base model is quantised ({quantization}). No quantised base has been compared with transformers "
            "yet; serve its unquantised weights."
        )
    if (servers := vllm_config.parallel_config._api_process_count) > 1:
        raise Unservable(
            f"Each of {servers} API servers would number adapters by itself, and they would meet under one number; "
            "use --api-server-count 1, or start several engines."
        )
    _check_platform(vllm_config, platform)
    if SITE not in targets:
        return None
    name = type(model).__name__
    if name not in PROVEN:
        raise Unservable(
            f"{name} has not been proven with DiReFT and LoReFT (proven: {', '.join(sorted(PROVEN))}); "
            f"leave {SITE!r} out of lora_target_modules to serve LoRA alone."
        )
    return LAYERS[name]


def _check_platform(vllm_config: Any, platform: str) -> None:
    lora, parallel = vllm_config.lora_config, vllm_config.parallel_config
    speculation = vllm_config.speculative_config
    if platform == "cpu":
        if vllm_config.use_v2_model_runner:
            raise Unservable(
                "On a CPU adapters are served with vLLM's V1 model runner; unset VLLM_USE_V2_MODEL_RUNNER."
            )
        if speculation is not None and speculation.method != "ngram":
            raise Unservable(
                f"Speculative decoding has been proven with adapters by n-grams alone, not by {speculation.method}."
            )
        if parallel.pipeline_parallel_size > 1 or parallel.data_parallel_size > 1:
            raise Unservable(
                "Adapters have not been proven with pipeline or data parallelism; use tensor parallelism, or start "
                "several engines."
            )
        return
    if platform != "cuda":
        raise Unservable(f"Attune's plugin serves on CPUs and on CUDA, not on {platform}.")
    if lora.lora_dtype not in (torch.float16, torch.bfloat16):
        raise Unservable(
            f"vLLM's adapter kernels on CUDA take float16 and bfloat16, not {lora.lora_dtype}; set dtype."
        )
    if lora.specialize_active_lora:
        raise Unservable(
            "specialize_active_lora captures graphs with one program too few for steps in which some tokens have "
            "no adapter, as most have here; leave it off."
        )
    if speculation is not None:
        raise Unservable("Speculative decoding has not been proven with adapters on CUDA; leave it off.")
    if parallel.world_size > 1 or parallel.data_parallel_size > 1:
        raise Unservable(
            "Adapters have not been proven with tensor, pipeline or data parallelism on CUDA; start one engine a GPU."
        )


def check_not_resumable(request: Any) -> None:
    """A streaming session turns what was generated into prompt without computing it again: refuse it."""
    adapter = request.lora_request
    if request.resumable and adapter is not None and position_of(adapter.lora_name) == "prefill":
        raise ValueError(
            "A prefill-only adapter cannot answer in a streaming-input session; send whole requests."
        )


def check_no_beams(adapters: Any) -> None:
    """A beam search puts what was generated into the next step's prompt: refuse it with what acts on prompts alone.

    `adapters` is a LoRARequest, a sequence of them or of None, or None. Raises AdapterUnsupported.
    """
    asked = adapters if isinstance(adapters, list | tuple) else [adapters]
    if any(adapter is not None and position_of(adapter.lora_name) == "prefill" for adapter in asked):
        raise AdapterUnsupported(
            "A prefill-only adapter cannot answer by beam search, which would adapt what it generates; ask without "
            "use_beam_search."
        )


def check_folder(folder: Path, name: str) -> None:
    """The folder's kind and the name asked for must agree on where the adapter acts.

    An Attune folder under a name that is not its own would act everywhere; a plain folder under one of our names has
    no digest to check, and has to be a plain LoRA. Raises AdapterMissing, AdapterUnsupported or AdapterCorrupt.
    """
    if not folder.is_dir():
        raise AdapterMissing(f"The adapter's folder {folder.name} is gone.")
    try:
        parsed = parse_name(name)
    except BadName:
        if is_attune_folder(folder):
            raise AdapterUnsupported(
                f"This folder holds an Attune adapter: ask for it as {manifest_read(folder).name}."
            ) from None
        if not (folder / CONFIG_FILE).is_file():
            raise AdapterMissing(f"The adapter's folder has no {CONFIG_FILE}.") from None
        plain_lora((folder / CONFIG_FILE).read_bytes())
        return
    if not is_attune_folder(folder):
        raise AdapterMissing(f"The folder of {parsed.name[:15]}… has no manifest.json.")


def check_plain_options(folder: Path) -> None:
    """Raise AdapterUnsupported for a plain PEFT adapter that vLLM 0.26 would serve as if it were another."""
    config = json.loads((folder / CONFIG_FILE).read_text())
    unknown = [option for option in _READ_PAST if config.get(option)]
    if unknown:
        raise AdapterUnsupported(
            f"vLLM 0.26 ignores {', '.join(unknown)} of adapter_config.json; serve this adapter with a later version."
        )


def check_fits(adapter: Any, manager: Any) -> None:
    """Every matrix must fit the site it names, or paging it into a slot would fail inside a step.

    `adapter` is vLLM's LoRAModel before packing, `manager` its LoRAModelManager. Raises AdapterCorrupt for a wrong
    width and AdapterUnsupported for a site that this engine does not adapt.
    """
    sites = _sites(manager)
    if not adapter.loras:
        raise AdapterCorrupt("The adapter holds no weights.")
    # vLLM 0.26 has no such attribute: its loader refuses them.
    if getattr(adapter, "modules_to_save", None):
        raise AdapterUnsupported("Adapters with modules_to_save are not served.")
    for name, weights in adapter.loras.items():
        if name not in sites:
            raise AdapterUnsupported(f"This engine does not adapt {name[:120]}.")
        rank, width_in, width_out = sites[name]
        a, b = weights.lora_a, weights.lora_b
        if a is None or b is None or a.shape[0] != b.shape[1]:
            raise AdapterCorrupt(f"{name} lacks one of its two matrices, or their ranks differ.")
        if a.shape[0] > rank:
            raise AdapterUnsupported(f"{name} has rank {a.shape[0]}; this engine serves ranks up to {rank}.")
        extra = 1 if name.endswith(SITE) else 0
        if a.shape[1] not in (width_in, width_in + extra) or b.shape[0] != width_out:
            raise AdapterCorrupt(
                f"{name} maps {a.shape[1] - extra} to {b.shape[0]}; the base model's maps {width_in} to {width_out}."
            )


def check_same_sites(adapter: Any, live: Any) -> None:
    """Weights that are to take the place of others have the same matrices, no fewer, no more, no other shapes.

    Both are vLLM's LoRAModel, packed. Raises AdapterMismatch.
    """
    new, old = _shapes(adapter), _shapes(live)
    for names, what in ((old - new, "lacks"), (new - old, "has")):
        if names:
            name, *others = sorted(names)
            raise AdapterMismatch(
                f"Not the adapter that is live under this id: the new one {what} {name}"
                + (f" and {len(others)} more" if others else "")
                + ". Give it an id of its own."
            )


def _shapes(adapter: Any) -> set[str]:
    """One text for every matrix of a LoRAModel: its site, which part of it, its shape."""
    found = set()
    for name, weights in adapter.loras.items():
        for letter, part in (("A", weights.lora_a), ("B", weights.lora_b)):
            for at, matrix in enumerate(part if isinstance(part, list) else [part]):
                if matrix is not None:
                    found.add(f"{name}.{at}.lora_{letter} {list(matrix.shape)}")
    return found


def _sites(manager: Any) -> dict[str, tuple[int, int, int]]:
    """Each site's name as adapters say it (q_proj, not qkv_proj): greatest rank, input width, output width."""
    sites = {}
    for name, module in manager.modules.items():
        parts = manager.packed_modules.get(name, [name])
        width_in, widths_out = _widths(module.base_layer)
        for part, a, width_out in zip(parts, module.lora_a_stacked, widths_out, strict=True):
            sites[part] = (a.shape[2], width_in, width_out)
    return sites


def _widths(layer: Any) -> tuple[int, list[int]]:
    """Input width, and output width of each part, as an adapter has them: of all tensor-parallel ranks together."""
    if isinstance(layer, ResidualStream):
        return layer.width, [layer.width]
    widths = list(getattr(layer, "output_sizes", [layer.output_size]))
    # With fewer heads of keys and values than ranks, several ranks have the same: vLLM counts each.
    copies = getattr(layer, "num_kv_head_replicas", 1)
    return layer.input_size, [widths[0], *(width // copies for width in widths[1:])]
