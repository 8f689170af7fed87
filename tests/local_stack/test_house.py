"""The rules of the house that no linter knows."""

import ast
from pathlib import Path

from local_stack.home import ROOT
from tests.local_stack import readme_tree

PACKAGES = ("adapters_store", "training_jobs", "inference", "webapp")
MODULES = sorted(
    path for package in (*PACKAGES, "local_stack", "benchmarks") for path in (ROOT / package).rglob("*.py")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def environment_reads(tree: ast.AST) -> list[int]:
    """Lines that read a variable; setting one for a library that is imported later is no reading."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="environ"), ctx=ast.Load()):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr="getenv")):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr="get" | "pop", value=ast.Attribute(attr="environ"))):
                lines.append(node.lineno)
    return lines


def private_uses(tree: ast.AST) -> list[int]:
    """Lines that import a private name of vLLM, or reach for one on something imported from it."""
    imported, lines = set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            names = [*(alias.name for alias in node.names), *(node.module or "").split(".")]
            lines += [node.lineno] if any(name.startswith("_") for name in names) else []
            imported |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in imported:
                lines += [node.lineno] if attr.startswith("_") and not attr.startswith("__") else []
    return lines


def error_codes(tree: ast.AST) -> set[str]:
    """Codes given by keyword, by class attribute, or as the first word of a trainer's fault."""
    codes = set()
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                codes.add(code)
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                codes.add(code)
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), _]) if name.endswith(
                "Fault"
            ):
                codes.add(code)
    return codes


def test_the_environment_is_read_in_settings_alone():
    inside = [path for path in MODULES if path.relative_to(ROOT).parts[0] in PACKAGES]
    places = {
        name_of(path): environment_reads(ast.parse(path.read_text()))
        for path in inside
        if path.name != "settings.py"
    }
    assert {name: lines for name, lines in places.items() if lines} == {}


def test_no_module_is_long():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_module_is_a_drawer():
    drawers = ("utils", "util", "helpers", "misc", "common")
    assert [name_of(path) for path in MODULES if path.stem in drawers] == []


def test_private_names_of_vllm_are_touched_in_compat_alone():
    places = {
        name_of(path): private_uses(ast.parse(path.read_text()))
        for path in (ROOT / "inference").glob("*.py")
        if not path.stem.startswith("compat")
    }
    assert {name: lines for name, lines in places.items() if lines} == {}


def test_every_error_code_is_explained():
    explained = (ROOT / "docs" / "errors.md").read_text()
    codes = set().union(*(error_codes(ast.parse(path.read_text())) for path in MODULES))
    assert sorted(code for code in codes if f"`{code}`" not in explained) == []


def test_the_tree_in_the_readme_is_true():
    """`python -m tests.local_stack.readme_tree` writes it anew."""
    assert readme_tree.written() == readme_tree.tree()


def test_the_rules_can_fail():
    reading = "import os\nos.environ['X']\nos.getenv('X')\nos.environ.get('X')\nos.environ['Y'] = '1'"
    assert environment_reads(ast.parse(reading)) == [2, 3, 4]
    faults = "A('x', code='a')\nclass B: code = 'b'\nraise OurFault('c', f'{x}')"
    assert error_codes(ast.parse(faults)) == {"a", "b", "c"}
    touching = "from vllm.a import B\nfrom vllm._c import D\nB._hidden()\nB.open()"
    assert private_uses(ast.parse(touching)) == [2, 3]
