"""SeaweedFS: an S3 server from a wheel, with a key for each reader and telemetry off."""

import json
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local_stack.home import Home, write_private
from local_stack.service import Service

BUCKET = "attune"
# `weed mini` runs five servers in one process; each also listens for gRPC, 10000 above.
SERVERS = ("s3", "master", "volume", "filer", "admin")
PORT_NAMES = tuple(name if name == "s3" else f"s3_{name}" for name in SERVERS)


def seaweedfs(home: Home, *, ports: dict[str, int], env: dict[str, str]) -> Service:
    secrets = home.secrets()
    folder = home.sub("s3")
    identities = folder / "identities.json"
    url = f"http://127.0.0.1:{ports['s3']}"

    def prepare() -> None:
        who = {
            "stack": ("stack", ["Admin", "Read", "Write", "List", "Tagging"]),
            "web": ("web", [f"{action}:{BUCKET}" for action in ("Read", "Write", "List", "Tagging")]),
            "engine": ("engine", [f"Read:{BUCKET}", f"List:{BUCKET}"]),
        }
        write_private(
            identities,
            json.dumps({"identities": [identity(secrets, name, actions) for name, actions in who.values()]}),
        )
        for name in ("data", "logs"):
            (folder / name).mkdir(exist_ok=True)

    def ready() -> None:
        client = s3_client(url, secrets["s3_stack_id"], secrets["s3_stack_key"])
        if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key=".ready", Body=b"1")

    command = [
        str(Path(sys.executable).parent / "weed"),
        f"-logdir={folder / 'logs'}",
        "mini",
        f"-dir={folder / 'data'}",
    ]
    command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"]
    command += [f"-s3.config={identities}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-s3.autoCreateBucket=false", "-s3.allowDeleteBucketNotEmpty=false"]
    # Without resumeState=false the first puts after a restart block for 5 to 21 seconds.
    command += ["-master.telemetry=false", "-master.resumeState=false", "-master.electionTimeout=1s"]
    command += ["-volume.preStopSeconds=0"]
    command += [f"-{part}.localSocket={folder / part}.sock" for part in ("filer", "s3")]
    command += [f"-{server}.port={ports[name]}" for server, name in zip(SERVERS, PORT_NAMES, strict=True)]
    # Without these keys the inner HTTP ports serve any object to anyone on this machine.
    jwt = {
        "WEED_JWT_SIGNING_KEY": secrets["weed_jwt"],
        "WEED_JWT_SIGNING_READ_KEY": secrets["weed_jwt_read"],
        "WEED_JWT_FILER_SIGNING_KEY": secrets["weed_filer_jwt"],
        "WEED_JWT_FILER_SIGNING_READ_KEY": secrets["weed_filer_jwt_read"],
    }
    return Service(
        name="s3",
        command=tuple(command),
        env={**env, **jwt},
        cwd=folder,
        prepare=prepare,
        ready=ready,
        url=url,
    )


def identity(secrets: dict[str, str], name: str, actions: list[str]) -> dict[str, Any]:
    keys = {"accessKey": secrets[f"s3_{name}_id"], "secretKey": secrets[f"s3_{name}_key"]}
    return {"name": name, "credentials": [keys], "actions": actions}


def s3_env(home: Home, *, port: int, who: str) -> dict[str, str]:
    """What `who` (web or engine) needs to reach the bucket."""
    secrets = home.secrets()
    return {
        "ATTUNE_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "ATTUNE_S3_BUCKET": BUCKET,
        "ATTUNE_S3_ACCESS_KEY": secrets[f"s3_{who}_id"],
        "ATTUNE_S3_SECRET_KEY": secrets[f"s3_{who}_key"],
        "ATTUNE_S3_REGION": "us-east-1",
    }


def s3_client(url: str, access_key: str, secret_key: str) -> Any:
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        retries={"max_attempts": 1},
        connect_timeout=1,
        read_timeout=3,
    )
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
        config=config,
    )
