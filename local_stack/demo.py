"""The whole job in front of your eyes: python -m local_stack.demo [--once] [--data FILE] [--model ID_OR_FOLDER]

Starts the stack, uploads chats, trains an adapter for each person, asks everybody the same questions, and leaves
all of it running until Ctrl-C. With --once it ends by itself, with exit code 0 only if every check held.
"""

import argparse
import json
import shlex
import sys
import threading
from contextlib import suppress
from pathlib import Path

from openai import OpenAI, OpenAIError

from local_stack import stack
from local_stack.demo_accounts import Accounts, accounts_create
from local_stack.demo_answers import Answers, ask, ask_whole
from local_stack.demo_base import Base, base_prepare
from local_stack.demo_checks import checks
from local_stack.demo_people import Cast, invented, of_file, rows
from local_stack.demo_screen import Screen
from local_stack.demo_training import Run, run_start, runs_follow
from local_stack.home import StackError


def main() -> int:
    parser = argparse.ArgumentParser(prog="local_stack.demo", description=__doc__)
    parser.add_argument(
        "--once", action="store_true", help="end by itself; exit code 0 only if every check held"
    )
    parser.add_argument("--data", type=Path, help="chats of your own: OpenAI chat JSONL")
    parser.add_argument("--model", help="another base model: a hub id or a folder")
    parser.add_argument(
        "--license", dest="licence", help="with --model: its licence, if it has no model card"
    )
    given = parser.parse_args()
    screen = Screen()
    try:
        cast = of_file(given.data) if given.data else invented()
        base = base_prepare(given.model, licence=given.licence, tell=screen.progress)
        screen.heading(
            "Starting PostgreSQL, Valkey, S3, the web application, a trainer and vLLM (about a minute)"
        )
        with stack.start(env=base.env, fast=False, on_line=screen.progress) as running:
            return perform(screen, running, cast, base, once=given.once)
    except StackError as error:
        screen.problem(f"\n{error}")
        return 1
    except OpenAIError as error:
        screen.problem(f"\nThe API did not do what was asked: {error}. The logs say more: `make logs`.")
        return 1
    except KeyboardInterrupt:
        screen.problem("\nInterrupted before the end; everything is stopped.")
        return 130


def perform(screen: Screen, running: stack.Stack, cast: Cast, base: Base, *, once: bool) -> int:
    """The demo on a running stack; the exit code."""
    accounts = accounts_create(running, end_user=cast.people[0].user)
    client = OpenAI(base_url=f"{running.urls['web']}/v1", api_key=accounts.api_key)
    titles = {None: "Base model", **{person.user: person.title for person in cast.people}}

    screen.heading("Asking the base model, before anything is trained")
    first = ask(client, base=base.name, users=[None], questions=cast.questions, changed=lambda _: None)[None]
    screen.line(f"{len(first)} questions answered.")

    runs = train(screen, client, cast, base)
    screen.results(runs)

    screen.heading("The same questions to all of them, at the same time, in one batch")
    # Those whose training failed would be answered by the base model: leave them out.
    speakers = {user: title for user, title in titles.items() if user is None or spoke(runs, user)}
    with screen.table(cast.questions, speakers) as changed:
        answers = ask(client, base=base.name, users=list(speakers), questions=cast.questions, changed=changed)
    screen.line(label(client, base))
    speed(screen, answers)
    whole = ask_whole(client, base=base.name, user=list(speakers)[-1], messages=cast.questions[0])

    screen.heading("What was checked")
    results = checks(runs=runs, first=first, answers=answers, whole=whole)
    screen.checks(results)
    epilogue(screen, running, accounts, base, cast)
    if not once:
        screen.heading("Everything stays up. Ctrl-C ends it.")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        screen.line("Stopping. The data stays: `make up` starts it all again.")
    return 0 if all(check.held for check in results) else 1


def train(screen: Screen, client: OpenAI, cast: Cast, base: Base) -> list[Run]:
    screen.heading("Uploading their chats and training an adapter for each, on the prompt only")
    runs = [run_start(client, person=person, base=base.name) for person in cast.people]
    for run in runs:
        person, held_out = run.person, len(rows(run.person.validation))
        screen.line(
            f"{person.title}: {person.examples} answers to learn from, {held_out} chats held out ({run.job})"
        )
        for note in run.notes:
            screen.line(f"  {note}")
    with screen.training(runs) as changed:
        runs_follow(client, runs, changed=changed)
    return runs


def spoke(runs: list[Run], user: str) -> bool:
    return any(run.succeeded for run in runs if run.person.user == user)


def label(client: OpenAI, base: Base) -> str:
    """What to know about the model that answers, from the catalogue."""
    about = client.models.retrieve(base.name).attune  # Attune's own field
    return about["label"] or f"All answers are by {base.name}, with and without an adapter."


def speed(screen: Screen, answers: Answers) -> None:
    given = [answer for column in answers.values() for answer in column]
    firsts = sorted(answer.first_token for answer in given if answer.first_token)
    if firsts:
        screen.line(f"Time to the first token: median {1000 * firsts[len(firsts) // 2]:.0f} ms.")


def epilogue(screen: Screen, running: stack.Stack, accounts: Accounts, base: Base, cast: Cast) -> None:
    web, person = running.urls["web"], cast.people[0]
    about = {
        "owner": "sees everybody's counts and states",
        "member": f"talks to the model of {person.title}",
        "staff": f"live usage at {web}/staff/usage, records at {web}/admin/",
    }
    screen.heading("Try it yourself")
    screen.line(f"Dashboard  {web}/")
    for login in accounts.logins:
        screen.line(f"{login.role.capitalize():<10} {login.email}  {login.password}  ({about[login.role]})")
    screen.line(f"API key    {accounts.api_key}")
    screen.line(f"Logs       tail -F {running.home.logs}/*.log")
    asked = {"model": base.name, "user": person.user, "stream": True, "max_tokens": 48}
    body = json.dumps({**asked, "messages": cast.questions[0]})
    # Straight to the terminal: a wrapped line could not be copied.
    print(
        f"\n  curl -N {web}/v1/chat/completions -H 'Authorization: Bearer {accounts.api_key}' "
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


if __name__ == "__main__":
    sys.exit(main())
