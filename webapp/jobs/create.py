"""Making a job: what was asked for becomes a recipe, and the row and its outbox line are one transaction."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import transaction

from adapters_store.names import Method, Position
from adapters_store.preft.config import TargetModule
from training_jobs.messages import (
    DEFAULT_BETA,
    DEFAULTS,
    HELD_OUT_SHARE,
    Hyperparameters,
    JobType,
    Recipe,
    auto_epochs,
)
from webapp.adapters.models import BaseModel
from webapp.config.faults import BadRequest
from webapp.config.settings import settings
from webapp.datasets.formats import preferences
from webapp.datasets.models import File, FileStatus
from webapp.jobs.events import event_add
from webapp.jobs.models import Job, Outbox
from webapp.tenants.models import EndUser, Tenant

Auto = Literal["auto"]


@dataclass(frozen=True)
class Wishes:
    """What a caller may choose; "auto" and None are decided here. `learning_rate_multiplier` is OpenAI's.

    `beta` is of no meaning but for the type dpo.
    """

    type: JobType = "supervised"
    method: Method = "direft"
    position: Position = "prefill"
    rank: int | None = None
    alpha: float | None = None
    target_modules: Sequence[TargetModule] | None = None
    layers: Sequence[int] | Literal["all"] = "all"
    n_epochs: int | Auto = "auto"
    batch_size: int | Auto = "auto"
    learning_rate_multiplier: float | Auto = "auto"
    beta: float | Auto = "auto"
    #: The share of conversations to judge by, if no validation file is named: 0 to HELD_OUT_MOST_SHARE.
    held_out: float | None = None
    #: As the caller wrote it, to show it again.
    asked: dict[str, Any] = field(default_factory=dict)


@transaction.atomic
def job_create(
    *,
    tenant: Tenant,
    base: BaseModel,
    training_file: File,
    validation_file: File | None = None,
    end_user: EndUser | None = None,
    wishes: Wishes | None = None,
    suffix: str = "",
    seed: int | None = None,
    metadata: dict[str, str] | None = None,
) -> Job:
    """A job in the state `validating`; the dispatcher takes it from there.

    `end_user` None makes a tenant-wide adapter. All rows are the tenant's (ids of others never get this far). Raises
    BadRequest for a file that cannot be trained on.
    """
    wishes = wishes or Wishes()
    for row in (training_file, validation_file, end_user):
        assert row is None or row.tenant_id == tenant.id, "a job's rows belong to its tenant"
    # Locked, so that the files are not deleted in between.
    ids = [file.id for file in (training_file, validation_file) if file]
    locked = {file.id: file for file in File.objects.select_for_update().filter(id__in=ids).order_by("id")}
    training_file = locked[training_file.id]
    _check_file(training_file, "training_file")
    _check_type(training_file, wishes.type)
    if validation_file is not None:
        validation_file = locked[validation_file.id]
        _check_file(validation_file, "validation_file")
        if validation_file.job_type != training_file.job_type:
            raise BadRequest(
                "Of training and validation file one holds preference pairs and the other does not. What is learned "
                "from pairs is judged by pairs.",
                code="method_mismatch",
                param="validation_file",
            )
        if validation_file.conversations_sha256 == training_file.conversations_sha256:
            raise BadRequest(
                "Training and validation file hold the same conversations, so validation would say nothing.",
                code="same_file",
                param="validation_file",
            )
        if wishes.held_out:
            raise BadRequest(
                "Name a validation file, or a share of the training file to hold out, not both.",
                code="invalid_value",
                param="held_out",
            )
    seed = secrets.randbelow(2**31) if seed is None else seed
    recipe, hyperparameters = _decide(wishes, training_file.examples_count, seed, base)
    job = Job.objects.create(
        tenant=tenant,
        end_user=end_user,
        base=base,
        training_file=training_file,
        validation_file=validation_file,
        suffix=suffix,
        metadata=metadata or {},
        requested=wishes.asked,
        recipe=recipe.model_dump(mode="json", exclude_none=True),
        hyperparameters=hyperparameters.model_dump(exclude_none=True),
        seed=seed,
        held_out_share=HELD_OUT_SHARE if wishes.held_out is None else wishes.held_out,
    )
    Outbox.objects.create(tenant=tenant, job=job)
    where = f" of {', '.join(recipe.target_modules)}" if recipe.target_modules else ""
    if recipe.layers:
        where += f" in layers {', '.join(map(str, recipe.layers))}"
    by = f", by preferences (beta {hyperparameters.beta:g})" if hyperparameters.beta else ""
    event_add(
        job=job, message=f"Job created: {recipe.method} ({recipe.position}){where}, rank {recipe.rank}{by}."
    )
    return job


def _check_file(file: File, param: str) -> None:
    if file.deleted_at is not None:
        raise BadRequest("This file was deleted.", code="file_deleted", param=param)
    if file.status != FileStatus.PROCESSED or not file.conversations_sha256:
        why = file.report.get("error") or "It holds no conversations."
        raise BadRequest(f"This file cannot be trained on. {why}", code="invalid_training_file", param=param)


def _check_type(file: File, asked: JobType) -> None:
    if file.job_type == asked:
        return
    if asked == "dpo":
        why = (
            "Training by preferences (dpo) needs preference pairs, and this file holds none. Write each row as "
            f"{preferences.KEYS}, or leave `method` out to learn from the answers."
        )
    else:
        why = (
            "This file holds preference pairs, from which supervised training cannot learn. Ask for "
            '`method={"type": "dpo"}`, or write each row as {"messages": […]} with the preferred answer as the last '
            "message."
        )
    raise BadRequest(why, code="method_mismatch", param="method.type")


def _decide(wishes: Wishes, examples: int, seed: int, base: BaseModel) -> tuple[Recipe, Hyperparameters]:
    defaults = DEFAULTS[wishes.method]
    batch_size = wishes.batch_size
    if batch_size == "auto":
        batch_size = min(defaults.batch_size, max(1, examples))
    multiplier = 1.0 if wishes.learning_rate_multiplier == "auto" else wishes.learning_rate_multiplier
    epochs = wishes.n_epochs
    if epochs == "auto":
        epochs = auto_epochs(wishes.method, examples=examples, batch_size=batch_size)
    usual = defaults.learning_rate(wishes.type)
    learning_rate = usual * multiplier
    if not 0 < learning_rate <= 1:
        raise BadRequest(
            f"learning_rate_multiplier must be above 0 and at most {1 / usual:.0f}.",
            code="invalid_value",
            param="learning_rate_multiplier",
        )
    highest = settings().max_rank
    rank = wishes.rank or min(defaults.rank, highest)
    if rank > highest:
        raise BadRequest(
            f"Adapters are served up to rank {highest} here. Ask for that or a lower one.",
            code="adapter_rank_too_high",
            param="adapter.rank",
        )
    recipe = Recipe(
        method=wishes.method,
        position=wishes.position,
        rank=rank,
        target_modules=tuple(wishes.target_modules) if wishes.target_modules else None,
        layers=None if wishes.layers == "all" else tuple(wishes.layers),
        **({} if wishes.alpha is None else {"alpha": wishes.alpha}),
    )
    if base.layers is not None:
        try:
            recipe.check_layers(base.layers)
        except ValueError as error:
            raise BadRequest(str(error), code="invalid_value", param="adapter.layers") from None
    beta = DEFAULT_BETA if wishes.beta == "auto" else wishes.beta
    return recipe, Hyperparameters(
        n_epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        beta=beta if wishes.type == "dpo" else None,
    )
