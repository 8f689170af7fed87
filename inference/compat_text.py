"""A function's source out of a wheel or a folder, read but not imported: of versions that this machine cannot run."""

import ast
import inspect
import io
from functools import lru_cache
from importlib.resources.abc import Traversable


def source_text(tree: Traversable, name: str) -> str:
    """What inspect.getsource() says of the dotted `name` where it can be imported; "" if there is none of that name.

    `tree` holds the packages (a pathlib.Path, or a zipfile.Path of a wheel). Functions and methods only, and only
    where they are defined: an inherited method belongs to the class that defines it.
    """
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        folder = tree.joinpath(*parts[: end - 1])
        for module in (folder / f"{parts[end - 1]}.py", folder / parts[end - 1] / "__init__.py"):
            if module.is_file():
                return _definition(module.read_text(encoding="utf-8"), parts[end:])
    return ""


@lru_cache(maxsize=1)  # one module's names are asked for one after the other
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _definition(text: str, path: list[str]) -> str:
    body = _parsed(text).body
    for part in path:
        # Of several definitions (typing.overload) the last is the one that Python keeps.
        named = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
        ]
        if not named:
            return ""
        body = named[-1].body
    first = min(node.lineno for node in (named[-1], *named[-1].decorator_list))
    # inspect's own rule for where a block ends, so that both ways agree on comments behind it.
    return "".join(inspect.getblock(io.StringIO(text).readlines()[first - 1 :]))
