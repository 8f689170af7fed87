"""The questions that a trainer leaves for the gate: an object in storage, somebody's words, gone with the job's end."""

import hashlib

from pydantic import ValidationError

from adapters_store.errors import AdapterCorrupt, AdapterMissing
from adapters_store.s3 import object_key
from training_jobs.messages import Object, Probe
from webapp.datasets.storage import store
from webapp.jobs.models import Job

#: Three prompts of the longest context take far less.
MAX_PROBE_BYTES = 4_000_000


class ProbeInvalid(Exception):
    """The message is for the job's owner."""

    def __init__(self) -> None:
        super().__init__(
            "What the trainer left for the engine to be compared with is not there or cannot be read. This is our "
            "fault: start the job again, and report it if it stays."
        )


def probe_read(row: Job, uploaded: Object) -> Probe:
    """What a trainer uploaded for this job. Raises ProbeInvalid, StorageUnavailable."""
    try:
        data = store().get(object_key(row.tenant.storage_id, uploaded.sha256), MAX_PROBE_BYTES)
        if hashlib.sha256(data).hexdigest() == uploaded.sha256:
            return Probe.model_validate_json(data)
    except (AdapterCorrupt, AdapterMissing, ValidationError):
        pass  # None is told as it is: the text of the last one quotes what it found.
    raise ProbeInvalid
