"""The Hugging Face hub's part of HTTP that downloads use, with one repository, whose files a test names."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from huggingface_hub import constants

COMMIT = "c" * 40


@dataclass
class HubDouble:
    """`sizes`: what it says of files that it does not hold. `fetched`: names of the files that were asked for."""

    repo: str
    files: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    gated: bool = False
    fetched: set[str] = field(default_factory=set)

    def facts(self, path: str) -> object:
        """What the API says of the repository, or of its tree."""
        sizes = {name: len(content) for name, content in self.files.items()} | self.sizes
        if "/tree/" in path:
            return [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        return {"id": self.repo, "sha": COMMIT, "siblings": siblings}


@contextmanager
def hub_double(repo: str, **said: object) -> Iterator[HubDouble]:
    """Our hub client speaks to it alone."""
    hub = HubDouble(repo, **said)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.startswith(f"/api/models/{hub.repo}"):
                facts = json.dumps(hub.facts(path)).encode()
                return self.answer(200, facts, {"content-type": "application/json"})
            name = path.removeprefix(f"/{hub.repo}/resolve/{COMMIT}/")
            hub.fetched.add(name)
            if hub.gated:
                return self.answer(403, b"{}", {"x-error-code": "GatedRepo"})
            if name not in hub.files:
                return self.answer(404, b"", {"x-error-code": "EntryNotFound"})
            return self.answer(200, hub.files[name], {"etag": f'"{name}"', "x-repo-commit": COMMIT})

        def do_HEAD(self) -> None:
            self.do_GET()

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for header, value in headers.items():
                self.send_header(header, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, pytest.MonkeyPatch.context() as patch:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "ENDPOINT", url)
        patch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield hub
        server.shutdown()
