"""What the dispatcher has put on a trainer's queue."""

import base64
import json

import redis

from training_jobs.messages import TASK, queue_name


def messages(queue: redis.Redis) -> list[dict[str, str]]:
    """Take what the trainers would: of each message, the tokens by job."""
    taken = []
    while raw := queue.lpop(queue_name("tiny")):
        envelope = json.loads(raw)
        assert envelope["headers"]["task"] == TASK
        jobs: dict[str, str] = json.loads(base64.b64decode(envelope["body"]))[1]["jobs"]
        headers = json.dumps(envelope["headers"])
        assert not any(token in headers for token in jobs.values()), "monitors show headers"
        taken.append(jobs)
    return taken
