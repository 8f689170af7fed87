"""python -m inference.serve: vLLM's own OpenAI server with Attune's adapters, settings from ATTUNE_* variables.

Any further option of vLLM may be appended, for example `--max-num-batched-tokens 512`.
"""

import os
import sys
from argparse import Namespace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from inference.settings import EngineSettings, engine_settings

#: Set before vLLM is imported, here and so in every process that it starts.
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # Our plugin alone: vLLM's own file resolver can be walked out of its folder.
    "VLLM_PLUGINS": "attune",
    # Without it vLLM asks no resolver. The routes that it opens as well are closed by ApiGuard.
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}

#: The last is the outermost: first the key, then the request's scope, then our routes, then vLLM.
_MIDDLEWARE = [
    "inference.example_route.ExampleRoute",
    "inference.adapter_routes.AdapterRoutes",
    "inference.request_scope.AdapterScope",
    "inference.api_guard.ApiGuard",
]


def prepare_environment(settings: EngineSettings) -> None:
    os.environ.update(_ENVIRONMENT)
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_cache_gb)
    if not [entry for entry in entry_points(group="vllm.general_plugins") if entry.name == "attune"]:
        raise SystemExit(
            "vLLM would not find Attune's plugin: install this project into the environment (pip install -e .)."
        )


def engine_options(
    *,
    base_folder: Path,
    gpu_slots: int | None,
    cpu_slots: int,
    max_rank: int,
    max_model_len: int,
    max_num_seqs: int,
) -> dict[str, Any]:
    """The engine's part of what the server is started with; benchmarks measure an engine with exactly these."""
    from inference.engine_args import preft_engine_args

    return {
        **preft_engine_args(gpu_slots=gpu_slots, cpu_slots=cpu_slots, max_rank=max_rank),
        "model": str(base_folder),
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
    }


def server_args(settings: EngineSettings, extra: list[str]) -> Namespace:
    """What vLLM's server is started with: ours as defaults, then what the command line says."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from inference.compat_http import server_options

    make_arg_parser, validate_parsed_serve_args = server_options()
    parser = make_arg_parser(FlexibleArgumentParser(prog="python -m inference.serve"))
    parser.set_defaults(
        **engine_options(
            base_folder=settings.base_folder,
            gpu_slots=settings.gpu_slots,
            cpu_slots=settings.cpu_slots,
            max_rank=settings.max_rank,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
        ),
        served_model_name=[settings.base_model],
        host=settings.engine_host,
        port=settings.engine_port,
        middleware=_MIDDLEWARE,
        # Otherwise usage says nothing of the prefix cache.
        enable_prompt_tokens_details=True,
        # Prompts and completions never reach a log, nor do the paths that name tenants and adapters.
        enable_log_requests=False,
        disable_uvicorn_access_log=True,
        disable_fastapi_docs=True,
    )
    args = parser.parse_args(extra)
    validate_parsed_serve_args(args)
    return args


def main() -> None:
    settings = engine_settings()
    prepare_environment(settings)
    import uvloop

    from inference import canary, compat
    from inference.compat_http import server

    canary.install(settings)
    run_server = server()  # first: the plugin, which server_args loads, finds there what it has to replace
    args = server_args(settings, sys.argv[1:])
    with compat.one_process(args):
        uvloop.run(run_server(args))


if __name__ == "__main__":
    main()
