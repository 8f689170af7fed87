"""Which queued jobs can be trained in one batch with another: small ones of its base and recipe, never tried before.

The trainer computes each as it would alone (training_jobs.sft_together). A job that failed once, or goes on from a
checkpoint, is trained alone: what ends a trainer must not end it for others again and again.
"""

from django.db.models import Q, QuerySet

from webapp.jobs.models import Job, Outbox
from webapp.jobs.turns import waiting

#: Assistant turns of its training file, and passes over them: the steps of larger jobs fill a GPU without others, and
#: nobody is done before the longest is.
MOST_EXAMPLES, MOST_EPOCHS = 200, 10


def fit_together(job: Job) -> QuerySet[Outbox]:
    """The lines of the queued jobs that fit to `job`, which has just left the queue; none if it is not such a job."""
    alike = waiting({job.base.name}).filter(_suits(prefix="job__"), job__recipe=job.recipe)
    return alike if Job.objects.filter(_suits(prefix=""), id=job.id).exists() else alike.none()


def _suits(*, prefix: str) -> Q:
    suits = {
        "recipe__position": "prefill",
        "training_file__examples_count__lte": MOST_EXAMPLES,
        "validation_file": None,
        "hyperparameters__n_epochs__lte": MOST_EPOCHS,
        "failed_attempts": 0,
        "checkpoint__isnull": True,
    }
    pairs = Q(**{f"{prefix}hyperparameters__has_key": "beta"})
    return Q(**{f"{prefix}{name}": value for name, value in suits.items()}) & ~pairs
