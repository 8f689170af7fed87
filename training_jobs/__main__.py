"""`python -m training_jobs`: one trainer for every base model in ATTUNE_MODELS_DIR."""

import sys

from training_jobs.app import app
from training_jobs.messages import queue_name
from training_jobs.settings import settings


def main() -> None:
    folder = settings().models_dir
    bases = sorted(
        path.parent.name for path in folder.glob("*/config.json") if (path.parent / "tokenizer.json").exists()
    )
    if not bases:
        sys.exit(
            f"{folder} holds no base model. Put a model's folder there, or point ATTUNE_MODELS_DIR at one that does."
        )
    queues = ",".join(queue_name(base) for base in bases)
    app.worker_main(
        [
            "worker",
            "-Q",
            queues,
            "-c",
            "1",
            "-n",
            "trainer@%h",
            "-l",
            "INFO",
            "--without-gossip",
            "--without-mingle",
        ]
    )


if __name__ == "__main__":
    main()
