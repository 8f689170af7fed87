"""The plugin works on the vLLM it was written for, refuses any other, and says so to whoever asks."""

import os
import subprocess
import sys
import textwrap
from argparse import Namespace

import pytest

vllm = pytest.importorskip("vllm")


def run(code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a plugin cannot be taken out again."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_installed_version_is_in_the_table_and_has_its_sources():
    from inference import plugin
    from inference.compat_table import TABLE, installed_version

    assert installed_version() in TABLE
    plugin.register()
    plugin.require_active()  # it checks every source before it changes any


@pytest.mark.slow
def test_a_changed_source_is_refused_in_words_and_nothing_is_patched():
    done = run("""
        from vllm.v1.worker.gpu_input_batch import InputBatch
        def make_lora_inputs(self, num_scheduled_tokens, num_sampled_tokens):
            return ()
        InputBatch.make_lora_inputs = make_lora_inputs
        from inference import compat_table
        digest = compat_table.source_digest
        compat_table.source_digest = lambda name: "changed" if "make_lora_inputs" in name else digest(name)
        from inference import plugin
        plugin.register()
        assert not plugin.active()
        assert InputBatch.make_lora_inputs is make_lora_inputs
        from inference.engine_args import preft_engine_args
        try:
            preft_engine_args()
        except plugin.PluginInactive as error:
            print(error)
    """)
    assert done.returncode == 0, done.stderr
    assert "is not the one that Attune's plugin was written for" in done.stdout


def test_an_unknown_version_is_refused_in_words(monkeypatch):
    from inference import compat_table

    monkeypatch.setattr(compat_table, "installed_version", lambda: "0.99.0")
    with pytest.raises(
        compat_table.Incompatible, match=r"does not know vLLM 0\.99\.0; install one of .*0\.32\.0"
    ):
        compat_table.check_sources()


def test_on_a_cpu_only_what_is_proven_there_is_patched(monkeypatch):
    from inference import compat_cpu

    monkeypatch.setattr(compat_cpu, "installed_version", lambda: "0.33.0")
    with pytest.raises(compat_cpu.Incompatible, match=r"with vLLM 0\.32\.0 alone, not with 0\.33\.0"):
        compat_cpu.check_version()


def test_without_the_plugin_no_adapter_is_asked_for(monkeypatch, tmp_path):
    from inference import adapter_request, plugin, weight_sync

    monkeypatch.setattr(plugin, "_refusal", "vLLM is another")
    with pytest.raises(plugin.PluginInactive, match="vLLM is another"):
        adapter_request.request_for(tmp_path, None, adapter_id=1)
    with pytest.raises(plugin.PluginInactive, match="vLLM is another"):
        weight_sync.tensors_sync({}, None, None, adapter_id=1)


def test_registering_again_changes_nothing():
    from inference import plugin

    plugin.register()
    from vllm.v1.core.sched.scheduler import Scheduler

    gate = Scheduler._handle_blocked_waiting_request
    plugin.register()
    assert plugin.active()
    assert Scheduler._handle_blocked_waiting_request is gate


def test_engine_arguments_on_a_cpu():
    from inference.engine_args import preft_engine_args

    args = preft_engine_args(gpu_slots=4, cpu_slots=2, max_rank=16, block_size=64)
    assert args["max_cpu_loras"] == 4, "memory never holds fewer than there are slots"
    assert (args["dtype"], args["enforce_eager"], args["block_size"]) == ("float32", True, 64)
    assert "residual_stream" in args["lora_target_modules"]
    assert "lm_head" not in args["lora_target_modules"]
    assert preft_engine_args(cpu_slots=20)["max_loras"] == 20, "a slot costs nothing here"
    assert preft_engine_args(cpu_slots=20, on_cpu=False)["max_loras"] == 8


def test_the_options_for_vllms_own_server_are_the_arguments_for_its_engine():
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from inference.engine_args import as_options, preft_engine_args

    args = preft_engine_args(gpu_slots=4, max_rank=16, block_size=64)
    words = " ".join(as_options(args)).split()  # as a shell splits what $(…) gives it
    parsed = vars(EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(words))
    assert {name: parsed[name] for name in args} == args


def test_a_cpus_engine_is_one_process_with_the_threads_that_a_worker_would_have(monkeypatch):
    """So says vLLM's own manager of OpenMP; asked for several workers, vLLM goes its own way."""
    from inference import compat

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    alone = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1}
    args = Namespace(**alone, distributed_executor_backend=None)
    with compat.one_process(args):
        threads = int(os.environ["OMP_NUM_THREADS"])
        assert args.distributed_executor_backend.endswith(".UniProcExecutor")
    assert 1 <= threads <= len(os.sched_getaffinity(0))
    assert "OMP_NUM_THREADS" not in os.environ
    for asked in ({"tensor_parallel_size": 2}, {"distributed_executor_backend": "mp"}):
        args = Namespace(**{**alone, "distributed_executor_backend": None, **asked})
        with compat.one_process(args):
            assert "OMP_NUM_THREADS" not in os.environ
        assert args.distributed_executor_backend == asked.get("distributed_executor_backend")


@pytest.mark.slow
def test_an_engine_starts_in_a_process_that_has_loaded_numba():
    """As the second engine of a process does: each has the platform replace vLLM's kernels."""
    done = run("""
        from inference import kernels, plugin
        plugin.register()
        plugin.require_active()
        from vllm.platforms import current_platform
        from vllm.triton_utils import dispatcher
        current_platform.register_triton_kernel_overrides()
        replaced = set(dispatcher._registry)
        assert replaced
        current_platform.register_triton_kernel_overrides()
        assert set(dispatcher._registry) == replaced
        import llvmlite.binding
        assert kernels.numba.core.codegen.ll is llvmlite.binding
    """)
    assert done.returncode == 0, done.stderr
