"""The demo's company: a tenant, three logins and an API key, made by `manage.py demo_seed`."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from local_stack.home import ROOT, StackError
from local_stack.stack import Stack


@dataclass(frozen=True)
class Login:
    role: str
    email: str
    password: str


@dataclass(frozen=True)
class Accounts:
    tenant: str
    logins: tuple[Login, ...]
    api_key: str


def accounts_create(running: Stack, *, end_user: str) -> Accounts:
    """In the dashboard, the member talks to `end_user`'s model. Raises StackError with what the command said."""
    seed = json.loads(manage(running, "demo_seed", end_user))
    logins = tuple(Login(role, **seed[role]) for role in ("owner", "member", "staff"))
    return Accounts(seed["tenant"], logins, seed["api_key"])


def manage(running: Stack, *command: str) -> str:
    """The output of `python manage.py …` against a running stack."""
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env={**os.environ, **running.env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr[-2000:].strip().removeprefix("CommandError: ")
        raise StackError(f"`python manage.py {' '.join(command)}` failed:\n{why}")
    return done.stdout
