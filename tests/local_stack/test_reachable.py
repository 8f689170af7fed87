"""As root, PostgreSQL runs as nobody: also from a clone in a home that only root can enter."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from local_stack import postgres, stack

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs PostgreSQL as himself")


@pytest.fixture
def private() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # mode 0700
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    postgres.forget_lost_places()


@pytest.mark.slow
def test_data_in_a_private_folder_moves_to_where_nobody_can_reach_it(private: Path):
    with stack.start(parts={"postgres"}, home=private / "data") as running:
        with psycopg.connect(running.env["ATTUNE_DATABASE_URL"]) as web:
            where = web.execute("SELECT current_user").fetchone()
        owner = pwd.getpwuid(os.stat(f"/proc/{running.pid('postgres')}").st_uid).pw_name
    assert where == (postgres.WEB,)
    assert owner == "nobody"


@pytest.mark.slow
def test_programs_in_a_private_folder_are_copied_and_work(private: Path):
    nobody = pwd.getpwnam("nobody")
    package = postgres.binaries().parents[1]
    shutil.copytree(postgres.binaries().parent, private / package.name / "pginstall", symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, private / libraries.name)
    programs = private / package.name / "pginstall/bin"
    found, folder = postgres.reachable(programs, private / "home/postgres", nobody)
    assert postgres.passable(found)
    assert postgres.passable(folder.parent)
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        os.execv(found / "initdb", ["initdb", "--version"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_belongs_to_a_removed_data_folder_is_removed(private: Path):
    home = private / "home"
    home.mkdir()
    _, folder = postgres.reachable(postgres.binaries(), home / "postgres", pwd.getpwnam("nobody"))
    postgres.forget_lost_places()
    assert folder.parent.exists()
    home.rmdir()
    postgres.forget_lost_places()
    assert not folder.parent.exists()


def test_a_public_folder_is_used_as_it_is(private: Path):
    private.chmod(0o755)
    programs, folder = postgres.reachable(postgres.binaries(), private / "postgres", pwd.getpwnam("nobody"))
    assert (programs, folder) == (postgres.binaries(), private / "postgres")
