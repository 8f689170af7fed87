"""Engine and trainer never share a GPU unless somebody says so."""

import re

import yaml

from local_stack.home import ROOT


def test_compose_gives_them_a_gpu_each():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    defaults = {}
    for part, name in (("engine-gpu", "ENGINE_GPUS"), ("trainer-gpu", "TRAINER_GPUS")):
        (device,) = services[part]["deploy"]["resources"]["reservations"]["devices"]
        (given,) = device["device_ids"]
        (defaults[name],) = re.fullmatch(rf"\$\{{{name}:-(\d+)\}}", given).groups()
    assert defaults["ENGINE_GPUS"] != defaults["TRAINER_GPUS"]
    example = dict(re.findall(r"^(\w+_GPUS)=(\d+)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert example == defaults


def test_the_docs_give_the_engines_of_a_host_all_but_the_trainers():
    text = (ROOT / "docs" / "gpu.md").read_text()
    (engines,) = re.findall(r"\$\{ENGINE_GPUS:-([\d ]+)\}", text)
    (trainer,) = re.findall(r"\$\{TRAINER_GPUS:-([\d ]+)\}", text)
    assert sorted(map(int, f"{engines} {trainer}".split())) == list(range(8))
    assert f"% {len(engines.split())}`" in text
