"""Which parts to start and what each of them may know.

Every part can be replaced by one elsewhere: a URL in the environment (`REPLACED_BY`) keeps it from being started.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_stack import apps, postgres, seaweedfs, valkey
from local_stack.home import DEMO_MODEL, PARTS, ROOT, Home, StackError
from local_stack.service import Service

STEPS = ("migrate",)  # also run by itself: the stores with their tables, and nothing else
REPLACED_BY = {
    "postgres": "ATTUNE_DATABASE_URL",
    "valkey": "ATTUNE_BROKER_URL",
    "s3": "ATTUNE_S3_ENDPOINT_URL",
    "engine": "ATTUNE_ENGINE_URL",
    "web": "ATTUNE_WEB_URL",
}
S3 = tuple(f"ATTUNE_S3_{name}" for name in ("ENDPOINT_URL", "BUCKET", "ACCESS_KEY", "SECRET_KEY", "REGION"))
# What is secret or a way to another part is given to those who need it and to no one else.
WEB = ("DATABASE_URL", "BROKER_URL", "ENGINE_URL", "ENGINE_KEY", "SECRET_KEY", "PUBLIC_URL", "TRAINER_TOKEN")
MAY_KNOW = {
    "web": (*(f"ATTUNE_{name}" for name in WEB), *S3),
    "trainer": ("ATTUNE_BROKER_URL", "ATTUNE_WEB_URL", "ATTUNE_TRAINER_TOKEN", "ATTUNE_WORK_DIR"),
    "engine": (
        "ATTUNE_ENGINE_HOST",
        "ATTUNE_ENGINE_PORT",
        "ATTUNE_ENGINE_KEY",
        "ATTUNE_ADAPTER_CACHE_DIR",
        *S3,
    ),
}
MAY_KNOW["migrate"] = (*MAY_KNOW["web"], "ATTUNE_DATABASE_OWNER_URL")
PRIVATE = frozenset(name for names in MAY_KNOW.values() for name in names)
# Of the caller's own environment a part sees these and every ATTUNE_ variable that is not private.
PASSED = ("PATH", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD")
PASSED_PREFIXES = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "VLLM_",
    "SSL_",
    "COVERAGE_",
)
QUIET = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",  # models are folders; nothing is fetched while serving or training
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


NOBODY = "http://127.0.0.1:9"  # the discard port: a URL for a part that was left out


@dataclass(frozen=True)
class Plan:
    services: tuple[Service, ...]
    replaced: dict[str, str]  # part: the variable that points elsewhere
    urls: dict[str, str]
    env: dict[str, str]  # all that a client or a test may want to know


def plan(home: Home, *, parts: Iterable[str], environ: Mapping[str, str], fast: bool = False) -> Plan:
    """`fast` spares what only matters over a power cut; for tests."""
    wanted = list(parts)
    if unknown := [part for part in wanted if part not in PARTS + STEPS]:
        raise StackError(f"Unknown part: {', '.join(unknown)}. The parts are {', '.join(PARTS + STEPS)}.")
    replaced = {part: REPLACED_BY[part] for part in wanted if environ.get(REPLACED_BY.get(part, ""))}
    here = [part for part in PARTS if part in wanted and part not in replaced]
    ports = home.ports([*(p for p in ("postgres", "valkey", "web", "engine") if p in here), *s3_ports(here)])
    if "web" in replaced and "valkey" in here:
        raise StackError(
            "ATTUNE_WEB_URL names a web application elsewhere, which sends its jobs through its own broker: set "
            "ATTUNE_BROKER_URL to that one as well."
        )
    common = base_env(home, environ)
    values = {
        **own_values(home, here, ports),
        **{k: v for k, v in environ.items() if k in PRIVATE and v},
    }

    def env_for(who: str) -> dict[str, str]:
        own = {**values, **(engine_s3(home, ports, environ) if who == "engine" else {})}
        return {**common, **{name: own[name] for name in MAY_KNOW[who] if name in own}}

    def after(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in here)

    base = Path(common["ATTUNE_MODELS_DIR"]) / common["ATTUNE_BASE_MODEL"]
    tables: tuple[str, ...] = ("migrate", "base-model") if {"web", "dispatcher"} & set(here) else ()
    if "migrate" in wanted and not tables:
        tables = ("migrate",)
    if {"engine", "trainer", "web", "dispatcher"} & set(here) and not (base / "config.json").exists():
        raise StackError(
            f"There is no base model in {base}. Run `make setup` for the demo model, "
            "or set ATTUNE_MODELS_DIR and ATTUNE_BASE_MODEL."
        )
    services: list[Service] = []
    if "postgres" in here:
        services.append(postgres.postgres(home, port=ports["postgres"], env=common, fast=fast))
    if "valkey" in here:
        services.append(valkey.valkey(home, port=ports["valkey"], env=common))
    if "s3" in here:
        services.append(seaweedfs.seaweedfs(home, ports=ports, env=common))
    if "engine" in here:
        services.append(apps.engine(home, env=env_for("engine"), port=ports["engine"]))
    if tables:
        need("web", values, MAY_KNOW["migrate"], excuse={"ATTUNE_S3_REGION"})
        services.append(apps.migrate(env=env_for("migrate"), needs=after("postgres")))
    if "base-model" in tables:
        services.append(apps.base_model(env=env_for("web"), folder=base, needs=("migrate", *after("s3"))))
    stores = ("migrate", *after("postgres", "valkey", "s3"))
    if "web" in here:
        services.append(apps.web(env=env_for("web"), port=ports["web"], needs=stores))
    if "dispatcher" in here:
        services.append(apps.dispatcher(env=env_for("web"), needs=stores))
    if "trainer" in here:
        need("trainer", values, MAY_KNOW["trainer"])
        services.append(apps.trainer(env=env_for("trainer"), needs=after("valkey", "web")))
    urls = {service.name: service.url for service in services if service.url}
    urls |= {part: environ[variable] for part, variable in replaced.items()}
    client = {name: value for name, value in common.items() if name.startswith("ATTUNE_")}
    return Plan(tuple(services), replaced, urls, {**client, **values})


def s3_ports(here: list[str]) -> tuple[str, ...]:
    return seaweedfs.PORT_NAMES if "s3" in here else ()


def need(part: str, values: Mapping[str, str], names: Iterable[str], excuse: Iterable[str] = ()) -> None:
    if missing := [name for name in names if name not in values and name not in set(excuse)]:
        raise StackError(
            f"To start {part} without the parts that it needs, set {', '.join(sorted(missing))}."
        )


def base_env(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """What every part sees: nothing secret, and caches inside the data folder."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in PASSED
        or name.startswith(PASSED_PREFIXES)
        or (name.startswith("ATTUNE_") and name not in PRIVATE)
    }
    cache = home.sub("cache")
    models = home.folder / "models"
    defaults = {
        "LANG": "C.UTF-8",
        "HOME": str(cache),
        "XDG_CACHE_HOME": str(cache),
        "HF_HOME": str(cache / "huggingface"),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "ATTUNE_HOME": str(home.folder),
        "ATTUNE_MODELS_DIR": str(models if models.exists() else ROOT / ".attune" / "models"),
        "ATTUNE_BASE_MODEL": DEMO_MODEL,
    }
    fixed = {"ATTUNE_HOME": str(home.folder), "PYTHONPATH": str(ROOT)}
    return {**defaults, **QUIET, **passed, **fixed}


