"""What has to hold when all is over, whatever was killed: each check is a sentence for what does not."""

import time
from collections.abc import Callable, Iterator

import redis

from adapters_store.s3 import manifest_key, object_key
from tests.soak.customer import BATCH, EPOCHS, ROWS, USERS, Customer, patiently
from tests.soak.parts import BASE, Parts
from training_jobs.messages import queue_name

_SWEPT_SECONDS = 120.0


def problems(parts: Parts, customer: Customer) -> list[str]:
    """Empty if every job ended once, with one adapter and one usage row, and nothing is left of any attempt."""
    checks = (_ends, _answers, _adapters, _usage, _nothing_waits, _storage, _folders)
    return [problem for check in checks for problem in check(parts, customer)]


def _ends(parts: Parts, customer: Customer) -> Iterator[str]:
    """One row for each job that was asked for, in one terminal state that its history tells once, at its end."""
    rows = parts.rows("SELECT id, state, finished_at FROM jobs_job")
    if sorted(f"ftjob-{row['id'].hex}" for row in rows) != sorted(customer.numbers):
        yield f"{len(customer.numbers)} jobs were asked for, and there are {len(rows)}"
    for row in rows:
        events = parts.rows("SELECT message FROM jobs_jobevent WHERE job_id = %s ORDER BY id", row["id"])
        told = [event["message"] for event in events]
        ends = [message for message in told if message.startswith("Done: version ")]
        if row["state"] != "succeeded" or row["finished_at"] is None or ends != told[-1:]:
            yield f"{row['id']} is {row['state']}, and its history ends: {told[-3:]}"


def _answers(parts: Parts, customer: Customer) -> Iterator[str]:
    """The API says of each job now what it said when it had ended, lists its one model, and tells each step once."""
    client = customer.client
    models = [model.to_dict()["attune"].get("job") for model in patiently(client.models.list)]
    for job, status in customer.ended.items():
        again = patiently(lambda job=job: client.fine_tuning.jobs.retrieve(job))
        if again.status != status or not again.fine_tuned_model or models.count(job) != 1:
            yield f"{job} was {status}, is {again.status} and has {models.count(job)} models"
            continue
        lines = patiently(lambda file=again.result_files[0]: client.files.content(file)).text.splitlines()[1:]
        steps = [int(float(line.split(",")[0])) for line in lines]
        if steps != sorted(set(steps)):
            yield f"the metrics of {job} tell {len(steps) - len(set(steps))} steps twice"


def _adapters(parts: Parts, customer: Customer) -> Iterator[str]:
    """One a job; versions without gaps, and the newest answers."""
    made = parts.rows("SELECT job_id FROM adapters_adapter WHERE deleted_at IS NULL")
    jobs = parts.rows("SELECT id FROM jobs_job")
    if sorted(row["job_id"] for row in made) != sorted(row["id"] for row in jobs):
        yield f"{len(jobs)} jobs have {len(made)} adapters"
    for user in USERS:
        versions = parts.rows(
            "SELECT version, a.id = u.active_adapter_id AS active FROM adapters_adapter a "
            "JOIN tenants_enduser u ON u.id = a.end_user_id WHERE u.external_id = %s ORDER BY version",
            user,
        )
        if [row["version"] for row in versions] != list(range(1, len(versions) + 1)):
            yield f"{user} has the versions {versions}"
        if [row["version"] for row in versions if row["active"]] != [row["version"] for row in versions][-1:]:
            yield f"{user}'s newest adapter is not the active one: {versions}"


def _usage(parts: Parts, customer: Customer) -> Iterator[str]:
    """One row a job, of what an undisturbed one uses: what was done twice is not paid for twice."""
    steps = ROWS // BATCH * EPOCHS
    for job in parts.rows("SELECT id, step, trained_tokens FROM jobs_job"):
        rows = parts.rows(
            "SELECT input_tokens FROM usage_usagerow WHERE kind = 'training' AND request_id = %s",
            job["id"].hex,
        )
        if [row["input_tokens"] for row in rows] != [job["trained_tokens"]] or job["step"] != steps:
            yield f"{job} is counted as {rows}"
    if extra := parts.rows("SELECT request_id FROM usage_usagerow WHERE request_id NOT IN "
                           "(SELECT replace(id::text, '-', '') FROM jobs_job)"):  # fmt: skip
        yield f"{len(extra)} usage rows are of no job"
    if len(tokens := parts.rows("SELECT DISTINCT trained_tokens FROM jobs_job")) != 1:
        yield f"equal jobs trained on unequal numbers of tokens: {tokens}"


def _nothing_waits(parts: Parts, customer: Customer) -> Iterator[str]:
    """No outbox line, lease, token, checkpoint, probe or manifest outlives its job, and no message its reader."""
    if left := parts.rows("SELECT job_id FROM jobs_outbox"):
        yield f"the outbox has {left}"
    if left := parts.rows(
        "SELECT id FROM jobs_job WHERE lease_until IS NOT NULL OR dispatch_token <> '' "
        "OR checkpoint IS NOT NULL OR probe IS NOT NULL OR manifest IS NOT NULL"
    ):
        yield f"ended jobs still hold something: {left}"

    def read() -> bool:
        with redis.Redis.from_url(parts.stack.env["ATTUNE_BROKER_URL"]) as broker:
            return broker.llen(queue_name(BASE)) == 0

    if not _soon(read):
        yield "the queue has messages that nobody reads"


def _storage(parts: Parts, customer: Customer) -> Iterator[str]:
    """An hour later: exactly what rows stand for, and of each adapter all."""
    # The sweeper removes some things late, because a trainer may hold a URL; no trainer is left that could use one.
    parts.change("UPDATE datasets_objectremoval SET not_before = now()")
    if not _soon(lambda: not parts.rows("SELECT id FROM datasets_objectremoval LIMIT 1")):
        yield "the sweeper does not come to an end"
    there, needed = parts.keys(), set(_needed(parts))
    if orphans := there - needed:
        yield f"{len(orphans)} objects that no row needs, such as {sorted(orphans)[:3]}"
    if lost := needed - there:
        yield f"{len(lost)} objects are lost, such as {sorted(lost)[:3]}"


def _needed(parts: Parts) -> Iterator[str]:
    for row in parts.rows("SELECT tenant_id, name, object_digests FROM adapters_adapter"):
        yield manifest_key(row["tenant_id"].hex, row["name"])
        yield from (object_key(row["tenant_id"].hex, sha256) for sha256 in row["object_digests"])
    for row in parts.rows(
        "SELECT tenant_id, sha256, conversations_sha256, report_sha256 FROM datasets_file WHERE deleted_at IS NULL"
    ):
        tenant = row.pop("tenant_id").hex
        yield from (object_key(tenant, sha256) for sha256 in row.values() if sha256)


def _folders(parts: Parts, customer: Customer) -> Iterator[str]:
    """Nothing that anybody wrote stays on a disk of ours because its reader was killed."""
    for folder in (parts.work_dir, parts.temporary):
        if left := [path.name for path in folder.rglob("*") if path.is_file()]:
            yield f"{folder.name}/ holds {left}"


def _soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _SWEPT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True
