"""Block keys through vLLM's own hasher: which requests may share which blocks of KV."""

from types import SimpleNamespace

import pytest

from adapters_store.names import qualified_name
from inference.prefix_keys import prefill_key

BLOCK = 32
A, B = "ap-" + "a" * 64, "ap-" + "b" * 64
ALL = "aa-" + "a" * 64
TOKENS = list(range(1000, 1096))


@pytest.fixture(scope="module")
def blocks():
    """(prompt length, adapter's name, ...) -> the keys of the three blocks of TOKENS."""
    pytest.importorskip("vllm")
    from inference import plugin

    plugin.register()
    plugin.require_active()
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    hash_function = get_hash_fn_by_name("sha256")
    init_none_hash(hash_function)

    def keys(prompt, name=None, *, path="/somewhere", salt=None, one_by_one=True):
        request = Request(
            request_id="r",
            prompt_token_ids=TOKENS[:prompt],
            sampling_params=SamplingParams(max_tokens=100),
            pooling_params=None,
            lora_request=None if name is None else LoRARequest(name, 1, path),
            cache_salt=salt,
            block_hasher=get_request_block_hasher(BLOCK, hash_function),
        )
        rest = TOKENS[prompt:]
        for step in ([token] for token in rest) if one_by_one else [rest]:
            request.append_output_token_ids(step)
        return request.block_hashes

    return keys


def shared(one, other):
    """How many leading blocks two requests share; a later one can never match again, keys being chained."""
    return next((i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def test_the_same_prompt_of_the_same_adapter_is_shared(blocks):
    assert shared(blocks(96, A), blocks(96, A)) == 3


def test_no_adapter_shares_with_another_or_with_the_base(blocks):
    for other in (B, ALL, None, qualified_name("1" * 32, A)):
        assert shared(blocks(96, A), blocks(96, other)) == 0


def test_what_was_generated_is_never_prompt(blocks):
    """Turn 2 holds turn 1's answer as prompt: the adapter is on there now."""
    turn_1, turn_2 = blocks(32, A), blocks(96, A)
    assert shared(turn_1, turn_2) == 1


@pytest.mark.parametrize(
    ("one", "other", "common"), [(40, 50, 1), (31, 32, 0), (32, 33, 1), (64, 63, 1), (95, 96, 2)]
)
def test_prompts_of_different_length_never_share_their_boundary_block(blocks, one, other, common):
    assert shared(blocks(one, A), blocks(other, A)) == common


def test_generated_blocks_are_shared_by_equal_prompts_alone(blocks):
    """A preempted request finds its own answer again."""
    assert shared(blocks(40, A), blocks(40, A)) == 3


def test_it_does_not_matter_how_tokens_arrive(blocks):
    assert blocks(40, A) == blocks(40, A, one_by_one=False)


def test_base_and_all_position_requests_keep_their_ordinary_reuse(blocks):
    assert shared(blocks(40), blocks(96)) == 3
    assert shared(blocks(40, ALL), blocks(96, ALL)) == 3
    assert shared(blocks(40, "sql-lora"), blocks(96, "sql-lora")) == 3


def test_the_path_of_a_prefill_adapter_does_not_matter_its_name_says_it_all(blocks):
    assert shared(blocks(96, A, path="/cache/1"), blocks(96, A, path="/cache/2")) == 3


def test_tenants_with_different_salts_share_nothing(blocks):
    assert shared(blocks(96, A, salt="one"), blocks(96, A, salt="two")) == 0
    assert shared(blocks(96, A, salt="one"), blocks(96, A, salt="one")) == 3


def test_keys_say_how_many_tokens_are_adapted():
    counts = [prefill_key(A, start, start + BLOCK, 40)[2] for start in (0, 32, 64)]
    assert counts == [32, 8, 0]


def test_every_importer_of_the_key_function_has_ours():
    pytest.importorskip("vllm")
    from inference import plugin

    plugin.register()
    from vllm.v1.core import block_pool, kv_cache_utils
    from vllm.v1.simple_kv_offload import manager

    request = SimpleNamespace(
        attune_adapter=SimpleNamespace(lora_name=A),
        lora_request=None,
        num_prompt_tokens=40,
        mm_features=[],
        cache_salt=None,
        prompt_embeds=None,
    )
    for module in (block_pool, kv_cache_utils, manager):
        if module is manager and not hasattr(module, "generate_block_hash_extra_keys"):
            continue  # vLLM 0.26
        assert module.generate_block_hash_extra_keys(request, 32, 64, 0)[0] == (("lora", A, 8),)
