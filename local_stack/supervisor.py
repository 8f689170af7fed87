"""Starts the parts in the order of their needs, restarts what dies, stops everything in reverse.

One thread, on purpose: death signals come when the forking thread ends, and forking beside threads can deadlock.
"""

import contextlib
import json
import os
import shlex
import signal
import time
from dataclasses import dataclass
from subprocess import Popen

from local_stack import processes
from local_stack.home import Home, StackError, write_private
from local_stack.plan import Plan
from local_stack.service import Service, WrongError

FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0
LAST_SECOND = 4.0  # five seconds after Ctrl-C everything is gone, on a busy machine too
REMINDER = 30.0  # seconds between two signs of life of a part that takes long
LARGE_LOG = 20_000_000  # bytes; set aside, once, at a start
STEADY = 60.0  # seconds of life after which a part's earlier deaths are forgotten


@dataclass
class Part:
    service: Service
    state: str = "waiting"  # starting, ready, done, pausing, killed
    process: "Popen[bytes] | None" = None
    started: float = 0.0
    seconds: float = 0.0  # from start to readiness
    restarts: int = 0
    delay: float = FIRST_DELAY
    resume: float = 0.0
    kill_at: float = 0.0
    reminded: int = 0
    problem: str = ""

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def up(self) -> bool:
        return self.state in ("ready", "done")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # whoever read this may have gone
        print(text, flush=True)


