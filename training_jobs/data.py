"""Normalised conversations (JSONL, one `Conversation` a line) as examples: one for each trained assistant turn."""

from collections.abc import Callable, Iterable

from pydantic import ValidationError

from training_jobs.chat_template import ChatEncoder, TemplateRefused, TooLong
from training_jobs.errors import OurFault, Stopped, UserFault
from training_jobs.examples import Examples
from training_jobs.messages import Conversation

#: Of all examples of a job together, prompts included: 200 MB in memory. An upload of 100 MB that is one answer a row
#: makes about 30 million; only long conversations with many trained answers, each with its own prompt, make more.
MAX_EXAMPLE_TOKENS = 50_000_000


def examples_read(
    lines: Iterable[str | bytes],
    encoder: ChatEncoder,
    *,
    max_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Examples:
    """Examples of a normalised file, in its order.

    A turn whose prompt and target exceed `max_tokens` is left out whole: a cut target would teach to stop early, a
    cut prompt is one that serving never sees. `should_stop` is asked before every row and every turn. Raises Stopped;
    UserFault (too_much_data) beyond MAX_EXAMPLE_TOKENS; OurFault for a line that is not a normalised conversation.
    """
    examples = Examples()
    for number, line in enumerate(lines, start=1):
        if should_stop():
            raise Stopped
        if not line.strip():
            continue
        try:
            conversation = Conversation.model_validate_json(line)
        except ValidationError as error:
            kind = error.errors(include_input=False, include_url=False)[0]["msg"]
            raise OurFault(
                "conversations_invalid",
                f"Line {number} of the prepared file is not a conversation ({kind}). This is our fault: report it.",
            ) from None
        _add(examples, number, conversation, encoder, max_tokens=max_tokens, should_stop=should_stop)
    return examples


def _add(
    examples: Examples,
    number: int,
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
            split.add(*both, conversation=number)
            if held_out:
                examples.memory.judge_by(turns[: index + 1])
        except TemplateRefused:
            examples.leave_out(conversation.id, "refused")
        except TooLong as error:
            if error.prompt_alone:  # so is every later turn's prompt, which holds this one
                examples.leave_out(conversation.id, "too_long", turns=len(trained) - count)
                return
            examples.leave_out(conversation.id, "too_long")
        if examples.tokens > MAX_EXAMPLE_TOKENS:
            raise UserFault(
                "too_much_data",
                f"The conversations make examples of more than {MAX_EXAMPLE_TOKENS:,} tokens: every assistant message "
                "counts with all that comes before it. Upload fewer or shorter conversations, or give the assistant "
                "messages that need not be learned the weight 0.",
            )
