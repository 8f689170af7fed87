"""validating → queued: one object with everything that a trainer reads, the rows to judge by marked."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from adapters_store.errors import AdapterMissing, StorageUnavailable
from training_jobs.messages import HELD_OUT_FEWEST
from webapp.datasets.held_out import held_out_choose
from webapp.datasets.languages import lacking, language_name
from webapp.datasets.leakage import leaked
from webapp.datasets.storage import objects_put, storage_away
from webapp.datasets.stored import stored_lines
from webapp.datasets.validate import HashedFile
from webapp.jobs.lifecycle import job_fail_validation, job_queue
from webapp.jobs.models import Job, State

#: Rows that are named when they are left out.
_NAMED = 20


@dataclass
class Judged:
    """What a job is judged by: `conversations` and `examples` (trained messages in them), and how they were chosen.

    `left_out`: conversations of the validation file that the training file says too, or nearly so.
    """

    by: Literal["validation_file", "conversation", "time"] | None = None
    conversations: int = 0
    examples: int = 0
    left_out: int = 0
    left_out_ids: list[str] = field(default_factory=list)


def job_prepare(*, job: uuid.UUID) -> None:
    """Idempotent. Raises Unavailable while storage is away; bytes that are gone for good fail the job."""
    row = Job.objects.select_related("tenant", "training_file", "validation_file", "base").get(id=job)
    if row.state != State.VALIDATING:
        return
    with closing(HashedFile()) as merged:
        try:
            _prepare(row, merged)
        except AdapterMissing:
            job_fail_validation(
                job=job,
                code="file_lost",
                message="The bytes of a file are gone from storage. Upload it again, and start a new job.",
            )
        except StorageUnavailable:
            raise storage_away() from None


def _prepare(row: Job, merged: HashedFile) -> None:
    judged = _merge(row, merged) if row.validation_file else _part(row, merged)
    if judged.left_out and not judged.conversations:
        job_fail_validation(
            job=row.id,
            code="validation_leak",
            message="Every row of the validation file stands in the training file too, in the same words or "
            "nearly so. What was trained on cannot measure anything: take them out of one of the two files.",
        )
        return
    ready = {
        "conversations_sha256": row.training_file.conversations_sha256,
        "conversations_size": row.training_file.conversations_size,
    }
    if judged.conversations:
        objects_put(tenant=row.tenant.storage_id, parts=[merged])
        ready = {"conversations_sha256": merged.sha256, "conversations_size": merged.size}
    job_queue(
        job=row.id, **ready, held_out=asdict(judged), told=[_told(judged, row), *_language_warnings(row)]
    )


def _merge(row: Job, merged: HashedFile) -> Judged:
    """Write the training file's rows, then those of the validation file that it does not say too.

    Memory: see `leaked`.
    """
    assert row.validation_file is not None
    judged = Judged("validation_file")
    trained, judging = (file.conversations_sha256 for file in (row.training_file, row.validation_file))
    known = leaked(map(orjson.loads, _lines(row, trained)), map(orjson.loads, _lines(row, judging)))
    for line in _lines(row, trained):
        merged.write(line + b"\n")
    for number, line in enumerate(_lines(row, judging)):
        talk = orjson.loads(line)
        if number in known:
            judged.left_out += 1
            judged.left_out_ids += [talk["id"]] if judged.left_out <= _NAMED else []
        else:
            _write(merged, talk | {"id": f"v{talk['id']}"}, judged)
    return judged


def _part(row: Job, merged: HashedFile) -> Judged:
    """Write the training file's rows, those that are held out marked. Memory: see `held_out_choose`."""
    sha256 = row.training_file.conversations_sha256
    if not row.held_out_share or row.training_file.conversations_count < HELD_OUT_FEWEST:
        return Judged()
    chosen = held_out_choose(map(orjson.loads, _lines(row, sha256)), row.held_out_share)
    judged = Judged(chosen.by)
    if chosen.rows:
        for number, line in enumerate(_lines(row, sha256)):
            if number in chosen.rows:
                _write(merged, orjson.loads(line), judged)
            else:
                merged.write(line + b"\n")
    return judged


def _write(merged: HashedFile, talk: dict[str, Any], judged: Judged) -> None:
    judged.conversations += 1
    judged.examples += sum(turn.get("weight") == 1 for turn in talk["messages"])
    merged.write(orjson.dumps(talk | {"split": "validation"}) + b"\n")


def _told(judged: Judged, row: Job) -> tuple[str, str]:
    """Level and sentence for the job's history: what it is judged by."""
    rows, answers = "preference pairs", ""
    if row.training_file.job_type == "supervised":
        rows = "conversations"
        answers = f", with {judged.examples:,} answer{'' if judged.examples == 1 else 's'} to judge by"
    held = f"{judged.conversations:,} of {row.training_file.conversations_count:,} {rows}"
    match judged.by:
        case "validation_file" if judged.left_out:
            ids = ", ".join(judged.left_out_ids) + (", …" if judged.left_out > _NAMED else "")
            return "warn", (
                "Left out of judging, because what they say stands in the training file too, or nearly so: "
                f"{judged.left_out:,} {rows} of the validation file (rows {ids}). That leaves "
                f"{judged.conversations:,}{answers}."
            )
        case "validation_file":
            return "info", f"The validation file has {judged.conversations:,} {rows}{answers}."
        case "conversation":
            return "info", f"Held out {held}{answers}. The same file always splits alike."
        case "time":
            return "info", f"Held out {held}{answers}: the last ones of the longest chat."
    if not row.held_out_share:
        return "info", "Nothing is held out, as asked: the job will have no held-out loss."
    why = (
        f"fewer than {HELD_OUT_FEWEST} {rows}"
        if row.training_file.conversations_count < HELD_OUT_FEWEST
        else f"the {rows} say too much alike, or stand in too few chats"
    )
    return "info", (
        f"Nothing is held out ({why}), so the job will have no held-out loss. Name a validation_file for one."
    )


def _language_warnings(row: Job) -> Iterator[tuple[str, str]]:
    """Without a language's name: who manages the company sees a job's history, and not what people write."""
    if lacking(row.training_file.report.get("languages", {}), row.base.languages):
        said = ", ".join(map(language_name, row.base.languages))
        warning = (
            f"Some of the conversations are in a language that {row.base.name} was not made for. The adapter can learn "
            "a style, and hardly a language: choose a base model that knows it, or leave those conversations out (the "
            f"file's report has the languages). Its model card says: {said}."
        )
        yield "warn", warning


def _lines(row: Job, sha256: str) -> Iterator[bytes]:
    return stored_lines(tenant=row.tenant.storage_id, sha256=sha256)
