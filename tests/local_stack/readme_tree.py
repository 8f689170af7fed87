"""The README's tree, made of the modules' own first sentences: python -m tests.local_stack.readme_tree writes it."""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PACKAGES = ("adapters_store", "training_jobs", "inference", "webapp", "local_stack", "benchmarks")
START, END = "<!-- tree -->\n", "<!-- /tree -->"
_WIDTH = 118
#: Django's own furniture: the place says what it is.
_FURNITURE = {"__init__.py", "urls.py", "admin.py", "apps.py"}


def tree() -> str:
    """One block a package: its sentence, then a line a module."""
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    return "\n".join(_package(package, [Path(name) for name in tracked]) for package in PACKAGES)


def _package(package: str, tracked: list[Path]) -> str:
    modules = [
        path
        for path in tracked
        if path.parts[0] == package
        and path.suffix == ".py"
        and path.name not in _FURNITURE
        and "migrations" not in path.parts
    ]
    names = [str(path.relative_to(package)) for path in modules]
    column = max(map(len, names)) + 2
    lines = [
        f"    {name:<{column}}{_short(_sentence(path), _WIDTH - 4 - column)}"
        for name, path in zip(names, modules, strict=True)
    ]
    return f"**{package}/** {_sentence(Path(package, '__init__.py'))}\n\n" + "\n".join(lines) + "\n"


def _sentence(path: Path) -> str:
    documentation = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    return documentation.partition("\n")[0].rstrip(".:")


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def written() -> str:
    return README.read_text().partition(START)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = README.read_text().partition(START)
    README.write_text(before + START + tree() + END + rest.partition(END)[2])
