"""One `python -m inference.serve` for the whole session, cramped: 2 slots, room for 6 adapters, 28 blocks of 32."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from adapters_store.manifest import MANIFEST_FILE, manifest_dump
from adapters_store.s3 import ObjectStore, manifest_key, object_key
from tests.inference.adapters import Adapter

BLOCK = 32
SLOTS, MEMORY = 2, 6
_CRAMPED = f"--block-size {BLOCK} --num-gpu-blocks-override 28 --max-num-batched-tokens 64".split()


@dataclass(frozen=True)
class Served:
    """The running server: where it is, where it gets adapters, and what it wrote."""

    url: str
    key: str
    base: str
    adapters: Path
    cache: Path
    log: Path
    store: ObjectStore
    pid: int

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=120, trust_env=False)

    def async_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=200)
        return httpx.AsyncClient(
            base_url=self.url, headers=self.headers, timeout=300, trust_env=False, limits=limits
        )

    def ask(self, model: str, prompt: Sequence[int] = (100, 200, 300), count: int = 4) -> httpx.Response:
        with self.client() as client:
            return client.post("/v1/completions", json=question(model, prompt, count))

    def alive(self) -> bool:
        """Healthy, and the base model still answers."""
        with self.client() as client:
            return client.get("/health").status_code == 200 and self.ask(self.base).status_code == 200

    def metric(self, name: str, **labels: str) -> float:
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} ")) and all(label in line for label in wanted)
        )

    def publish(self, adapter: Adapter, tenant: str) -> str:
        """Put an adapter where the web application would; returns what to ask the engine for."""
        for file, ref in adapter.manifest.files.items():
            self.store.put(object_key(tenant, ref.sha256), (adapter.folder / file).read_bytes())
        self.store.put(manifest_key(tenant, adapter.name), (adapter.folder / MANIFEST_FILE).read_bytes())
        return f"{tenant}/{adapter.name}"

    def publish_manifest(self, manifest: Any, tenant: str) -> str:
        self.store.put(manifest_key(tenant, manifest.name), manifest_dump(manifest))
        return f"{tenant}/{manifest.name}"


def question(model: str, prompt: Sequence[int], count: int, **more: Any) -> dict[str, Any]:
    """A greedy completion of token ids that answers with token ids."""
    body = {"model": model, "prompt": list(prompt), "max_tokens": count, "temperature": 0}
    return body | {"ignore_eos": True, "return_token_ids": True, **more}


def answer(response: httpx.Response) -> list[int]:
    assert response.status_code == 200, response.text
    tokens: list[int] = response.json()["choices"][0]["token_ids"]
    return tokens


def serve(base: Path, folder: Path, s3: dict[str, str]) -> Iterator[Served]:
    key, port = secrets.token_hex(16), _free_port()
    (folder / "adapters").mkdir()
    # The in-process engine of other tests leaves settings of its own behind.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ATTUNE_", "VLLM_"))}
    env = {
        **clean,
        **{name: value for name, value in s3.items() if name.startswith("ATTUNE_S3_")},
        "ATTUNE_MODELS_DIR": str(base.parent),
        "ATTUNE_BASE_MODEL": base.name,
        "ATTUNE_ENGINE_PORT": str(port),
        "ATTUNE_ENGINE_KEY": key,
        "ATTUNE_ADAPTER_DIR": str(folder / "adapters"),
        "ATTUNE_ADAPTER_CACHE_DIR": str(folder / "cache"),
        "ATTUNE_ADAPTER_WAIT_SECONDS": "1",
        "ATTUNE_GPU_SLOTS": str(SLOTS),
        "ATTUNE_CPU_SLOTS": str(MEMORY),
        "ATTUNE_MAX_RANK": "16",
        "ATTUNE_MAX_MODEL_LEN": "512",
        "ATTUNE_KV_CACHE_GB": "1",
        # Not bound to the first core, as the engine of the whole stack is, which may run beside it.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "inference.serve", *_CRAMPED],
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        ready = subprocess.run(
            [sys.executable, "-m", "inference.ready", "--wait", "900"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ready.returncode == 0, f"{ready.stderr}\n{log.read_text()[-4000:]}"
        store = ObjectStore(
            endpoint_url=s3["ATTUNE_S3_ENDPOINT_URL"],
            bucket=s3["ATTUNE_S3_BUCKET"],
            access_key=s3["ATTUNE_S3_ACCESS_KEY"],
            secret_key=s3["ATTUNE_S3_SECRET_KEY"],
        )
        url = f"http://127.0.0.1:{port}"
        yield Served(url, key, base.name, folder / "adapters", folder / "cache", log, store, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.copy(log, _artifacts() / "serve.log")


def _artifacts() -> Path:
    folder = Path(__file__).parents[2] / "test-artifacts"
    folder.mkdir(exist_ok=True)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
