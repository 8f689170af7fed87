"""gating → succeeded or failed: the engine is asked, and what it says and what was held out decide (verdict.py)."""

import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta

import structlog
from django.db import transaction

from adapters_store.errors import StorageUnavailable
from adapters_store.manifest import Manifest, manifest_dump
from adapters_store.names import qualified_name
from adapters_store.s3 import manifest_key
from training_jobs.messages import Object, Probe, Report
from webapp.config.faults import Unavailable
from webapp.datasets.storage import object_lock, objects_put, store
from webapp.engine import Engine
from webapp.jobs.events import event_add
from webapp.jobs.lifecycle import job_fail_with
from webapp.jobs.locks import job_locked
from webapp.jobs.models import Job, State
from webapp.jobs.probes import ProbeInvalid, probe_read
from webapp.jobs.publish import job_fail_kept, job_results, job_succeed
from webapp.jobs.trial import EngineAway, NotNow, Refused, TrialFailed, said_by_engine
from webapp.jobs.verdict import Figures, Missed, activates, as_report, cautions, figures_of, missed, same_base
from webapp.jobs.waiting import all_told, job_wait, ready

_log = structlog.get_logger("attune.gate")
_PAUSE = timedelta(seconds=15)
#: Doubled after each failure: the last trial comes after seven minutes, when a sick engine has been started anew.
_FAILURE_PAUSE = timedelta(seconds=30)
MAX_TRIALS = 5
_AWAY = "No engine is running at the moment. The adapter is trained, and will be tried when there is one."


def gate_all(*, asked: Engine) -> bool:
    """Try every adapter that is due, one of each tenant in turn; whether an engine is there. If none is, all wait.

    Each is tried once: one that has to wait may be due again before the others were tried.
    """
    tried: Counter[uuid.UUID] = Counter()
    done: set[uuid.UUID] = set()
    # Looked at anew after each: a trial may take minutes, and a newcomer does not wait for all of somebody else's.
    while due := [each for each in _due() if each[0] not in done]:
        job, tenant = min(due, key=lambda each: tried[each[1]])
        tried[tenant] += 1
        done.add(job)
        try:
            gate(job=job, asked=asked)
        except EngineAway as error:
            _log.info("engine away, jobs wait at the gate", reason=str(error))
            all_told(state=State.GATING, reason=_AWAY)
            return False
        except Exception:
            _log.exception("gate", job=job.hex)
            _wait(job, "The adapter could not be tried, which is our fault. It will be tried again.")
    return True


def _due() -> Iterable[tuple[uuid.UUID, uuid.UUID]]:
    """Jobs at the gate that are not set aside, oldest first, with their tenants."""
    rows = Job.objects.filter(ready(), state=State.GATING).order_by("created_at")
    return rows.values_list("id", "tenant")


def gate(*, job: uuid.UUID, asked: Engine) -> None:
    """Decide one job in gating, or set it aside when nothing can be said now. Raises EngineAway."""
    row = Job.objects.select_related("tenant", "base").get(id=job)
    if row.state != State.GATING:
        return
    manifest = Manifest.model_validate(row.manifest)
    try:
        _show(row, manifest)
        probe = probe_read(row, Object.model_validate(row.probe))
        figures = _figures(row, manifest, probe, asked)
        why = missed(figures)
        if why is None:
            _succeed(row, manifest, figures)
        else:
            _fail_kept(row, manifest, figures, why)
    except NotNow as reason:
        _wait(job, f"{reason} The adapter will be tried again.")
    except ProbeInvalid as invalid:
        _fail(job, code="probe_invalid", message=str(invalid))
    except (Unavailable, StorageUnavailable):
        _wait(job, "Storage cannot be reached at the moment. The adapter will be tried again.")
    except TrialFailed as failure:
        _trial_failed(job, str(failure))
    except Refused as refusal:
        _fail(job, code=refusal.code, message=f"The engine refused the adapter: {refusal.message}")


@transaction.atomic
def _show(row: Job, manifest: Manifest) -> None:
    """Put the manifest where engines find the adapter. The committed row stands for it, and its end drops it.

    Should an older adapter of the same name be deleted at this moment, its manifest and this one are one file.
    """
    if job_locked(row.id).state == State.GATING:
        key = manifest_key(row.tenant.storage_id, manifest.name)
        object_lock(key)
        store().put(key, manifest_dump(manifest))


def _figures(row: Job, manifest: Manifest, probe: Probe, asked: Engine) -> Figures:
    adapter = qualified_name(row.tenant.storage_id, manifest.name)
    figures = figures_of(probe, *said_by_engine(probe, base=row.base.name, adapter=adapter, asked=asked))
    if not same_base(figures):
        _log.error("engine and trainer differ on the base model", job=row.public_id, base=row.base.name)
        raise NotNow(
            f"The engine does not answer as {row.base.name} does at the trainer, which is our fault."
        )
    return figures


def _succeed(row: Job, manifest: Manifest, figures: Figures) -> None:
    found = cautions(Report.model_validate(row.report), figures)
    activated = row.end_user_id is not None and activates(figures, found)
    with closing(job_results(row)) as results:
        objects_put(tenant=row.tenant.storage_id, parts=[results])
        with transaction.atomic():
            locked = job_locked(row.id)
            if locked.state == State.GATING:
                locked.report |= {"gate": as_report(figures, found, activates=activated)}
                for caution in found:
                    event_add(job=locked, message=caution.message, level="warn")
                job_succeed(locked, manifest, results, activates=activated)


@transaction.atomic
def _fail_kept(row: Job, manifest: Manifest, figures: Figures, why: Missed) -> None:
    locked = job_locked(row.id)
    if locked.state == State.GATING:
        locked.report |= {"gate": as_report(figures, [], activates=False)}
        job_fail_kept(locked, manifest, code=why.code, message=why.message)


def _wait(job: uuid.UUID, reason: str) -> None:
    job_wait(job=job, state=State.GATING, pause=_PAUSE, reason=reason)


@transaction.atomic
def _trial_failed(job: uuid.UUID, why: str) -> None:
    row = job_locked(job)
    if row.state != State.GATING:
        return
    trials = row.failed_trials + 1
    Job.objects.filter(id=job).update(failed_trials=trials)
    if trials >= MAX_TRIALS:
        job_fail_with(
            row,
            code="adapter_trial_failed",
            message=f"The engine failed {MAX_TRIALS} times while it tried the adapter (the last time: {why}). "
            "Start the job again; if that does not help, the operator finds the reason in the engine's log.",
        )
        return
    pause = _FAILURE_PAUSE * 2 ** (trials - 1)
    reason = f"The engine failed while it tried the adapter ({why}). It will be tried again."
    job_wait(job=job, state=State.GATING, pause=pause, reason=reason)


@transaction.atomic
def _fail(job: uuid.UUID, *, code: str, message: str) -> None:
    row = job_locked(job)
    if row.state == State.GATING:
        job_fail_with(row, code=code, message=message)
