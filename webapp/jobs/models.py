"""Training runs: the job, its events, the messages still to send, and the workers that are alive.

The states and who moves a job between them: ARCHITECTURE.md, "The job protocol".
"""

import uuid
from datetime import timedelta

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from training_jobs.messages import HELD_OUT_SHARE


class State(models.TextChoices):
    VALIDATING = "validating"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    PAUSED = "paused"
    GATING = "gating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Job(models.Model):
    """One training run. All times are the database's."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="jobs")
    #: None: a tenant-wide adapter, reached by its name.
    end_user = models.ForeignKey(
        "tenants.EndUser", null=True, blank=True, on_delete=models.CASCADE, related_name="jobs"
    )
    base = models.ForeignKey("adapters.BaseModel", on_delete=models.PROTECT, related_name="jobs")
    training_file = models.ForeignKey("datasets.File", on_delete=models.RESTRICT, related_name="jobs")
    validation_file = models.ForeignKey(
        "datasets.File", null=True, blank=True, on_delete=models.RESTRICT, related_name="+"
    )
    #: A CSV of the metrics, once succeeded.
    result_file = models.ForeignKey(
        "datasets.File", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    suffix = models.CharField(max_length=64, blank=True)
    metadata = models.JSONField(default=dict)
    #: As asked for (with "auto"), and as decided (training_jobs.messages.Recipe and Hyperparameters).
    requested = models.JSONField(default=dict)
    recipe = models.JSONField(default=dict)
    hyperparameters = models.JSONField(default=dict)
    seed = models.IntegerField()
    #: Of the training file's conversations, to judge by; of no meaning with a validation file.
    held_out_share = models.FloatField(default=HELD_OUT_SHARE)

    state = models.CharField(max_length=12, choices=State, default=State.VALIDATING)
    epoch = models.IntegerField(default=0)
    #: Attempts that ended badly (lease lapsed, or the worker asked for another); the third one is the last.
    failed_attempts = models.IntegerField(default=0)
    #: How long it was set aside, since its last checkpoint, because storage or the web application was away.
    away = models.DurationField(default=timedelta())
    worker = models.UUIDField(null=True, blank=True)
    #: HMACs: the dispatch token is good until the claim, the epoch's token for that epoch.
    dispatch_token = models.CharField(max_length=64, blank=True)
    token = models.CharField(max_length=64, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    #: The message it is in while dispatched; small jobs that are trained together share one.
    dispatch = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    #: The number of the last event that this epoch's worker told.
    events_heard = models.IntegerField(default=0)
    #: Set aside until then: it cannot be prepared, trained, or its adapter not be tried, at the moment.
    wait_until = models.DateTimeField(null=True, blank=True)

    #: What is trained: the merged conversations, and the last registered checkpoint.
    conversations_sha256 = models.CharField(max_length=64, blank=True)
    conversations_size = models.BigIntegerField(default=0)
    #: What it is judged by (webapp/jobs/prepare.py, Judged); empty until it is queued.
    held_out = models.JSONField(default=dict)
    checkpoint = models.JSONField(null=True, blank=True)
    step = models.IntegerField(default=0)
    total_steps = models.IntegerField(default=0)
    trained_tokens = models.BigIntegerField(null=True, blank=True)
    report = models.JSONField(default=dict)
    #: Between complete and the gate's verdict: the manifest, and where the questions for the engine are
    #: (training_jobs.messages: Object, of a Probe).
    manifest = models.JSONField(null=True, blank=True)
    probe = models.JSONField(null=True, blank=True)
    #: Virtual time that its tenant was charged for it (webapp/jobs/turns.py); 0 before its first turn.
    charged = models.FloatField(default=0)
    #: How often the engine broke down over the adapter.
    failed_trials = models.IntegerField(default=0)

    error_code = models.CharField(max_length=60, blank=True)
    error_message = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-created_at"]),
            models.Index(
                fields=["state", "created_at"], name="job_unfinished", condition=~Q(state__in=TERMINAL)
            ),
            models.Index(fields=["state"], name="job_charged", condition=Q(charged__gt=0)),
        ]

    @property
    def public_id(self) -> str:
        return f"ftjob-{self.id.hex}"

    def __str__(self) -> str:
        return self.public_id


class JobEvent(models.Model):
    """A line of a job's history; the id is the order."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    level = models.CharField(max_length=5, default="info")
    message = models.CharField(max_length=500)
    metrics = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        indexes = [models.Index(fields=["job", "id"])]

    @property
    def public_id(self) -> str:
        return f"ftevent-{self.id}"


class Outbox(models.Model):
    """A job that wants dispatching, written with the change that made it so; gone once a worker claimed it."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="outbox")
    created_at = models.DateTimeField(db_default=Now(), editable=False)


class Share(models.Model):
    """A tenant's place in the virtual time of fairness (webapp/jobs/fairness.py), and the clock at its last turn."""

    tenant = models.OneToOneField(
        "tenants.Tenant", primary_key=True, on_delete=models.CASCADE, related_name="share"
    )
    served = models.FloatField(default=0)
    clock = models.FloatField(default=0)


class JobUpload(models.Model):
    """An object that a worker was given a URL to upload; whatever the adapter does not use is removed at the end."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="uploads")
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "sha256"], name="job_upload_once")]
        indexes = [models.Index(fields=["tenant", "sha256"])]


class Worker(models.Model):
    """A trainer that says hello every few seconds (training_jobs.messages.WorkerHello)."""

    id = models.UUIDField(primary_key=True)
    bases = models.JSONField(default=list)
    device = models.CharField(max_length=100)
    #: So many small jobs it trains in one batch, but for the base models of which it takes one job at a time.
    together = models.IntegerField(default=1)
    alone = models.JSONField(default=list)
    busy = models.BooleanField(default=False)
    last_seen = models.DateTimeField()
