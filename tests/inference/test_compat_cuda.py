"""What is done on CUDA, on a CPU: vLLM's own wrapper and metadata, with shrink and expand as loops over programs.

The stand-ins read the step's metadata as the Triton kernels do, one program a slot, and count the rows that each
computes. That the kernels themselves do the same on a GPU has to be seen on one. Another version is tested by its
unpacked wheel in front: PYTHONPATH=/tmp/vllm-0.33.0 pytest tests/inference/test_compat_cuda.py
"""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

vllm = pytest.importorskip("vllm")
SLOTS, MAX_RANK, WIDTH, TOKENS = 3, 4, 6, 16
NONE = -1


def programs(metadata):
    """(slot, rows) of each program of a launch that does not return at once."""
    _, order, counts, starts, ids, _, launched = metadata
    for index in range(int(launched)):
        if ids[index] != NONE:
            start = int(starts[index])
            yield int(ids[index]), order[start : start + int(counts[index])].long()


class Kernels:
    """vLLM's lora_shrink and lora_expand; `rows` counts what they computed."""

    def __init__(self):
        self.rows = 0

    def shrink(self, inputs, weights, output, *rest):
        *metadata, scale = rest
        if metadata[5].item():
            return
        output.zero_()
        for slot, rows in programs(metadata):
            self.rows += len(rows)
            for index, a in enumerate(weights):
                output[index, rows] = inputs[rows] @ a[slot, 0].T * scale

    def expand(self, inputs, weights, output, *metadata, offset_start=0, add_inputs=False):
        if metadata[5].item():
            return
        assert add_inputs
        for slot, rows in programs(metadata):
            offset = offset_start
            for index, b in enumerate(weights):
                output[rows, offset : offset + b.shape[2]] += inputs[index, rows] @ b[slot, 0].T
                offset += b.shape[2]


