"""An engine that answers what a test tells it to: vLLM takes a minute to start, and never does some of this."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from webapp.engine import Engine


class PlayedEngine:
    """`refuse`: (status, code) for adapters; `same`: adapters change nothing; `asked`: models in order.

    `served`: the one base model; `broken`: an adapter over which it breaks down. `forgets`: what it answers
    when it is told to forget an adapter, and `deleted` those that it did.
    """

    def __init__(self) -> None:
        self.refuse: tuple[int, str] | None = None
        self.same = False
        self.served = "tiny"
        self.broken: str | None = None
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.forgets = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._answer(*outer.answer(body))

            def do_DELETE(self) -> None:
                if outer.forgets in (200, 404):
                    outer.deleted.append(self.path)
                self._answer(outer.forgets, {})

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def engine(self) -> Engine:
        return Engine(f"http://127.0.0.1:{self._server.server_port}", "key")

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(body["model"])
        self.bodies.append(body)
        adapted = "/" in body["model"]
        refusal: tuple[int, str | int] | None = self.refuse if adapted else None
        if not adapted and body["model"] != self.served:
            # As vLLM puts it.
            refusal = (404, 404)
        elif self.broken and body["model"].endswith(self.broken):
            refusal = (500, 500)
        if refusal:
            return refusal[0], {"error": {"message": "No.", "type": "x", "param": None, "code": refusal[1]}}
        logprob = -0.5 if adapted and not self.same else -0.1
        top = [{"token": "a", "logprob": logprob}, {"token": "b", "logprob": -3.0}]
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}
        return 200, {"choices": [choice | {"logprobs": {"content": [{"top_logprobs": top}]}}]}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
