"""The images hold what their processes import: each Dockerfile's COPY lines, played in a folder, without a container.

Nothing else is to be had there: no other package of this project, and no distribution that the image's lock does not
name.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_stack.home import ROOT

pytestmark = pytest.mark.slow

ALONE = '''
import importlib, importlib.machinery, importlib.metadata, pkgutil, re, sys

folder, lock, roots, *left_out = sys.argv[1:]
ours = {"adapters_store", "training_jobs", "inference", "webapp", "local_stack", "benchmarks", "tests"}
named = lambda name: re.sub("[-_.]+", "-", name).lower()
installed = {*re.findall("^([a-z0-9-]+)==", open(lock).read(), re.M), "torch", "pip"}
packages = importlib.metadata.packages_distributions()

class Alone:
    """What the image's Python finds, and no more."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ours:
            path = [folder]
        elif path is None and name in packages and not {named(dist) for dist in packages[name]} & installed:
            path = [place for place in sys.path if place.endswith("_vendor")]  # setuptools brings some of its own
        return importlib.machinery.PathFinder.find_spec(name, path, target)

    @staticmethod
    def find_distributions(context):
        found = importlib.machinery.PathFinder.find_distributions(context)
        return (dist for dist in found if named(dist.name) in installed)

# In place of the search path, and of the finder that an editable install leaves.
sys.meta_path[:] = [importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, Alone]
for root in roots.split(","):
    module = importlib.import_module(root)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), root + "."):
        if not found.name.endswith(".__main__") and found.name not in left_out:
            importlib.import_module(found.name)
strays = [name for name, module in sys.modules.items()
          if name.split(".")[0] in ours and not str(getattr(module, "__file__", None) or folder).startswith(folder)]
sys.exit(f"from elsewhere: {strays}" if strays else 0)
'''


def copied(dockerfile: str) -> Iterator[list[tuple[str, str]]]:
    """What each stage that holds the project copies from it: pairs of source and destination."""
    text = (ROOT / "docker" / dockerfile).read_text().replace("\\\n", " ")
    for stage in re.split(r"^FROM ", text, flags=re.M)[1:]:
        pairs = []
        for line in re.findall(r"^COPY (?!--from)(.+)$", stage, flags=re.M):
            *sources, destination = line.split()
            pairs += [(source, destination) for source in sources if not destination.startswith("/")]
        if pairs:
            yield pairs


def copy(pairs: list[tuple[str, str]], folder: Path) -> None:
    seen = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source, destination in pairs:
        assert source.split("/")[0] in seen, f"{source} is not sent to the builder (.dockerignore)"
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / destination, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / destination).mkdir(exist_ok=True)
            shutil.copy(ROOT / source, folder / destination)


def python_in(folder: Path, arguments: list[str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def imports(
    folder: Path, *, lock: str, roots: str, env: dict[str, str], left_out: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Import these modules and packages, with everything below them."""
    return python_in(
        folder, ["-c", ALONE, str(folder), str(ROOT / "requirements" / lock), roots, *left_out], env
    )


def test_the_web_image_starts(stores, tmp_path: Path):
    """Every module of the web application, on the database that its start looks at."""
    [pairs] = copied("web.Dockerfile")
    copy(pairs, tmp_path)
    env = {name: value for name, value in stores.env.items() if name.startswith("ATTUNE_")}
    env["DJANGO_SETTINGS_MODULE"] = "webapp.config.django"
    roots = "manage,webapp.config.asgi,webapp,training_jobs.messages"
    done = imports(tmp_path, lock="web.lock", roots=roots, env=env)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_file_that_is_left_out_is_missed(tmp_path: Path):
    [pairs] = copied("web.Dockerfile")
    copy([pair for pair in pairs if "message.py" not in pair[0]], tmp_path)
    done = imports(tmp_path, lock="web.lock", roots="training_jobs.messages", env={})
    assert "No module named 'training_jobs.message'" in done.stderr


def test_the_trainers_image_starts(tmp_path: Path):
    [pairs] = copied("trainer.Dockerfile")
    copy(pairs, tmp_path)
    env = {
        "ATTUNE_BROKER_URL": "redis://localhost",
        "ATTUNE_WEB_URL": "http://localhost",
        "ATTUNE_TRAINER_TOKEN": "t" * 32,
        "ATTUNE_MODELS_DIR": str(tmp_path),
        "ATTUNE_WORK_DIR": str(tmp_path),
    }
    # Standard tasks are no trainer's work; their packages are an extra of their own.
    done = imports(
        tmp_path,
        lock="trainer.lock",
        roots="training_jobs",
        env=env,
        left_out=("training_jobs.lm_eval_model",),
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_engines_images_start(tmp_path: Path):
    """Both have the same of ours; vLLM is there as the CPU's."""
    cpu, cuda = copied("inference.Dockerfile")
    assert cpu == cuda
    copy(cpu, tmp_path)
    assert {"pyproject.toml", "README.md", "LICENSE"} <= {path.name for path in tmp_path.iterdir()}
    left_out = ("inference.kernels_cuda",)
    done = imports(tmp_path, lock="engine-cpu.lock", roots="inference", env={}, left_out=left_out)
    assert done.returncode == 0, done.stderr[-2000:]
