"""Normalised conversations (JSONL, one `Conversation` a line) as examples: one for each trained assistant turn, or
for each answer of a preference pair."""

from collections.abc import Callable, Iterable

from pydantic import ValidationError

from adapters_store.chat_template import ChatEncoder, TemplateRefused, TooLong
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import HELD_OUT_MAX, Examples
from training_jobs.memory_prompt import HeldOut
from training_jobs.messages import Conversation, JobType, Turn

#: Of all examples of a job together, prompts included: 200 MB in memory. An upload of 100 MB that is one answer a row
#: makes about 30 million; only long conversations with many trained answers, each with its own prompt, make more.
MAX_EXAMPLE_TOKENS = 50_000_000


def examples_read(
    lines: Iterable[str | bytes],
    encoder: ChatEncoder,
    *,
    max_tokens: int,
    type: JobType = "supervised",
    should_stop: Callable[[], bool] = lambda: False,
) -> Examples:
    """Examples of a normalised file, in its order. Of `type` dpo every row is a preference pair, of the other none.

    A turn whose prompt and target exceed `max_tokens` is left out whole: a cut target would teach to stop early, a
    cut prompt is one that serving never sees. `should_stop` is asked before every row and every turn. Raises Stopped;
    UserFault (too_much_data) beyond MAX_EXAMPLE_TOKENS; OurFault for a line that is not a normalised conversation.
    """
    examples = Examples.of_pairs() if type == "dpo" else Examples()
    wholes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if should_stop():
            raise Stopped
        if not line.strip():
            continue
        try:
            conversation = Conversation.model_validate_json(line)
        except ValidationError as error:
            raise _invalid(number, error.errors(include_input=False, include_url=False)[0]["msg"]) from None
        if (conversation.rejected is None) != (type == "supervised"):
            raise _invalid(number, f"it is not for training of the type {type}")
        whole = wholes.setdefault(conversation.whole, len(wholes))
        if conversation.rejected is None:
            _add(examples, whole, conversation, encoder, max_tokens=max_tokens, should_stop=should_stop)
        else:
            _add_pair(examples, whole, conversation, conversation.rejected, encoder, max_tokens=max_tokens)
    return examples


def _check_size(examples: Examples) -> None:
    if examples.tokens > MAX_EXAMPLE_TOKENS:
        raise UserFault(
            "too_much_data",
            f"The conversations make examples of more than {MAX_EXAMPLE_TOKENS:,} tokens: every assistant message "
            "counts with all that comes before it. Upload fewer or shorter conversations, or give the assistant "
            "messages that need not be learned the weight 0.",
        )


def _invalid(number: int, kind: str) -> OurFault:
    return OurFault(
        "conversations_invalid",
        f"Line {number} of the prepared file is not a conversation ({kind}). This is our fault: report it.",
    )


def _add_pair(
    examples: Examples,
    whole: int,
    pair: Conversation,
    rejected: str,
    encoder: ChatEncoder,
    *,
    max_tokens: int,
) -> None:
    """Both answers, or neither: the preferred one's example first. Their prompts are the same, token for token."""
    if all(turn.role == "system" for turn in pair.messages[:-1]):
        examples.leave_out(pair.id, "no_prompt")
        return
    held_out = pair.split == "validation"
    split = examples.held_out if held_out else examples.train
    talks = [pair.messages, [*pair.messages[:-1], Turn(role="assistant", content=rejected)]]
    try:
        both = [encoder.prompt_and_target(talk, max_tokens=max_tokens) for talk in talks]
    except TemplateRefused:
        examples.leave_out(pair.id, "refused")
    except TooLong:
        examples.leave_out(pair.id, "too_long")
    else:
        if not held_out:
            examples.memory.quote(pair.messages, encoder, max_tokens=max_tokens)
        for talk, (prompt, target) in zip(talks, both, strict=True):
            split.add(prompt, target, conversation=whole)
            if held_out and len(split) <= HELD_OUT_MAX:
                examples.memory.judge_by(HeldOut(0, len(split) - 1, talk))
        _check_size(examples)


def _add(
    examples: Examples,
    whole: int,
    conversation: Conversation,
    encoder: ChatEncoder,
    *,
    max_tokens: int,
    should_stop: Callable[[], bool],
) -> None:
    turns = conversation.messages
    trained = [index for index, turn in enumerate(turns) if turn.role == "assistant" and turn.weight]
    if not trained:
        examples.leave_out(conversation.id, "no_trained_turn")
    held_out = conversation.split == "validation"
    split = examples.held_out if held_out else examples.train
    if trained and not held_out:
        examples.memory.quote(turns, encoder, max_tokens=max_tokens)
    for count, index in enumerate(trained):
        if should_stop():
            raise Stopped
        if all(turn.role == "system" for turn in turns[:index]):
            examples.leave_out(conversation.id, "no_prompt")
            continue
        try:
            both = encoder.prompt_and_target(turns[: index + 1], max_tokens=max_tokens)
            split.add(*both, conversation=whole)
            if held_out and len(split) <= HELD_OUT_MAX:
                examples.memory.judge_by(HeldOut(count, len(split) - 1, turns[: index + 1]))
        except TemplateRefused:
            examples.leave_out(conversation.id, "refused")
        except TooLong as error:
            if error.prompt_alone:  # so is every later turn's prompt, which holds this one
                examples.leave_out(conversation.id, "too_long", turns=len(trained) - count)
                return
            examples.leave_out(conversation.id, "too_long")
        _check_size(examples)
