"""The main job on the whole stack, by the unmodified client: upload, train, chat, cancel, delete; and its faults."""

import os
import signal
import time
import uuid
from typing import Any

import httpx
import openai
import pytest
import redis
from celery import Celery

from adapters_store.s3 import ObjectStore, object_key
from local_stack import processes
from local_stack.stack import Stack
from tests.e2e.conftest import BASE, progress, say, train, wait_for
from training_jobs.messages import TASK, queue_name

pytestmark = pytest.mark.stack
QUESTION = "Where do you live?"


def own_models(client: openai.OpenAI, job: str) -> list[str]:
    return [model.id for model in client.models.list() if model.to_dict()["attune"].get("job") == job]


def test_upload_train_chat_cancel_delete(client: openai.OpenAI) -> None:
    job = train(client, user="maren", count=24, epochs=4, held_out=0.3)
    wait_for(client, job.id, state="succeeded")
    job = client.fine_tuning.jobs.retrieve(job.id)
    all_figures_are_there(job.to_dict()["report"])
    assert job.fine_tuned_model
    assert job.trained_tokens
    events = list(client.fine_tuning.jobs.list_events(job.id))
    assert any(event.type == "metrics" and "train_loss" in event.data for event in events)
    [checkpoint] = client.fine_tuning.jobs.checkpoints.list(job.id)
    assert checkpoint.fine_tuned_model_checkpoint == job.fine_tuned_model
    results = client.files.content(job.result_files[0]).text
    assert results.splitlines()[0].startswith("step,")

    base = say(client, QUESTION)
    own = say(client, QUESTION, user="maren")
    assert base.model == BASE
    assert own.model == job.fine_tuned_model
    assert own.choices[0].message.content != base.choices[0].message.content
    assert say(client, QUESTION, model=job.fine_tuned_model).choices[0].message == own.choices[0].message
    streamed = say(client, QUESTION, user="maren", stream=True)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == own.choices[0].message.content
    )

    second = train(client, user="maren", count=24, epochs=50)
    wait_for(client, second.id, state="running")
    assert client.fine_tuning.jobs.cancel(second.id).status == "cancelled"
    assert own_models(client, second.id) == []

    assert client.models.delete(job.fine_tuned_model).deleted
    assert say(client, QUESTION, user="maren").model == BASE
    with pytest.raises(openai.NotFoundError):
        say(client, QUESTION, model=job.fine_tuned_model)
    assert client.files.delete(job.training_file).deleted


def all_figures_are_there(report: dict[str, Any]) -> None:
    """Of the gate: engine and trainer agree in float32, and what was held out was compared with base and memory."""
    engine = report["gate"]["engine"]
    assert engine["prompts"] == 3
    assert engine["tokens"] > 3
    assert engine["effect"] > 0.1
    assert max(engine["difference"], engine["base_difference"]) < 1e-3
    base, memory = report["against_base"], report["against_memory"]
    assert (base["loss"], base["adapter_loss"]) == (
        report["held_out_loss_before"],
        report["held_out_loss_after"],
    )
    for comparison in (base, memory):
        assert comparison["low"] <= comparison["adapter_loss"] - comparison["loss"] <= comparison["high"]
    assert base["high"] < 0, "four passes over these rows make it better"
    assert memory["quoted"] > 5
    assert report["gate"]["activated"]


def test_a_killed_trainers_job_finishes_once(client: openai.OpenAI, stack: Stack) -> None:
    job = train(client, user="killed", count=12, epochs=4)
    wait_for(client, job.id, state="running", step=2)
    pid = stack.pid("trainer")
    for process in [*processes.descendants(pid), pid]:
        os.kill(process if isinstance(process, int) else process.pid, signal.SIGKILL)
    wait_for(client, job.id, state="succeeded")
    assert progress(client, job.id)["attempt"] == 2
    assert len(own_models(client, job.id)) == 1


def test_a_flushed_brokers_job_finishes(client: openai.OpenAI, stack: Stack) -> None:
    """The message is in the queue, nobody has claimed it, and the broker loses everything."""
    pid = stack.pid("trainer")
    trainer = [pid, *(process.pid for process in processes.descendants(pid))]
    broker = redis.Redis.from_url(stack.env["ATTUNE_BROKER_URL"])
    for each in trainer:
        os.kill(each, signal.SIGSTOP)
    try:
        # A stopped trainer may have been waiting for a message: this one, about a job that does not exist.
        with Celery(broker=stack.env["ATTUNE_BROKER_URL"], set_as_current=False) as celery:
            nothing = {"jobs": {uuid.uuid4().hex: "none"}}
            celery.send_task(TASK, kwargs=nothing, queue=queue_name(BASE))
        job = train(client, user="flushed", epochs=1)
        wait_for(client, job.id, state="dispatched", timeout=30)
        named, deadline = job.id.removeprefix("ftjob-").encode(), time.monotonic() + 30
        while not any(named in message for message in broker.lrange(queue_name(BASE), 0, -1)):
            assert time.monotonic() < deadline, "the message is where the flush will find it"
            time.sleep(0.05)
        broker.flushall()
    finally:
        for each in trainer:
            os.kill(each, signal.SIGCONT)
    wait_for(client, job.id, state="succeeded")
    events = [event.message for event in client.fine_tuning.jobs.list_events(job.id)]
    assert any("sending it again" in message for message in events)
    assert len(own_models(client, job.id)) == 1


def test_a_corrupt_adapter_is_refused_and_others_go_on(client: openai.OpenAI, stack: Stack) -> None:
    users = ("corrupt", "sound")
    jobs = [train(client, user=user, epochs=1, seed=seed) for seed, user in enumerate(users)]
    for job in jobs:
        wait_for(client, job.id, state="succeeded")
    env = stack.env
    _flip_a_byte(client, env, jobs[0].id)
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        say(client, QUESTION, user="corrupt")
    assert refused.value.code == "adapter_corrupt"
    assert "train it again" in refused.value.message
    assert say(client, QUESTION, user="sound").model != BASE
    assert say(client, QUESTION).model == BASE


def _flip_a_byte(client: openai.OpenAI, env: dict[str, str], job: str) -> None:
    """Change the stored tensors of a job's adapter, and make the engine forget that it has them."""
    import psycopg

    with psycopg.connect(env["ATTUNE_DATABASE_URL"]) as database:
        tenant, name, manifest = database.execute(
            "SELECT tenant_id, name, manifest FROM adapters_adapter WHERE job_id = %s",
            [job.removeprefix("ftjob-")],
        ).fetchone()
    store = ObjectStore(
        endpoint_url=env["ATTUNE_S3_ENDPOINT_URL"],
        bucket=env["ATTUNE_S3_BUCKET"],
        access_key=env["ATTUNE_S3_ACCESS_KEY"],
        secret_key=env["ATTUNE_S3_SECRET_KEY"],
    )
    key = object_key(tenant.hex, manifest["files"]["adapter_model.safetensors"]["sha256"])
    data = bytearray(store.get(key, 10**9))
    data[-1] ^= 1
    store.put(key, bytes(data))
    forgotten = httpx.delete(
        f"{env['ATTUNE_ENGINE_URL']}/v1/adapters/{tenant.hex}/{name}",
        headers={"Authorization": f"Bearer {env['ATTUNE_ENGINE_KEY']}"},
        trust_env=False,
    )
    assert forgotten.status_code == 200, forgotten.text
    time.sleep(0.5)
