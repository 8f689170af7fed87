"""python -m local_stack up | down | status | logs"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from local_stack import guard, stack
from local_stack.home import PARTS, Home, StackError, default_folder


def up(home: Home, parts: list[str], *, fast: bool, leash: bool, once: list[str]) -> int:
    running = home.state()
    if running is not None and not leash:
        print(f"Already running on {home.folder}.")
        return status(home)
    lock = home.lock()  # kept open by the guard and the supervisor
    if once:
        lock.close()
        return run_once(home, parts, fast=fast, command=once)

    def supervise(guard_pid: int) -> int:
        # Imported in the child: the guard stays small.
        from local_stack.plan import current_environ, plan
        from local_stack.supervisor import Supervisor

        try:
            todo = plan(home, parts=parts, environ=current_environ(), fast=fast)
        except StackError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"Starting {', '.join(service.name for service in todo.services)}.", flush=True)
        return Supervisor(home, todo, guard=guard_pid, leash=leash).run()

    return guard.guarded(home, supervise, leash=leash)


def run_once(home: Home, parts: list[str], *, fast: bool, command: list[str]) -> int:
    """Bring the stack up, run a command with every ATTUNE_ variable set, take the stack down."""
    with stack.start(parts=parts, home=home.folder, fast=fast, on_line=print) as running:
        return subprocess.run(command, env={**os.environ, **running.env}, check=False).returncode


def down(home: Home) -> int:
    if home.state() is None:
        print(f"Nothing is running on {home.folder}.")
        return 0
    stack.attach(home.folder).stop()
    print("Stopped.")
    return 0


def status(home: Home) -> int:
    state = home.state()
    if state is None:
        print(f"Nothing is running on {home.folder}. Start it with `make up`.")
        return 3
    for name, service in state["services"].items():
        restarts = f", restarted {service['restarts']} times" if service["restarts"] else ""
        detail = service["url"] or service["problem"]
        print(f"  {name:<11} {service['state']:<9} pid {service['pid'] or '-'!s:<8} {detail}{restarts}")
    print(f"  Data {state['home']}; logs: tail -F {home.logs}/*.log")
    return 0


def logs(home: Home, parts: list[str]) -> int:
    files = [str(home.log(part)) for part in parts] or sorted(str(file) for file in home.logs.glob("*.log"))
    if not files:
        print(f"No logs in {home.logs} yet.")
        return 0
    os.execvp("tail", ["tail", "-n", "40", "-F", *files])


def main() -> int:
    parser = argparse.ArgumentParser(prog="local_stack", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "logs"])
    parser.add_argument("--home", type=Path, default=None, help="data folder (ATTUNE_HOME, else .attune)")
    parser.add_argument("--parts", default="", help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument("--fast", action="store_true", help="for tests: never wait for the disk")
    parser.add_argument("--leash", action="store_true", help="stop when standard input is closed")
    parser.add_argument("--once", nargs=argparse.REMAINDER, default=[], help="run a command, then stop")
    given = parser.parse_args()
    home = Home(given.home or default_folder())
    parts = [part.strip() for part in given.parts.split(",") if part.strip()]
    try:
        if given.command == "up":
            return up(home, parts or list(PARTS), fast=given.fast, leash=given.leash, once=given.once)
        if given.command == "down":
            return down(home)
        return status(home) if given.command == "status" else logs(home, parts)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
