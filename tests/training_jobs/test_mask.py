"""The trainer's one pass over prompt and completion computes what serving computes in two phases."""

import pytest
import torch

from tests.training_jobs.adapters import PREFILL, RECIPES, disturbed, name
from tests.training_jobs.tiny import tiny_model
from training_jobs.attach.prompt_mask import IGNORED, PromptEndUnknown, mask_from_labels

TOLERANCE = {"atol": 1e-4, "rtol": 0}


def ids(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 259, (1, length), generator=torch.Generator().manual_seed(seed))


def labels_of(tokens: torch.Tensor, prompt_length: int) -> torch.Tensor:
    labels = tokens.clone()
    labels[:, :prompt_length] = IGNORED
    return labels


def two_phases(model, tokens: torch.Tensor, prompt_length: int) -> torch.Tensor:
    """Prefill with the adapter, then one token at a time without it: logits [1, T, vocab]."""
    position = model.active_peft_config.position if hasattr(model.active_peft_config, "position") else "all"
    prefill = model(
        input_ids=tokens[:, :prompt_length],
        use_cache=True,
        **({"prompt_mask": torch.ones(1, prompt_length, dtype=torch.bool)} if position == "prefill" else {}),
    )
    logits, cache = [prefill.logits], prefill.past_key_values
    for index in range(prompt_length, tokens.shape[1]):
        step = {"input_ids": tokens[:, index : index + 1], "past_key_values": cache, "use_cache": True}
        if position == "prefill":
            with model.disable_adapter():
                output = model(**step)
        else:
            output = model(**step)
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
@pytest.mark.parametrize("prompt_length", [1, 2, 9])
@torch.no_grad()
def test_one_pass_equals_two_phases(recipe, prompt_length):
    model, tokens = disturbed(tiny_model(), recipe), ids(16)
    one_pass = model(input_ids=tokens, labels=labels_of(tokens, prompt_length)).logits
    torch.testing.assert_close(one_pass, two_phases(model, tokens, prompt_length), **TOLERANCE)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
@torch.no_grad()
def test_the_boundary_is_where_it_is_and_nowhere_else(recipe):
    """The control of the test above: one position more or fewer, or all of them, is clearly another result."""
    model, tokens = disturbed(tiny_model(), recipe), ids(16)
    right = model(input_ids=tokens, labels=labels_of(tokens, 9)).logits
    for other in (8, 10, 15):
        wrong = model(input_ids=tokens, labels=labels_of(tokens, other)).logits
        assert (wrong - right).abs().max() > 0.05


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_changes_nothing(recipe, side):
    model = disturbed(tiny_model(), recipe)
    rows = [(ids(7, seed=1), 3), (ids(16, seed=2), 11)]
    padded, labels, attention = torch.full((2, 16), 2), torch.full((2, 16), IGNORED), torch.zeros(2, 16)
    where = [slice(16 - t.shape[1], 16) if side == "left" else slice(0, t.shape[1]) for t, _ in rows]
    for row, (tokens, prompt_length) in enumerate(rows):
        padded[row, where[row]] = tokens[0]
        labels[row, where[row]] = labels_of(tokens, prompt_length)[0]
        attention[row, where[row]] = 1
    positions = (attention.cumsum(1) - 1).clamp(min=0).long()
    batch = model(input_ids=padded, attention_mask=attention, labels=labels, position_ids=positions).logits
    for row, (tokens, prompt_length) in enumerate(rows):
        alone = model(input_ids=tokens, labels=labels_of(tokens, prompt_length)).logits
        torch.testing.assert_close(batch[row, where[row]], alone[0], **TOLERANCE)


def test_packed_segments_have_their_own_prompts():
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
    labels = torch.tensor([[IGNORED, IGNORED, 5, 6, IGNORED, 7, 8]])
    expected = torch.tensor([[True, True, False, False, True, False, False]])
    assert torch.equal(mask_from_labels(labels, positions), expected)


def test_a_row_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="no prompt"):
        mask_from_labels(torch.tensor([[IGNORED, 4], [5, 6]]))


