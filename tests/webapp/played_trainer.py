"""A trainer as the protocol has it, without the training: it speaks HTTP and makes a small, valid adapter."""

import hashlib
import tempfile
import uuid
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from adapters_store.manifest import MANIFEST_FILE, BaseRef, Manifest
from adapters_store.weights import adapter_write
from tests.webapp.company import BASE_DIGEST
from training_jobs.messages import JobSpec, Probe
from webapp.config.settings import settings

#: What its model says after any prompt: one token over and over, with these log-probabilities without an adapter and
#: with it, and that of the next likely one.
TOKEN, LOGPROBS, RUNNER_UP = 5, (-0.1, -0.5), -3.0


def probe(*, count: int = 12, logprobs: tuple[float, float] = LOGPROBS) -> Probe:
    """Two questions and the answers of this trainer's model."""
    base, adapted = (
        {"tokens": [TOKEN] * count, "logprobs": [logprob] * count, "runners_up": [RUNNER_UP] * count}
        for logprob in logprobs
    )
    questions = [{"prompt": prompt, "base": base, "adapted": adapted} for prompt in ([1, 2], [3, 4, 7])]
    return Probe.model_validate({"questions": questions})


class PlayedTrainer:
    """`web` is a client of the web process. Each method is one message; answers are httpx responses."""

    def __init__(self, web: httpx.Client) -> None:
        self.web = web
        self.id = uuid.uuid4().hex
        self.spec: JobSpec | None = None
        self._numbers = count(1)

    def hello(
        self,
        *,
        busy: bool = False,
        bases: tuple[str, ...] = ("tiny",),
        together: int = 1,
        alone: tuple[str, ...] = (),
    ) -> httpx.Response:
        token = settings().trainer_token.get_secret_value()
        presence = {"bases": list(bases), "device": "cpu", "busy": busy}
        body = {**presence, "together": together, "alone": list(alone)}
        return self._post(f"/internal/workers/{self.id}", token, body)

    def claim(self, job: str, dispatch_token: str) -> httpx.Response:
        answer = self._post(f"/internal/jobs/{job}/claim", dispatch_token, {"worker": self.id})
        if answer.status_code == 200:
            self.spec, self._numbers = JobSpec.model_validate_json(answer.content), count(1)
        return answer

    def heartbeat(
        self, *, step: int = 1, events: Sequence[dict[str, Any]] = (), **more: Any
    ) -> httpx.Response:
        news = [{"number": next(self._numbers), **event} for event in events]
        return self._say("heartbeat", {"step": step, "total_steps": 10, "events": news, **more})

    def put(self, data: bytes) -> dict[str, Any]:
        """Upload bytes as the protocol has it; their Object."""
        sha256 = hashlib.sha256(data).hexdigest()
        slot = self._say("uploads", {"sha256": sha256, "size": len(data)}).json()
        if not slot["already_there"]:
            self.web.put(slot["url"], content=data, headers=slot["headers"]).raise_for_status()
        return {"sha256": sha256, "size": len(data)}

    def adapter(
        self, *, seed: int = 0, logprobs: tuple[float, float] = LOGPROBS, **changes: Any
    ) -> dict[str, Any]:
        """Upload a small DiReFT adapter and a probe of these `logprobs`; the body of Complete for them."""
        assert self.spec is not None
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            adapter_folder(folder, self.spec, seed=seed, **changes)
            files = {path.name: self.put(path.read_bytes()) for path in folder.iterdir()}
        return {
            "manifest": files[MANIFEST_FILE],
            "probe": self.put(probe(logprobs=logprobs).model_dump_json().encode()),
            "report": {
                "train_seconds": 1.5,
                "steps": 10,
                "trained_tokens": 321,
                "held_out_tokens": 0,
                "train_loss": 0.5,
            },
        }

    def complete(self, body: dict[str, Any]) -> httpx.Response:
        return self._say("complete", body)

    def fail(
        self,
        *,
        code: str = "out_of_memory",
        message: str = "Too long.",
        retry: bool = False,
        counts: bool = True,
    ) -> httpx.Response:
        return self._say("fail", {"code": code, "message": message, "retry": retry, "counts": counts})

    def release(self, **more: Any) -> httpx.Response:
        return self._say("release", more)

    def _say(self, what: str, body: dict[str, Any]) -> httpx.Response:
        assert self.spec is not None
        path = f"/internal/jobs/{self.spec.job}/{what}"
        return self._post(path, self.spec.token, {"epoch": self.spec.epoch, **body})

    def _post(self, path: str, token: str, body: dict[str, Any]) -> httpx.Response:
        return self.web.post(path, json=body, headers={"Authorization": f"Bearer {token}"})


def adapter_folder(folder: Path, spec: JobSpec, *, seed: int = 0, **changes: Any) -> Manifest:
    """A two-layer DiReFT adapter of width 8 that fits the job's recipe."""
    rank, width, random = spec.recipe.rank, 8, np.random.default_rng(seed)
    tensors = {
        f"base_model.model.model.layers.{layer}.direft_{part}": random.normal(size=shape).astype(np.float32)
        for layer in range(2)
        for part, shape in (("A.weight", (rank, width)), ("A.bias", (rank,)), ("B.weight", (width, rank)))
    }
    fields: dict[str, Any] = {
        "tensors": tensors,
        "config": {"peft_type": "DIREFT"},
        "base": BaseRef(digest=BASE_DIGEST, name="tiny"),
        "method": "direft",
        "position": "prefill",
        "rank": rank,
        "scale": rank**-0.5,
        "training": {},
    }
    return adapter_write(folder, **(fields | changes))
