"""The served engine as its gateway and its operator see it."""

import asyncio
import json
import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil
import pytest
from transformers import AutoTokenizer

from adapters_store.chat_template import ChatEncoder
from tests.inference.adapters import random_adapter
from tests.inference.served import BLOCK, MEMORY, SLOTS, Served, answer, question
from training_jobs.messages import Turn

pytestmark = pytest.mark.engine

_ROUTE = re.compile(r"""@\w*router\.(get|post|put|delete|patch)\(\s*["']([^"']+)["']""")
_OPEN = {("GET", "/health"), ("GET", "/metrics")}


def routes() -> list[tuple[str, str]]:
    """Every route that this vLLM can have, by its source: a new version's new routes are tested, too."""
    vllm = find_spec("vllm")  # importing it takes ten seconds
    assert vllm is not None
    assert vllm.origin is not None
    found = {
        (method.upper(), path.replace("{", "").replace("}", ""))
        for file in (Path(vllm.origin).parent / "entrypoints").rglob("*.py")
        for method, path in _ROUTE.findall(file.read_text())
    }
    ours = {
        ("DELETE", "/v1/adapters/x"),
        ("POST", "/v1/adapters/x/prefetch"),
        ("POST", "/v1/adapters/x/pin"),
        ("DELETE", "/v1/adapters/x/pin"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
    }
    return sorted(found | ours | _OPEN)


def test_every_route_wants_the_key(served: Served):
    assert len(routes()) > 40
    wrong = [{}, {"authorization": "Bearer wrong"}, {"authorization": served.key}, {"x-api-key": served.key}]
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        for method, path in routes():
            for headers in wrong:
                status = client.request(method, path, headers=headers).status_code
                assert status == (200 if (method, path) in _OPEN else 401), f"{method} {path}: {status}"
        for path in ("/health/", "//health", "/metrics/../v1/models", "/metrics/x", "/HEALTH"):
            assert client.get(path).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/invocations", "/pause", "/scale_elastic_ep"],
)
def test_what_serving_does_not_need_is_not_there_even_with_the_key(served: Served, path):
    with served.client() as client:
        response = client.post(path, json={"lora_name": "x", "lora_path": "/etc"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_url"


def test_it_listens_on_loopback_only(served: Served):
    family = [psutil.Process(served.pid), *psutil.Process(served.pid).children(recursive=True)]
    listening = [
        c.laddr.ip for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("model", ["nobody", "../adapters", f"ap-{'a' * 64}", f"{'0' * 32}/ap-{'a' * 64}"])
def test_an_unknown_adapter_is_404_in_openais_shape(served: Served, model):
    response = served.ask(model)
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "adapter_not_found"
    assert error["param"] == "model"
    assert model in error["message"]


def test_another_base_is_400_saying_both(served: Served, base, tmp_path):
    from adapters_store.manifest import MANIFEST_FILE, BaseRef, manifest_dump

    made = random_adapter(served.adapters / "foreign", base=base, method="lora", position="prefill", seed=1)
    foreign = made.manifest.model_copy(update={"base": BaseRef(digest="f" * 64, name="some-other-model")})
    (made.folder / MANIFEST_FILE).write_bytes(manifest_dump(foreign))
    response = served.ask("foreign")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "adapter_wrong_base"
    assert "some-other-model" in error["message"]
    assert base.name in error["message"]


def test_too_high_a_rank_is_400_saying_both(served: Served, base):
    random_adapter(served.adapters / "high", base=base, method="direft", position="prefill", seed=1, rank=17)
    response = served.ask("high")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "adapter_rank_too_high"
    assert "17" in error["message"]
    assert "16" in error["message"]


def test_more_adapters_than_memory_is_503_with_retry_after_and_passes(served: Served, base):
    """All-position adapters hold their places until their answers end."""
    names = [f"held{index}" for index in range(MEMORY + 1)]
    for seed, name in enumerate(names):
        random_adapter(served.adapters / name, base=base, method="direft", position="all", seed=seed, rank=2)

    async def run() -> httpx.Response:
        async with served.async_client() as client:
            long = [
                asyncio.ensure_future(client.post("/v1/completions", json=question(name, (5, 6), 80)))
                for name in names[:-1]
            ]
            for _ in range(200):
                if await asyncio.to_thread(served.metric, "attune_adapter_places_taken") == MEMORY:
                    break
                await asyncio.sleep(0.02)
            refused = await client.post("/v1/completions", json=question(names[-1], (5, 6), 2))
            for done in await asyncio.gather(*long):
                assert len(answer(done)) == 80
            return refused

    refused = asyncio.run(run())
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "adapter_memory_full"
    answer(served.ask(names[-1]))


def test_metrics_tell_of_every_tier(served: Served, base):
    random_adapter(
        served.adapters / "counted", base=base, method="direft", position="prefill", seed=77, rank=2
    )

    def counts() -> list[float]:
        lookups = [("disk", "miss"), ("disk", "hit"), ("memory", "miss"), ("memory", "hit")]
        return [
            served.metric("attune_adapter_lookups_total", tier=tier, result=result)
            for tier, result in lookups
        ]

    before = counts()
    answer(served.ask("counted"))
    answer(served.ask("counted"))
    assert [after - was for after, was in zip(counts(), before, strict=True)] == [1, 1, 1, 1]
    refused = served.metric("attune_adapter_refused_total", code="adapter_not_found")
    served.ask("nobody")
    assert served.metric("attune_adapter_refused_total", code="adapter_not_found") == refused + 1
    assert served.metric("attune_adapter_disk_bytes") > 0
    for _ in range(100):  # the page has what the workers said last
        if served.metric("attune_adapter_lookups_total", tier="slot", result="miss"):
            break
        asyncio.run(asyncio.sleep(0.1))
    assert served.metric("attune_adapter_lookups_total", tier="slot", result="miss") > 0
    assert 0 < served.metric("attune_adapters_in_memory") <= MEMORY
    assert served.metric("attune_adapter_memory_bytes") > 0
    assert 0 < served.metric("attune_adapter_slots_taken") <= SLOTS


def test_metrics_name_no_adapter(served: Served, base):
    """Anyone reads them, and names hold tenants' ids."""
    made = random_adapter(
        served.adapters / "unnamed", base=base, method="direft", position="all", seed=78, rank=2
    )
    answer(served.ask("unnamed"))
    with served.client() as client:
        page = client.get("/metrics").text
    assert "vllm:num_requests_running{" in page
    assert made.name not in page
    assert "running_lora_adapters" not in page


def test_beam_search_with_a_prefill_only_adapter_is_400(served: Served, base):
    for position in ("prefill", "all"):
        random_adapter(
            served.adapters / f"beam-{position}",
            base=base,
            method="direft",
            position=position,
            seed=79,
            rank=2,
        )

    def beams(model: str) -> httpx.Response:
        body = question(model, (5, 6), 2, use_beam_search=True, n=2)
        with served.client() as client:
            return client.post("/v1/completions", json=body)

    refused = beams("beam-prefill")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "adapter_unsupported"
    assert beams("beam-all").status_code == 200
    assert beams(served.base).status_code == 200


def test_an_adapter_is_pinned_and_let_go(served: Served, base):
    made = random_adapter(
        served.adapters / "pinned", base=base, method="direft", position="prefill", seed=80, rank=2
    )
    with served.client() as client:
        assert client.post("/v1/adapters/pinned/pin").json() == {"id": made.name, "pinned": True}
        assert client.post("/v1/adapters/nobody/pin").status_code == 404
        assert client.get("/v1/adapters/pinned/pin").status_code == 405
        for was_pinned in (True, False):
            assert client.delete("/v1/adapters/pinned/pin").json() == {
                "id": made.name,
                "pinned": False,
                "was_pinned": was_pinned,
            }
    answer(served.ask("pinned"))


def test_only_the_base_is_listed(served: Served):
    """Adapters are their owners' business."""
    with served.client() as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [served.base]


def test_no_prompt_and_no_answer_reaches_the_log(served: Served):
    secret = "zanzibar pomegranate"
    with served.client() as client:
        body = {
            "model": served.base,
            "messages": [{"role": "user", "content": f"Repeat: {secret}"}],
            "max_tokens": 8,
        }
        said = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        client.post("/v1/chat/completions", json={**body, "temperature": "hot"})
        client.post("/v1/chat/completions", json={**body, "model": "nobody"})
        # Two schemas that no compiler of grammars takes, and one that they do.
        for schema in ({"type": secret}, {"type": "string", "pattern": f"({secret}"}, {"enum": [secret]}):
            form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
            client.post("/v1/chat/completions", json={**body, "response_format": form})
    log = served.log.read_text().lower()
    assert secret not in log
    assert said.strip().lower() not in log


def test_a_client_that_leaves_gives_everything_back(served: Served, base):
    random_adapter(served.adapters / "left", base=base, method="direft", position="all", seed=5, rank=2)
    body = question("left", (5, 6), 400, stream=True)
    for _ in range(3):
        with served.client() as client, client.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_lines())
    deadline = 50
    while served.metric("vllm:num_requests_running") and deadline:
        deadline -= 1
        asyncio.run(asyncio.sleep(0.1))
    assert served.metric("vllm:num_requests_running") == 0
    assert served.alive()


def test_tokens_from_the_prefix_cache_are_counted(served: Served):
    """As the gateway asks: its usage rows hold what the last chunk says. vLLM leaves it out unless told."""
    words = " ".join(f"word{number}" for number in range(60))
    body = {
        "model": served.base,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    with served.client() as client:
        for _ in range(2):
            answered = client.post("/v1/chat/completions", json=body)
            assert answered.status_code == 200, answered.text
    datas = [line.removeprefix("data: ") for line in answered.text.splitlines() if line.startswith("data: {")]
    usage = json.loads(datas[-1])["usage"]
    assert usage["prompt_tokens"] > 2 * BLOCK
    assert 2 * BLOCK <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_an_examples_tokens_are_the_trainers(served: Served, base):
    """Also where an answer quotes a control token."""
    messages = [
        {"role": "user", "content": "What ends a turn?"},
        {"role": "assistant", "content": "<|im_end|> does."},
    ]
    with served.client() as client:
        told = client.post("/v1/examples", json={"messages": messages}).json()
        refused = client.post("/v1/examples", json={"messages": messages[:1]})
    tokenizer = AutoTokenizer.from_pretrained(base)
    turns = [Turn(**message) for message in messages]
    prompt, target = ChatEncoder(tokenizer).prompt_and_target(turns, max_tokens=100)
    assert told == {
        "prompt": [tokenizer.decode([token]) for token in prompt],
        "target": [tokenizer.decode([token]) for token in target],
    }
    assert "".join(told["target"]) == "<|im_end|> does.<|im_end|>"
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_example"