def test_a_packed_segment_without_a_prompt_is_refused():
    positions = torch.tensor([[0, 1, 2, 0, 1, 2]])
    with pytest.raises(ValueError, match="no prompt"):
        mask_from_labels(torch.tensor([[IGNORED, 5, 6, 7, 8, IGNORED]]), positions)


@pytest.mark.parametrize(
    ("labels", "positions"),
    [
        ([[IGNORED, 4, IGNORED, 5]], None),
        ([[IGNORED, 4, 5, 6], [IGNORED, 4, IGNORED, 5]], None),
        ([[IGNORED, 4, IGNORED, IGNORED, 4, IGNORED, 5]], [[0, 1, 0, 1, 2, 3, 4]]),
    ],
)
def test_a_row_with_two_answers_is_refused(labels, positions):
    """Of a conversation whose every answer is a label the later prompts would go unadapted."""
    with pytest.raises(ValueError, match="several targets"):
        mask_from_labels(torch.tensor(labels), None if positions is None else torch.tensor(positions))


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
@torch.no_grad()
def test_embeddings_are_as_good_as_ids(recipe):
    model, tokens = disturbed(tiny_model(), recipe), ids(9)
    embedded = model.get_input_embeddings()(tokens)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 2}
    new = model.generate(inputs_embeds=embedded, attention_mask=torch.ones_like(tokens), **options)
    expected = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), **options)
    assert torch.equal(new, expected[:, 9:])
    with pytest.raises(PromptEndUnknown):
        model(inputs_embeds=embedded)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
@pytest.mark.parametrize("training", [True, False])
def test_a_forward_that_cannot_know_the_prompts_end_raises(recipe, training):
    model = disturbed(tiny_model(), recipe).train(training)
    with pytest.raises(PromptEndUnknown):
        model(input_ids=ids(8))
    with pytest.raises(PromptEndUnknown):
        model.get_base_model().model(input_ids=ids(8))
    with pytest.raises(PromptEndUnknown):
        model.get_base_model().generate(input_ids=ids(8), max_new_tokens=1)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_gradient_checkpointing_gives_the_same_gradients(recipe):
    """Two batches with different prompts in flight: a recompute must see the mask of its own batch."""

    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        model = disturbed(tiny_model(), recipe).train()
        if checkpointing:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable()
        batches = [(ids(12, seed=3), 4), (ids(12, seed=4), 9)]
        losses = [model(input_ids=t, labels=labels_of(t, p), use_cache=False).loss for t, p in batches]
        sum(losses).backward()
        return [p.grad for p in model.parameters() if p.requires_grad]

    for plain, checkpointed in zip(gradients(False), gradients(True), strict=True):
        assert plain.abs().max() > 0
        torch.testing.assert_close(plain, checkpointed, atol=0, rtol=0)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
@pytest.mark.parametrize(
    "options", [{}, {"prefill_chunk_size": 3}, {"prompt_lookup_num_tokens": 3}, {"use_cache": False}]
)
@torch.no_grad()
def test_generate_is_two_phase_decoding(recipe, options):
    model, tokens = disturbed(tiny_model(), recipe), ids(9)
    new = model.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        **options,
    )
    assert new.shape == (1, 21)
    greedy = two_phases(model, new, 9).argmax(-1)[0, 8:-1]
    assert torch.equal(new[0, 9:], greedy)


@torch.no_grad()
def test_generate_in_a_left_padded_batch_equals_alone():
    model = disturbed(tiny_model(), PREFILL[1])
    short, long = ids(4, seed=5), ids(9, seed=6)
    batch = torch.cat([torch.cat([torch.full((1, 5), 2), short], dim=1), long])
    attention = torch.tensor([[0] * 5 + [1] * 4, [1] * 9])
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 2}
    together = model.generate(input_ids=batch, attention_mask=attention, **options)
    for row, alone in enumerate((short, long)):
        expected = model.generate(input_ids=alone, attention_mask=torch.ones_like(alone), **options)
        assert torch.equal(together[row, 9:], expected[0, alone.shape[1] :])
