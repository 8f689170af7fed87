"""The same question to several models at once, streamed: the base model, and each person's own."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from openai import OpenAI

from local_stack.demo_people import Messages

# Greedy, so that the same model always says the same.
SAMPLING = {"temperature": 0, "max_tokens": 48}
BASE_HEADER = "base"


@dataclass
class Answer:
    """What came back. Times are seconds since the request."""

    text: str = ""
    model: str = ""
    adapter_header: str = ""
    pieces: int = 0
    first_token: float | None = None


#: Whose column it is (an end user, or None for the base model) → their answers, in the order of the questions.
Answers = dict[str | None, list[Answer]]


def ask(
    client: OpenAI,
    *,
    base: str,
    users: list[str | None],
    questions: tuple[Messages, ...],
    changed: Callable[[Answers], None],
) -> Answers:
    """All `users` hear a question at the same moment, so the engine answers them in one batch."""
    answers: Answers = {user: [] for user in users}
    lock = threading.Lock()

    def one(user: str | None, messages: Messages) -> None:
        answer = Answer()
        with lock:
            answers[user].append(answer)

        def grew() -> None:
            with lock:
                changed(answers)

        ask_one(client, base=base, user=user, messages=messages, answer=answer, grew=grew)

    with ThreadPoolExecutor(len(users)) as pool:
        for messages in questions:
            list(pool.map(one, users, [messages] * len(users)))
    return answers


def ask_one(
    client: OpenAI,
    *,
    base: str,
    user: str | None,
    messages: Messages,
    answer: Answer,
    grew: Callable[[], None],
) -> None:
    """Fill `answer` as the tokens come."""
    began = time.monotonic()
    raw = client.chat.completions.with_raw_response.create(
        model=base, messages=messages, stream=True, **SAMPLING, **named(user)
    )
    answer.adapter_header = raw.headers.get("x-attune-adapter", "")
    for chunk in raw.parse():
        answer.model = chunk.model
        for choice in chunk.choices:
            if choice.delta.content:
                answer.first_token = answer.first_token or time.monotonic() - began
                answer.text += choice.delta.content
                answer.pieces += 1
                grew()


def ask_whole(client: OpenAI, *, base: str, user: str | None, messages: Messages) -> str:
    """The same without streaming."""
    completion = client.chat.completions.create(model=base, messages=messages, **SAMPLING, **named(user))
    return completion.choices[0].message.content or ""


def named(user: str | None) -> dict[str, str]:
    return {"user": user} if user is not None else {}
