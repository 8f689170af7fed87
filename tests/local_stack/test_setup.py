"""Setup: says what is missing and how to mend it before it downloads anything; costs nothing when all is there."""

import fcntl
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from local_stack.home import ROOT

FILES = (
    "requirements/cpu.lock",
    "requirements/torch-cpu.lock",
    "pyproject.toml",
    "local_stack/demo_model.py",
)


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_check", ROOT / "local_stack/setup/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_machine_that_runs_the_tests_passes_in_silence(check: ModuleType, tmp_path: Path, capsys):
    assert check.main(sys.executable, str(tmp_path / ".venv")) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("what", "value", "sentence"),
    [
        ("platform", "darwin", "runs on Linux"),
        ("machine", "aarch64", "needs an x86-64 processor; this one is aarch64"),
        ("libc", ("", ""), "no glibc"),
        ("libc", ("glibc", "2.31"), "glibc 2.34 or newer; this system has glibc 2.31"),
        ("flags", ["sse4_2"], "no AVX2"),
    ],
)
def test_other_systems_get_a_sentence(check: ModuleType, monkeypatch, capsys, what, value, sentence):
    match what:
        case "platform":
            monkeypatch.setattr(sys, "platform", value)
        case "machine":
            monkeypatch.setattr(platform, "machine", lambda: value)
        case "libc":
            monkeypatch.setattr(platform, "libc_ver", lambda: value)
        case "flags":
            monkeypatch.setattr(check, "cpu_flags", lambda: value)
    assert check.main(sys.executable, "/nowhere/.venv") == 1
    assert sentence in capsys.readouterr().out


def test_all_that_is_missing_is_in_one_command(check: ModuleType, monkeypatch, tmp_path: Path, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(check, "LIBRARIES", {"libmissing.so.1": "libmissing1"})
    assert check.main("", str(tmp_path / ".venv")) == 1
    command = "sudo apt-get update && sudo apt-get install -y python3 python3-venv make libmissing1"
    assert command in capsys.readouterr().out


def test_disk_and_memory_are_measured_against_what_is_needed(
    check: ModuleType, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(check, "free_gb", lambda folder: 1.5)
    monkeypatch.setattr(check, "memory_gb", lambda: 3.2)
    assert check.main(sys.executable, str(tmp_path / ".venv")) == 1
    shown = capsys.readouterr().out
    assert f"1.5 GB free; setup needs {check.DISK_GB} GB (.venv has 0.0 GB of it)" in shown
    assert f"3.2 GB of memory; the whole stack needs {check.MEMORY_GB} GB" in shown


def test_the_disk_is_measured_until_setup_was_complete_once(check: ModuleType, monkeypatch, tmp_path, capsys):
    """A setup that filled the disk leaves an interpreter behind; what it has brought needs no room again."""
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    monkeypatch.setattr(check, "free_gb", lambda folder: 1.5)
    assert check.main(sys.executable, str(venv)) == 1
    assert "1.5 GB free" in capsys.readouterr().out
    with (venv / "packages").open("wb") as packages:
        packages.truncate((check.DISK_GB - 1) * 10**9)
    assert check.main(sys.executable, str(venv)) == 0
    (venv / "packages").unlink()
    (venv / ".setup-stamp").touch()
    assert check.main(sys.executable, str(venv)) == 0


def test_torch_is_locked_for_every_python_that_setup_takes():
    lock = (ROOT / "requirements/torch-cpu.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [line for line in project["optional-dependencies"]["train"] if line.startswith("torch==")]
    assert f"\n{wanted}+cpu " in lock
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", lock)) == 3, "CPython 3.11, 3.12 and 3.13"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What setup.sh looks at, as it is after a setup."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "local_stack/setup", tmp_path / "local_stack/setup")
    model = tmp_path / ".attune/models/smollm2-135m-instruct/config.json"
    model.parent.mkdir(parents=True)
    model.write_text("{}")
    inputs = [tmp_path / name for name in (*FILES[:3], "local_stack/setup/setup.sh", FILES[3])]
    content = b"".join(path.read_bytes() for path in inputs)
    (tmp_path / ".venv").mkdir()
    digest = subprocess.run(["sha256sum"], input=content, capture_output=True, check=True).stdout
    (tmp_path / ".venv/.setup-stamp").write_bytes(digest)
    return tmp_path


def setup(tree: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    command = ["/bin/bash", "local_stack/setup/setup.sh"]
    given = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(command, cwd=tree, env=given, capture_output=True, text=True, check=False)


def test_nothing_changed_costs_nothing(tree: Path):
    setup(tree)  # the disk's cache
    began = time.monotonic()
    done = setup(tree)
    assert (done.returncode, done.stdout) == (0, "")
    assert time.monotonic() - began < 0.3


@pytest.mark.parametrize("changed", [*FILES, ".attune/models/smollm2-135m-instruct/config.json"])
def test_a_change_is_noticed_and_nothing_is_made_without_python(tree: Path, tmp_path: Path, changed: str):
    if changed.endswith("config.json"):
        (tree / changed).unlink()
    else:
        (tree / changed).write_text((tree / changed).read_text() + "\n")
    programs = tmp_path / "bin"  # a machine without Python
    programs.mkdir()
    for name in ("bash", "cat", "sha256sum", "dirname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    before = sorted(tree.rglob("*"))
    done = setup(tree, PATH=str(programs))
    assert done.returncode == 1
    assert "sudo apt-get update && sudo apt-get install -y python3 python3-venv" in done.stdout
    assert sorted(tree.rglob("*")) == before


def test_the_second_of_two_waits_and_finds_everything_done(tree: Path):
    stamp = tree / ".venv/.setup-stamp"
    done = stamp.read_bytes()
    stamp.unlink()
    with (tree / ".attune/setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            ["/bin/bash", "local_stack/setup/setup.sh"], cwd=tree, stdout=subprocess.PIPE, text=True
        )
        try:
            while not any(child.name() == "flock" for child in psutil.Process(second.pid).children()):
                assert second.poll() is None, "it did not wait"
                time.sleep(0.01)
            stamp.write_bytes(done)
            fcntl.flock(lock, fcntl.LOCK_UN)
            shown, _ = second.communicate(timeout=60)
        finally:
            second.kill()
    assert second.returncode == 0
    assert shown.splitlines()[1:] == ["Setup is complete."]
    assert not (tree / ".venv/bin").exists()
