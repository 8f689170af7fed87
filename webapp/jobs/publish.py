"""The end of gating: the adapter becomes a row; of a job that succeeds also the active one, and it is counted once."""

import csv
import io
import re

from django.db.models import Max

from adapters_store.manifest import Manifest
from webapp.adapters.models import Adapter
from webapp.datasets.files import results_file_create
from webapp.datasets.storage import Part
from webapp.datasets.validate import HashedFile
from webapp.jobs.lifecycle import job_end, job_fail_with
from webapp.jobs.models import Job, JobEvent, State
from webapp.tenants.models import EndUser, Tenant
from webapp.usage.records import usage_record

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def job_succeed(row: Job, manifest: Manifest, results: Part, *, activates: bool) -> Adapter:
    """Within a transaction that holds the job's row, whose `report` is written. `results`: `job_results`, in storage
    already. `activates`: the adapter becomes the active one of its end user."""
    adapter = _adapter_create(row, manifest)
    if activates:
        EndUser.objects.filter(id=row.end_user_id).update(active_adapter=adapter)
    usage_record(
        tenant=row.tenant_id,
        kind="training",
        request_id=row.id.hex,
        end_user=row.end_user_id,
        adapter=adapter.id,
        base=row.base.name,
        status=200,
        input_tokens=row.trained_tokens or 0,
        seconds=float(row.report.get("train_seconds", 0)),
    )
    file = results_file_create(job=row, filename=f"{row.public_id}.csv", content=results)
    active = " It is now their active one." if activates else ""
    # Not by its name, which a person may have chosen: events are states, and the company sees those.
    message = f"Done: version {adapter.version}.{active}"
    job_end(row, State.SUCCEEDED, message=message, result_file=file, report=row.report)
    return adapter


def job_fail_kept(row: Job, manifest: Manifest, *, code: str, message: str) -> Adapter:
    """As `job_succeed`, but the job failed: its adapter can be looked at and deleted, and is never active."""
    adapter = _adapter_create(row, manifest)
    Job.objects.filter(id=row.id).update(report=row.report)
    job_fail_with(row, code=code, message=message)
    return adapter


def _adapter_create(row: Job, manifest: Manifest) -> Adapter:
    # Versions count up one at a time, and two jobs of one person activate one after the other.
    if row.end_user_id is not None:
        EndUser.objects.select_for_update().get(id=row.end_user_id)
    else:
        Tenant.objects.select_for_update(no_key=True).get(id=row.tenant_id)
    of_same = Adapter.objects.filter(tenant=row.tenant, end_user=row.end_user)
    return Adapter.objects.create(
        tenant=row.tenant,
        end_user=row.end_user,
        base=row.base,
        job=row,
        name=manifest.name,
        digest=manifest.digest,
        public_name=_public_name(row),
        method=manifest.method,
        position=manifest.position,
        rank=manifest.rank,
        size=sum(file.size for file in manifest.files.values()),
        version=(of_same.aggregate(Max("version"))["version__max"] or 0) + 1,
        manifest=manifest.model_dump(mode="json"),
        object_digests=sorted(file.sha256 for file in manifest.files.values()),
    )


def _public_name(row: Job) -> str:
    """`ft:<base>:<suffix or end user>:<8 hex>`, begun with what the base's licence asks for."""
    whose = row.suffix or (row.end_user.external_id if row.end_user else "tenant")
    slug = _UNFIT.sub("-", whose).strip("-")[:64] or "model"
    prefix = row.base.name_prefix
    base = row.base.name if row.base.name.lower().startswith(prefix.lower()) else f"{prefix}-{row.base.name}"
    for digits in (8, 16, 32):
        name = f"ft:{base}:{slug}:{row.id.hex[:digits]}"
        if not Adapter.objects.filter(tenant=row.tenant, public_name=name).exists():
            break
    return name


def job_results(job: Job) -> HashedFile:
    """The metrics as CSV: numbers alone, one line a step that reported any. The caller closes it.

    Steps that another attempt did again are told again, with the same numbers.
    """
    events = JobEvent.objects.filter(job=job, metrics__has_key="step").order_by("id")
    rows: dict[float, dict[str, float]] = {}
    for metrics in events.values_list("metrics", flat=True):
        rows.setdefault(metrics["step"], {}).update(metrics)
    columns = ["step", *sorted({key for metrics in rows.values() for key in metrics} - {"step"})]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[step] for step in sorted(rows))
    results = HashedFile()
    results.write(text.getvalue().encode())
    return results
