"""The part of compat that teaches vLLM's V2 model runner, the default on CUDA, which tokens are adapted."""

import functools
from typing import Any

import numpy as np
from vllm.logger import init_logger

from inference import phase

logger = init_logger("vllm.attune")


def install() -> None:
    """Called by compat, after the sources were checked, where V2 can run at all (it needs Triton)."""
    from vllm.v1.worker.gpu.lora_utils import LoraState

    teach(LoraState)


def give_states(runner: Any) -> None:
    """0.26-0.33. LoraState maps requests to adapters, and is not told how far they are. Goes with teach()."""
    runner.lora_state.attune_states = runner.req_states


def teach(lora_state: Any) -> None:
    """0.26-0.33. V2 maps whole requests to adapters, and chooses the CUDA graph by the adapters of every request in
    the step, so a step of generated tokens would not replay the graph without LoRA. Goes when vLLM has per-token
    adapter ranges.

    `lora_state` is the class LoraState. Positions are compared with prompt_len alone: prefill_len and is_prefilling
    cover generated tokens too after a preemption, and one remaining prompt token "runs as a decode". What is compared
    is num_computed_tokens_np, which may run ahead of the GPU by rejected drafts, but not within a prompt.
    """
    init, add = lora_state.__init__, lora_state.add_request

    @functools.wraps(init)
    def __init__(self: Any, max_num_reqs: int) -> None:  # noqa: N807
        init(self, max_num_reqs)
        self.attune_prefill_only = np.zeros(max_num_reqs, np.bool_)

    @functools.wraps(add)
    def add_request(self: Any, req_id: str, req_index: int, lora_request: Any) -> None:
        add(self, req_id, req_index, lora_request)
        self.attune_prefill_only[req_index] = (
            lora_request is not None and phase.position_of(lora_request.lora_name) == "prefill"
        )

    def get_activate_loras(self: Any, req_ids: list[str]) -> set[Any]:
        """By each request's first token of the step: where that is not adapted, none after it is."""
        rows = np.fromiter(
            map(self.attune_states.req_id_to_index.__getitem__, req_ids), np.intp, count=len(req_ids)
        )
        first, _ = _map_tokens(self, rows, np.ones(len(rows), np.int32))
        return {self.lora_requests[req_ids[row]] for row in np.flatnonzero(first)}

    def make_lora_inputs(
        self: Any, req_ids: list[str], idx_mapping: np.ndarray, num_scheduled_tokens: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[int, ...], set[Any]]:
        tokens, samples = _map_tokens(self, idx_mapping, num_scheduled_tokens)
        logger.debug("V2 step: %d tokens of %d requests, adapters %s", len(tokens), len(req_ids), tokens)
        return tuple(samples.tolist()), tuple(tokens.tolist()), self.get_activate_loras(req_ids)

    lora_state.__init__ = __init__
    lora_state.add_request = add_request
    lora_state.get_activate_loras = get_activate_loras
    lora_state.make_lora_inputs = make_lora_inputs


def _map_tokens(state: Any, rows: np.ndarray, scheduled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """phase.token_adapters for requests at `rows` of V2's arrays; one sampled position each, as V2 has it."""
    return phase.token_adapters(
        adapters=state.lora_ids[rows],
        prefill_only=state.attune_prefill_only[rows],
        prompt_lengths=state.attune_states.prompt_len.np[rows],
        starts=state.attune_states.num_computed_tokens_np[rows],
        scheduled=scheduled,
        sampled=np.ones(len(rows), np.int32),
    )