def own_values(home: Home, here: list[str], ports: Mapping[str, int]) -> dict[str, str]:
    """The private values of the parts that run here; those of parts elsewhere come from the environment."""
    secrets = home.secrets()
    values = {
        "ATTUNE_SECRET_KEY": secrets["django"],
        "ATTUNE_ENGINE_KEY": secrets["engine"],
        "ATTUNE_TRAINER_TOKEN": secrets["trainer"],
        "ATTUNE_WORK_DIR": str(home.sub("trainer")),
        "ATTUNE_ADAPTER_CACHE_DIR": str(home.sub("adapter-cache")),
    }
    if "postgres" in here:
        values["ATTUNE_DATABASE_URL"] = postgres.web_url(home, ports["postgres"])
        values["ATTUNE_DATABASE_OWNER_URL"] = postgres.owner_url(home, ports["postgres"])
    if "valkey" in here:
        values["ATTUNE_BROKER_URL"] = valkey.broker_url(home, ports["valkey"])
    if "s3" in here:
        values |= seaweedfs.s3_env(home, port=ports["s3"], who="web")
    if "engine" in here:
        values["ATTUNE_ENGINE_HOST"] = "127.0.0.1"
        values["ATTUNE_ENGINE_PORT"] = str(ports["engine"])
        values["ATTUNE_ENGINE_URL"] = f"http://127.0.0.1:{ports['engine']}"
    else:
        values["ATTUNE_ENGINE_URL"] = NOBODY  # chats are told that the engine is away
    if "web" in here:
        values["ATTUNE_WEB_URL"] = f"http://127.0.0.1:{ports['web']}"
    values["ATTUNE_PUBLIC_URL"] = values.get("ATTUNE_WEB_URL", NOBODY)
    return values


def engine_s3(home: Home, ports: Mapping[str, int], environ: Mapping[str, str]) -> dict[str, str]:
    """The engine reads the local S3 with a key of its own that cannot write."""
    if "s3" not in ports or environ.get("ATTUNE_S3_ACCESS_KEY"):
        return {}
    return seaweedfs.s3_env(home, port=ports["s3"], who="engine")


def current_environ() -> dict[str, str]:
    return dict(os.environ)