class Supervisor:
    def __init__(self, home: Home, plan: Plan, *, guard: int, leash: bool = False) -> None:
        self.home = home
        self.plan = plan
        self.guard = guard
        self.leash = leash  # started by a program: it says itself what there is to see and how to stop
        self.parts = [Part(service) for service in plan.services]
        self.stopping = False
        self.announced = False
        self.begun = time.monotonic()
        self.written = ""
        self.looked = 0.0

    def run(self) -> int:
        """Until a signal comes (0) or a part cannot be started (1)."""
        processes.become_subreaper()
        signal.signal(signal.SIGTERM, self.on_signal)
        signal.signal(signal.SIGINT, self.on_signal)
        for name, variable in self.plan.replaced.items():
            say(f"  {name:<11} elsewhere, as {variable} says")
        try:
            while not self.stopping:
                for part in self.parts:
                    self.tick(part)
                self.announce()
                self.write_state()
                self.bury_orphans()
                time.sleep(0.2 if self.announced else 0.05)
            return 0
        except StackError as error:
            say(f"\n{error}")
            return 1
        finally:
            self.stop()

    def on_signal(self, *_: object) -> None:
        self.stopping = True

    def tick(self, part: Part) -> None:
        now = time.monotonic()
        if part.state == "waiting":
            if self.needs_met(part):
                self.start(part)
        elif part.state == "pausing":
            if now >= part.resume and self.needs_met(part):
                self.start(part)
        elif part.state in ("starting", "ready") and part.process is not None and not part.alive:
            self.ended(part, part.process.returncode)
        elif part.state == "starting" and not part.service.once:
            self.probe(part)
        elif part.state == "ready" and now - part.started > STEADY:
            part.delay = FIRST_DELAY

    def needs_met(self, part: Part) -> bool:
        return all(other.up for other in self.parts if other.name in part.service.needs)

    def start(self, part: Part) -> None:
        part.service.prepare()
        log = self.home.log(part.name)
        if log.exists() and log.stat().st_size > LARGE_LOG:
            log.replace(log.with_name(f"{part.name}.old.log"))
        part.process = part.service.start(log)
        part.started = time.monotonic()
        part.state = "starting"

    def probe(self, part: Part) -> None:
        try:
            part.service.ready()
        except WrongError as error:
            raise StackError(f"{part.name} is up, and wrong. {error}\n" + self.last_words(part)) from None
        except Exception as error:  # every kind of refusal means "not yet"
            part.problem = f"{type(error).__name__}: {error}"
            self.still_waiting(part)
            if time.monotonic() - part.started > part.service.patience and part.seconds == 0:
                raise StackError(
                    f"{part.name} was not ready after {part.service.patience:.0f} s ({part.problem}).\n"
                    + self.last_words(part)
                ) from None
            return
        self.became_ready(part, "ready")

    def still_waiting(self, part: Part) -> None:
        seconds = time.monotonic() - part.started
        if part.seconds == 0 and seconds > (part.reminded + 1) * REMINDER:
            part.reminded += 1
            say(f"  {part.name:<11} starting for {seconds:.0f} s (tail -F {self.home.log(part.name)})")

    def became_ready(self, part: Part, state: str) -> None:
        part.state = state
        part.seconds = time.monotonic() - part.started
        part.problem = ""
        again = " again" if part.restarts else ""
        say(f"  {part.name:<11} {state}{again} in {part.seconds:4.1f} s   {part.service.url}".rstrip())

    def ended(self, part: Part, code: int) -> None:
        if part.service.once and code == 0:
            self.became_ready(part, "done")
            return
        if part.seconds == 0:
            raise StackError(f"{part.name} ended with {code} before it was ready.\n" + self.last_words(part))
        self.end_session(part)
        part.state = "pausing"
        part.restarts += 1
        part.resume = time.monotonic() + part.delay
        say(f"  {part.name:<11} ended with {code}; starting it again in {part.delay:.1f} s")
        part.delay = min(2 * part.delay, LONGEST_DELAY)

    def last_words(self, part: Part, lines: int = 15) -> str:
        log = self.home.log(part.name)
        text = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
        return "\n".join([f"The end of {log}:", *(f"    {line}" for line in text)])

    def announce(self) -> None:
        if self.announced or not all(part.up for part in self.parts):
            return
        self.announced = True
        logs = shlex.quote(str(self.home.logs))
        say(f"\nAll parts are up after {time.monotonic() - self.begun:.0f} s.")
        if self.leash:
            return
        if "web" in self.plan.urls:
            say(f"  Dashboard  {self.plan.urls['web']}")
        say(
            f"  Data       {self.home.folder}\n  Logs       tail -F {logs}/*.log\n  Stop       Ctrl-C, or make down"
        )

    def write_state(self) -> None:
        """For `make status`, tests and the demo. Holds secrets: private to the owner of the data folder."""
        services = {
            part.name: {
                "state": part.state,
                "pid": part.process.pid if part.process and part.alive else None,
                "url": part.service.url,
                "log": str(self.home.log(part.name)),
                "seconds": round(part.seconds, 2),
                "restarts": part.restarts,
                "problem": part.problem,
            }
            for part in self.parts
        }
        state = {
            "pid": self.guard,
            "supervisor": os.getpid(),
            "home": str(self.home.folder),
            "ready": all(part.up for part in self.parts),
            "services": services,
            "urls": self.plan.urls,
            "env": self.plan.env,
        }
        text = json.dumps(state, indent=1)
        if text != self.written:
            write_private(self.home.state_file, text)
            self.written = text

    def end_session(self, part: Part) -> None:
        """What a dead part left: its children live on in its session."""
        if part.process is not None:
            for pid in processes.session_members(part.process.pid):
                processes.send(pid, signal.SIGKILL)

    def bury_orphans(self) -> None:
        """This process inherits the orphans of dead parts and has to collect those that ended."""
        now = time.monotonic()
        if now - self.looked < 5:
            return
        self.looked = now
        known = {part.process.pid for part in self.parts if part.process}
        for process in processes.table():
            orphan = process.parent == os.getpid() and process.session != os.getpid()
            if orphan and process.state == "Z" and process.pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)

    def stop(self) -> None:
        """Each part when those that need it have gone, at most about five seconds in all."""
        say("\nStopping.")
        running = [part for part in self.parts if part.alive]
        last = time.monotonic() + LAST_SECOND
        while running:
            now = time.monotonic()
            for part in running:
                needed = any(part.name in other.service.needs for other in running)
                if not part.kill_at and not needed:
                    part.kill_at = now + part.service.grace
                    if not part.service.needs:  # the stores may use what time the others left
                        part.kill_at = max(part.kill_at, last)
                    processes.send(part.process.pid, part.service.stop_signal)  # type: ignore[union-attr]
                elif part.state != "killed" and part.kill_at and now > part.kill_at:
                    say(f"  {part.name} did not stop in time and was killed")
                    part.state = "killed"
                    self.end_session(part)
            for part in [part for part in running if not part.alive]:
                running.remove(part)
                self.end_session(part)
            time.sleep(0.02)
        processes.end_descendants(patience=0)
        self.home.state_file.unlink(missing_ok=True)
        say("Stopped.")
