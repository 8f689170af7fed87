"""The data folder of one stack: what is kept between runs, and what says that it is running. And the parts' names."""

import contextlib
import fcntl
import json
import os
import random
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
STORES = ("postgres", "valkey", "s3")
PARTS = (*STORES, "engine", "web", "dispatcher", "trainer")
DEMO_MODEL = "smollm2-135m-instruct"
SECRETS = (
    "postgres", "owner", "web", "valkey", "s3_stack_id", "s3_stack_key", "s3_web_id", "s3_web_key",
    "s3_engine_id", "s3_engine_key", "weed_jwt", "weed_jwt_read", "weed_filer_jwt", "weed_filer_jwt_read",
    "django", "engine", "trainer",
)  # fmt: skip
# Below Linux's ephemeral ports (32768), also after SeaweedFS has added 10000 for its gRPC ports.
PORTS = range(12000, 22000)
GRPC_OFFSET = 10000


class StackError(Exception):
    """Something that the person at the keyboard can mend; the text says how."""


def default_folder() -> Path:
    return Path(os.environ.get("ATTUNE_HOME") or ROOT / ".attune").resolve()


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically by a file that only its owner can read."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)


class Home:
    """Paths, secrets, ports and the lock of a data folder. Creating it changes nothing on disk but folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.run = self.folder / "run"
        self.logs = self.folder / "logs"
        self.state_file = self.run / "stack.json"
        # The folder itself stays passable: as root, PostgreSQL runs as `nobody` and has to reach its part.
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for private in (self.run, self.logs):
            private.mkdir(mode=0o700, exist_ok=True)

    def sub(self, name: str) -> Path:
        """A private folder of one part."""
        folder = self.folder / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def lock(self) -> IO[str]:
        """One stack per data folder. Held until every process that inherited the file has gone."""
        file = open(self.run / "lock", "a")  # noqa: SIM115 (the lock lives as long as the stack)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StackError(
                f"A stack is already running on {self.folder}. See `make status`, end it with `make down`, "
                "or choose another data folder with ATTUNE_HOME."
            ) from None
        return file

    def locked(self) -> bool:
        try:
            self.lock().close()
        except StackError:
            return True
        return False

    def secrets(self) -> dict[str, str]:
        """Generated at the first start, completed when a newer version wants more, never changed."""
        path = self.folder / "secrets.json"
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        missing = [name for name in SECRETS if name not in known]
        if missing:
            known |= {name: secrets.token_hex(24) for name in missing}
            write_private(path, json.dumps(known, indent=1))
        return known

    def ports(self, names: Iterable[str]) -> dict[str, int]:
        """A free loopback port for each name; the one of the last run wherever it is still free.

        The dashboard prefers 8000, all others are drawn at random so that two stacks starting at once
        don't meet.
        """
        path = self.run / "ports.json"
        last: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        chosen: dict[str, int] = {}
        for name in names:
            wishes = (
                [last[name]]
                if name in last
                else [8000]
                if name == "web" and self.folder == default_folder()
                else []
            )
            wishes += random.sample(PORTS, 50)
            grpc = name.startswith("s3")
            port = next((p for p in wishes if p not in chosen.values() and port_free(p, grpc=grpc)), None)
            if port is None:
                raise StackError(
                    f"No free port for {name} between {PORTS.start} and {PORTS.stop} on 127.0.0.1."
                )
            chosen[name] = port
        write_private(path, json.dumps(last | chosen, indent=1))
        return chosen

    def state(self) -> dict[str, Any] | None:
        """What the running stack says of itself; None when none runs."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            if self.locked():
                state: dict[str, Any] = json.loads(self.state_file.read_text())
                return state
        return None


def port_free(port: int, *, grpc: bool = False) -> bool:
    for number in (port, port + GRPC_OFFSET) if grpc else (port,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return False
    return True
