"""An engine for the gate alone, in a thread: it computes with the trainer's model code what an adapter in storage says.

vLLM takes a minute to start and gigabytes, and the soak is about jobs. What the gate compares is real all the same:
this one knows nothing of a job but what the gate put into storage.
"""

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from adapters_store.errors import AdapterError
from adapters_store.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, manifest_load
from adapters_store.s3 import ObjectStore, manifest_key, object_key
from training_jobs.attach.adapter import adapter_detach, adapter_load
from training_jobs.attach.prompt_mask import generating


class SoakEngine:
    """Serves the base model in `folder`, by the folder's name, and adapters from `store`, which a stack brings."""

    def __init__(self, folder: Path) -> None:
        self.base = folder.name
        self.store: ObjectStore | None = None
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        #: A killed dispatcher's question may still be computed when the next one asks, and there is one model.
        self._one = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Of /v1/completions, as far as the gate asks."""
        try:
            with self._one, self._serving(body["model"]) as model:
                choices = [
                    {"index": index, **_greedy(model, prompt, body["max_tokens"], body["logprobs"])}
                    for index, prompt in enumerate(body["prompt"])
                ]
        except AdapterError as error:
            return 404, {"error": {"code": error.code, "message": error.message}}
        return 200, {"choices": choices}

    @contextmanager
    def _serving(self, name: str) -> Iterator[Any]:
        if name == self.base:
            yield self._model
            return
        with tempfile.TemporaryDirectory() as folder:
            self._fetch(name, Path(folder))
            adapted, _ = adapter_load(self._model, Path(folder))
        try:
            yield adapted.eval()
        finally:
            self._model = adapter_detach(adapted)

    def _fetch(self, name: str, folder: Path) -> None:
        """`name`: "<tenant>/<serving name>". Raises AdapterError."""
        assert self.store is not None
        tenant, _, adapter = name.partition("/")
        data = self.store.get(manifest_key(tenant, adapter), MAX_MANIFEST_BYTES)
        (folder / MANIFEST_FILE).write_bytes(data)
        for file, ref in manifest_load(data).files.items():
            key = object_key(tenant, ref.sha256)
            self.store.get_to_file(key, folder / file, sha256=ref.sha256, size=ref.size)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@torch.no_grad()
def _greedy(model: Any, prompt: list[int], count: int, listed: int) -> dict[str, Any]:
    """`count` tokens after `prompt`, and the `listed` likeliest at each, named as vLLM does."""
    tokens, likeliest = [], []
    ids, cache = torch.tensor([prompt]), DynamicCache(config=model.config)
    with generating(len(prompt)):
        for _ in range(count):
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1]
            top = logits.log_softmax(dim=-1).topk(listed)
            pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
            likeliest.append({f"token_id:{token}": logprob for token, logprob in pairs})
            tokens.append(int(top.indices[0]))
            ids = top.indices[None, :1]
    return {"token_ids": tokens, "logprobs": {"top_logprobs": likeliest}}


def _handler(engine: SoakEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._reply(*engine.answer(body))

        def do_DELETE(self) -> None:
            """It keeps nothing that it could forget."""
            self._reply(404, {})

        def _reply(self, status: int, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            try:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                pass  # the dispatcher that asked was killed

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
