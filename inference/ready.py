"""python -m inference.ready: is the engine up, right, and serving adapters? Exit code 0, or a sentence and 1 or 3.

1: not yet. 3: it does its work wrongly, which no waiting changes.

By real operations: the base model's first greedy tokens must be those that transformers gives for the same folder in
float32 (a wrong attention kernel answers fluently and wrongly), and the canary must change them while the base stays.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from adapters_store.base import base_digest
from inference.canary import CANARY
from inference.settings import EngineSettings, engine_settings

_QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
_TOKENS = 8
#: The reference stops where its two best tokens are closer than this: bfloat16 may order them either way.
_CLEAR_LOGITS = 0.5


class NotReady(Exception):
    """What is missing, for an operator."""

    exit_code = 1


class WrongEngine(NotReady):
    """It answers, and not as it has to."""

    exit_code = 3


def check(settings: EngineSettings) -> None:
    """Raise WrongEngine unless the engine answers rightly, NotReady if it has a fault that may pass."""
    expected = expected_tokens(settings)
    before = _answer(settings, settings.base_model)
    canary = _answer(settings, CANARY)
    after = _answer(settings, settings.base_model)
    clear = len(expected)  # behind these a tie may fall either way, from one answer to the next
    if before[:clear] != expected:
        raise WrongEngine(
            f"The engine's first tokens for {settings.base_model} are not those of transformers: this vLLM build, "
            "dtype or attention backend computes something else on this machine. Do not serve with it."
        )
    if canary == before:
        raise WrongEngine(
            "The canary adapter changes nothing: Attune's plugin is not active in the engine's workers."
        )
    if after[:clear] != expected:
        raise WrongEngine(
            "The base model's answer changed after an adapter was used: adapters are not isolated."
        )


def expected_tokens(settings: EngineSettings) -> list[int]:
    """The first greedy tokens by transformers, float32; remembered beside the adapter cache, by the base's digest."""
    digest = base_digest(settings.base_folder)
    remembered = settings.adapter_cache_dir.expanduser() / f"readiness-{digest[:16]}.json"
    if remembered.exists():
        tokens: list[int] = json.loads(remembered.read_text())
        return tokens
    tokens = _transformers_tokens(settings.base_folder)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    remembered.write_text(json.dumps(tokens))
    return tokens


def _transformers_tokens(folder: Path) -> list[int]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(_QUESTION, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    prompt = len(ids)
    with torch.inference_mode():
        for _ in range(_TOKENS):
            logits = model(torch.tensor([ids])).logits[0, -1]
            best, second = logits.topk(2).values.tolist()
            if best - second < _CLEAR_LOGITS and len(ids) > prompt:
                break
            ids.append(int(logits.argmax()))
    return ids[prompt:]


def _answer(settings: EngineSettings, model: str) -> list[int]:
    body: dict[str, Any] = {
        "model": model,
        "messages": _QUESTION,
        "temperature": 0,
        "max_tokens": _TOKENS,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    headers = {"authorization": f"Bearer {settings.engine_key.get_secret_value()}"}
    url = f"http://{settings.engine_host}:{settings.engine_port}/v1/chat/completions"
    response = httpx.post(url, json=body, headers=headers, timeout=60)
    if response.status_code != 200:
        kind = NotReady if response.status_code >= 500 else WrongEngine
        raise kind(f"The engine answered {response.status_code} for {model}: {response.text[:300]}")
    tokens: list[int] = response.json()["choices"][0]["token_ids"]
    return tokens


def wait(settings: EngineSettings, *, seconds: float) -> None:
    """Check until it holds; what does not change by waiting (WrongEngine) is raised at once, NotReady at the end."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check(settings)
        except WrongEngine:
            raise
        except (NotReady, httpx.TransportError) as error:
            if time.monotonic() > deadline:
                if isinstance(error, NotReady):
                    raise
                raise NotReady(f"Nothing answers on port {settings.engine_port}.") from None
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m inference.ready", description=__doc__)
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait for the engine to come up")
    seconds = parser.parse_args().wait
    try:
        wait(engine_settings(), seconds=seconds)
    except NotReady as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
