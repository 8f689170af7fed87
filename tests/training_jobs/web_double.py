"""A web application and an object store in this process: the trainer's side of the protocol over real HTTP.

It keeps one job, and `others` by their ids; it checks every message against training_jobs.messages, and lets a test
say what happens when.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from adapters_store.manifest import MANIFEST_FILE, Manifest, manifest_load
from adapters_store.weights import adapter_read
from training_jobs import messages as m

DISPATCH, JOB, WORKER = "dispatch-token", "a" * 32, "b" * 32


class WebDouble:
    """`objects`: bytes by sha256. `said`: every message of the trainer. `on(message)` may return a status to refuse."""

    def __init__(self, job: str = JOB) -> None:
        self.job = job
        self.others: dict[str, WebDouble] = {}
        self.objects: dict[str, bytes] = {}
        self.said: list[m.Message] = []
        self.state: m.JobState = "dispatched"
        self.epoch = 0
        self.checkpoint: m.Checkpoint | None = None
        self.on: Callable[[m.Message], int | None] = lambda message: None
        self.spec: dict[str, Any] = {}
        #: A status that refuses the claim.
        self.claims: int | None = None
        #: A status with which the object store refuses everything.
        self.storage: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def offer(
        self, *, base: m.Base, recipe: m.Recipe, hyperparameters: m.Hyperparameters, rows: list[str]
    ) -> None:
        """Queue the job; `rows` are lines of normalised conversations."""
        data = "\n".join(rows).encode()
        self.spec = {
            "base": base,
            "recipe": recipe,
            "hyperparameters": hyperparameters,
            "conversations": m.Download(**self.put(data).model_dump(), url=self.object_url(data)),
        }
        self.state = "dispatched"

    def put(self, data: bytes) -> m.Object:
        digest = hashlib.sha256(data).hexdigest()
        self.objects[digest] = data
        return m.Object(sha256=digest, size=len(data))

    def object_url(self, data: bytes) -> str:
        return f"{self.url}/objects/{hashlib.sha256(data).hexdigest()}?signature=secret"

    def of(self, kind: type[m.Message]) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]

    def adapter(self, folder: Path) -> Manifest:
        """As the web application would read it: from the objects that `complete` names."""
        folder.mkdir()
        (complete,) = self.of(m.Complete)
        (folder / MANIFEST_FILE).write_bytes(self.objects[complete.manifest.sha256])
        for name, file in manifest_load((folder / MANIFEST_FILE).read_bytes()).files.items():
            (folder / name).write_bytes(self.objects[file.sha256])
        manifest, _ = adapter_read(folder)
        return manifest

    @property
    def events(self) -> list[m.Event]:
        return [event for beat in self.of(m.Heartbeat) for event in beat.events]

    def answer(self, verb: str, token: str, body: bytes) -> tuple[int, m.Message | dict[str, Any]]:
        if verb not in ("claim", "heartbeat", "uploads", "complete", "fail", "release"):
            self.said.append(m.WorkerHello.model_validate_json(body))
            return 200, {"ok": True}
        if verb == "claim":
            return self._claim(token, m.Claim.model_validate_json(body))
        kinds = {"heartbeat": m.Heartbeat, "uploads": m.UploadRequest, "complete": m.Complete, "fail": m.Fail}
        message = {**kinds, "release": m.Release}[verb].model_validate_json(body)
        self.said.append(message)
        refused = self.on(message)
        if refused is not None:
            return refused, {"error": {"code": "test", "message": "told to"}}
        if token != f"token-{self.job}-{self.epoch}" or message.epoch != self.epoch:
            return 410, {"error": {"code": "fenced", "message": "not yours"}}
        return self._answer(message)

    def _answer(self, message: Any) -> tuple[int, m.Message]:
        if isinstance(message, m.UploadRequest):
            checksum = base64.b64encode(bytes.fromhex(message.sha256)).decode()
            headers = {"Content-Length": str(message.size), "x-amz-checksum-sha256": checksum}
            url = f"{self.url}/objects/{message.sha256}?signature=secret"
            return 200, m.UploadSlot(url=url, headers=headers, already_there=message.sha256 in self.objects)
        self.checkpoint = getattr(message, "checkpoint", None) or self.checkpoint
        if isinstance(message, m.Heartbeat):
            return 200, m.HeartbeatReply(state=self.state, stop=self.state != "running")
        ends: dict[type[m.Message], m.JobState] = {
            m.Complete: "gating",
            m.Fail: "failed",
            m.Release: "queued",
        }
        self.state = ends[type(message)]
        return 200, m.StateReply(state=self.state)

    def _claim(self, token: str, claim: m.Claim) -> tuple[int, m.Message | dict[str, Any]]:
        if self.claims is not None:
            return self.claims, {"error": {"code": "test", "message": "told to"}}
        if token != DISPATCH or self.state not in ("dispatched", "queued"):
            return 410, {"error": {"code": "fenced", "message": "not yours"}}
        self.state, self.epoch = "running", self.epoch + 1
        resume = None
        if self.checkpoint is not None:
            url = self.object_url(self.objects[self.checkpoint.sha256])
            resume = m.CheckpointDownload(**self.checkpoint.model_dump(), url=url)
        return 200, m.JobSpec(
            job=self.job,
            epoch=self.epoch,
            token=f"token-{self.job}-{self.epoch}",
            checkpoint=resume,
            **self.spec,
        )

    def _handler(double) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (two selves)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                token = self.headers["Authorization"].removeprefix("Bearer ")
                _, whose, verb = self.path.rsplit("/", 2)
                status, answer = double.others.get(whose, double).answer(verb, token, self._body())
                body = answer.model_dump_json() if isinstance(answer, m.Message) else json.dumps(answer)
                self._reply(status, body.encode())

            def do_GET(self) -> None:
                data = double.objects.get(self._digest())
                self._reply(double.storage or (404 if data is None else 200), data or b"")

            def do_PUT(self) -> None:
                data = self._body()
                right = base64.b64encode(hashlib.sha256(data).digest()).decode()
                if self.headers["x-amz-checksum-sha256"] != right or double.storage:
                    self._reply(double.storage or 400, b"")
                else:
                    double.objects[self._digest()] = data
                    self._reply(200, b"")

            def _digest(self) -> str:
                return self.path.rsplit("/", 1)[1].split("?")[0]

            def _body(self) -> bytes:
                return self.rfile.read(int(self.headers["Content-Length"]))

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
