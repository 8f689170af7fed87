"""An engine that answers what a test tells it to: vLLM takes a minute to start, and never does some of this."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.webapp.played_trainer import LOGPROBS, RUNNER_UP, TOKEN
from webapp.engine import Engine


class PlayedEngine:
    """`refuse`: (status, code) for adapters; `same`: adapters change nothing; `asked`: models in order. `said`: the
    log-probability of every token that it says, as the base model and with an adapter; the played trainer's are equal.

    `served`: the one base model; `broken`: an adapter over which it breaks down; `busy`: it has no room for so many
    questions. `forgets`: what it answers
    when it is told to forget an adapter, `in_use` whether a prompt needs it, and `deleted` those that it was told of.
    """

    def __init__(self) -> None:
        self.refuse: tuple[int, str] | None = None
        self.same = False
        self.said = list(LOGPROBS)
        self.served = "tiny"
        self.broken: str | None = None
        self.busy = 0
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.forgets = 200
        self.in_use = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._answer(*(outer.example if self.path == "/v1/examples" else outer.answer)(body))

            def do_DELETE(self) -> None:
                if outer.forgets in (200, 404):
                    outer.deleted.append(self.path)
                self._answer(outer.forgets, {"in_use": outer.in_use})

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

    def example(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A token a word."""
        *before, answer = (message["content"].split() for message in body["messages"])
        if "toolong" in answer:
            return 400, {"error": {"message": "It is too long.", "code": "too_long"}}
        return 200, {"prompt": [word for words in before for word in words], "target": answer}

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(body["model"])
        self.bodies.append(body)
        if self.busy:
            self.busy -= 1
            return 503, {"error": {"message": "No room.", "type": "x", "param": None, "code": 503}}
        adapted = "/" in body["model"]
        refusal: tuple[int, str | int] | None = self.refuse if adapted else None
        if not adapted and body["model"] != self.served:
            # As vLLM puts it.
            refusal = (404, 404)
        elif self.broken and body["model"].endswith(self.broken):
            refusal = (500, 500)
        if refusal:
            return refusal[0], {"error": {"message": "No.", "type": "x", "param": None, "code": refusal[1]}}
        logprob = self.said[adapted and not self.same]
        count = body["max_tokens"]
        top = {f"token_id:{TOKEN}": logprob, f"token_id:{TOKEN + 1}": RUNNER_UP}
        choices = [
            {"index": index, "token_ids": [TOKEN] * count, "logprobs": {"top_logprobs": [top] * count}}
            for index in range(len(body["prompt"]))
        ]
        return 200, {"choices": choices[::-1]}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