@pytest.fixture(scope="module")
def kernels():
    from vllm.lora.ops.triton_ops import LoRAKernelMeta
    from vllm.lora.punica_wrapper import punica_gpu

    from inference import compat_cuda, plugin

    made = Kernels()
    plugin.register()
    plugin.require_active()
    if not hasattr(torch.ops.vllm, "attune_add_residual"):  # the plugin has left it out, on a CPU
        compat_cuda._register_op(punica_gpu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(punica_gpu, "lora_shrink", made.shrink, raising=False)
        patch.setattr(punica_gpu, "lora_expand", made.expand, raising=False)
        patch.setattr(punica_gpu, "LoRAKernelMeta", LoRAKernelMeta, raising=False)
        # A CUDA wheel's vLLM takes it for granted that memory can be pinned.
        patch.setattr("vllm.utils.torch_utils.PIN_MEMORY", False)
        yield made


@pytest.fixture(scope="module")
def wrapper(kernels):
    from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU

    from inference import compat_cuda

    taught = type("Taught", (PunicaWrapperGPU,), {})
    if not hasattr(taught, "add_residual"):
        compat_cuda.teach(taught)
    config = SimpleNamespace(max_loras=SLOTS, specialize_active_lora=False)
    return taught(TOKENS, max_batches=4, device="cpu", lora_config=config)


def place(wrapper, slots, sites):
    """Map the step's tokens to slots (NONE: no adapter); `sites` says what each slot's adapter has."""
    from vllm.lora.layers import LoRAMapping

    from inference.compat_cuda import note_sites
    from inference.residual import ResidualSlots

    for slot, (linear, stream) in enumerate(sites):
        modules = {"q_proj": object(), "residual_stream": ResidualSlots()}
        weights = {"q_proj": linear or None, "residual_stream": stream or None}
        manager = SimpleNamespace(
            lora_index_to_id=[1, 2, 3],
            _registered_adapters={slot + 1: weights},
            modules=modules,
            punica_wrapper_mapping={"model": wrapper},
            _get_lora_layer_weights=dict.get,
        )
        note_sites(manager, slot + 1)
    ids = tuple(slot + 1 for slot in slots)
    mapping = LoRAMapping(ids, ids, is_prefill=True)
    wrapper.update_metadata(mapping, [1, 2, 3], SLOTS + 1, 100)


class Weights:
    def __init__(self, seed, widths=(WIDTH,)):
        generator = torch.Generator().manual_seed(seed)
        self.a = [torch.randn(SLOTS, 1, MAX_RANK, WIDTH, generator=generator) for _ in widths]
        self.b = [torch.randn(SLOTS, 1, width, MAX_RANK, generator=generator) for width in widths]
        self.bias = torch.randn(SLOTS + 1, MAX_RANK, generator=generator)
        self.bias[SLOTS] = 0


ALL = [(True, True)] * SLOTS
mappings = st.lists(st.integers(NONE, SLOTS - 1), min_size=1, max_size=TOKENS)


@pytest.mark.slow
@settings(deadline=None)
@given(mappings, st.integers(0, 5), st.integers(0, TOKENS))
def test_the_stream_gets_each_tokens_own_formula(wrapper, slots, seed, padding):
    """After a step with another mapping, and with the rows that a graph pads a batch with."""
    weights, tokens = Weights(seed), min(TOKENS, len(slots) + padding)
    place(wrapper, slots, ALL)
    hidden, stream = torch.randn(tokens, WIDTH), torch.randn(tokens, WIDTH)
    expected = hidden.clone()
    for row, slot in enumerate(slots):
        if slot != NONE:
            low = weights.a[0][slot, 0] @ (hidden[row] + stream[row]) + weights.bias[slot]
            expected[row] += weights.b[0][slot, 0] @ low
    wrapper.add_residual(hidden, stream, weights.a[0], weights.b[0], weights.bias)
    torch.testing.assert_close(hidden, expected, atol=1e-4, rtol=1e-4)


def test_rows_without_an_adapter_keep_every_bit(wrapper):
    weights = Weights(0)
    place(wrapper, [NONE, 2, NONE], ALL)
    hidden, stream = torch.randn(3, WIDTH), torch.randn(3, WIDTH)
    before = hidden.clone()
    wrapper.add_residual(hidden, stream, weights.a[0], weights.b[0], weights.bias)
    assert torch.equal(hidden[[0, 2]], before[[0, 2]])
    assert not torch.equal(hidden[1], before[1])


def test_a_step_without_adapters_computes_nothing_at_all(wrapper, kernels):
    """Not even the sum of the stream: hidden of another width would fail there."""
    place(wrapper, [NONE] * 4, ALL)
    kernels.rows = 0
    hidden = torch.randn(4, WIDTH)
    wrapper.add_residual(hidden, torch.randn(5, WIDTH), *_site(Weights(0)))
    assert kernels.rows == 0
    for active in (wrapper.token_mapping_meta, wrapper.attune_stream_meta):
        assert active.active_lora_ids.tolist() == [NONE] * (SLOTS + 1)


def test_programs_run_only_where_a_slot_has_something(wrapper, kernels):
    """Slot 0 is a LoRA, slot 1 a DiReFT, slot 2 has both; two tokens, three, four."""
    slots = [0, 1, 2] * 2 + [1, 2, 2]
    place(wrapper, slots, [(True, False), (False, True), (True, True)])
    weights = Weights(1, widths=(3, 5))
    x, y = torch.randn(len(slots), WIDTH), torch.zeros(len(slots), 8)
    kernels.rows = 0
    wrapper.add_lora_linear(y, x, tuple(weights.a), tuple(weights.b), 1.0, (3, 5))
    assert kernels.rows == 2 + 4
    for row, slot in enumerate(slots):
        expected = torch.cat(
            [b[slot, 0] @ (a[slot, 0] @ x[row]) for a, b in zip(weights.a, weights.b, strict=True)]
        )
        torch.testing.assert_close(y[row], expected * (slot != 1), atol=1e-4, rtol=1e-4)
    kernels.rows = 0
    wrapper.add_residual(x, torch.randn(len(slots), WIDTH), *_site(Weights(2)))
    assert kernels.rows == 3 + 4


def test_graphs_find_everything_where_they_were_captured(wrapper):
    def addresses():
        tensors = (
            *wrapper.token_mapping_meta.meta_args(TOKENS, False),
            *wrapper.attune_stream_meta.meta_args(TOKENS, False),
            wrapper.attune_token_slots,
        )
        return [tensor.data_ptr() for tensor in tensors]

    place(wrapper, [0, 1], ALL)
    before = addresses()
    place(wrapper, [NONE, 2, 2, 1], [(True, False), (False, True), (True, True)])
    assert addresses() == before


@pytest.mark.slow
def test_a_compiled_graph_holds_the_site_as_one_operation(wrapper):
    place(wrapper, [0, NONE, 2], ALL)
    weights = Weights(3)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    def site(hidden, stream):
        wrapper.add_residual(hidden, stream, *_site(weights))
        return hidden

    hidden, stream = torch.randn(3, WIDTH), torch.randn(3, WIDTH)
    expected = site(hidden.clone(), stream)
    compiled = torch.compile(site, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(hidden.clone(), stream), expected)
    calls = [node.target for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
    assert [call for call in calls if "add" in str(call)] == [torch.ops.vllm.attune_add_residual]


def _site(weights):
    return weights.a[0], weights.b[0], weights.bias


def test_the_expand_kernel_is_not_pipelined_on_hopper(monkeypatch):
    from vllm.lora.ops.triton_ops import lora_expand_op
    from vllm.platforms import current_platform

    from inference import compat_cuda

    monkeypatch.setattr(lora_expand_op, "get_lora_op_configs", lora_expand_op.get_lora_op_configs)
    ordinary = lora_expand_op.get_lora_op_configs("expand", 8, 64, 576, 8, 1)
    compat_cuda._expand_in_one_stage()
    for hopper, stages in ((True, 1), (False, ordinary["num_stages"])):
        monkeypatch.setattr(
            type(current_platform), "is_device_capability", lambda self, number, at=hopper: at
        )
        assert lora_expand_op.get_lora_op_configs("expand", 8, 64, 576, 8, 1) == ordinary | {
            "num_stages": stages
        }


class Layer(torch.nn.Module):
    def forward(self, positions, hidden, residual):
        return torch.tanh(hidden), residual + hidden


def test_adapted_layers_compile_without_a_break(wrapper):
    """The decoder layer with its changed class, and the site as vLLM's LoRA layer, traced in one graph."""
    import vllm.lora.utils

    from inference import residual

    layers = torch.nn.ModuleList([Layer(), Layer()])
    residual.add_sites(layers, layer_type=Layer, width=WIDTH, device=torch.device("cpu"))
    slots_class = vllm.lora.utils._all_lora_classes[0]
    config = SimpleNamespace(max_lora_rank=MAX_RANK, lora_dtype=torch.float32)
    for seed, layer in enumerate(layers):
        site = slots_class(layer.residual_stream)
        site.create_lora_weights(SLOTS, config)
        weights = Weights(seed)
        for slot in range(SLOTS):
            a = torch.cat([weights.a[0][slot, 0], weights.bias[slot, :, None]], dim=1)
            site.set_lora(slot, a, weights.b[0][slot, 0])
        site.punica_wrapper = wrapper
        layer.residual_stream = site
    place(wrapper, [1, NONE, 0], ALL)

    def model(hidden, stream):
        for layer in layers:
            hidden, stream = layer(None, hidden, stream)
        return hidden, stream

    hidden, stream = torch.randn(3, WIDTH), torch.randn(3, WIDTH)
    expected = model(hidden.clone(), stream)
    calls = []

    def backend(graph, inputs):
        calls.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(hidden.clone(), stream), expected)
    assert sum("attune_add_residual" in call for call in calls) == 2
