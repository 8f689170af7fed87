"""`python manage.py base_model_add <hub id or local folder>`: enter a base model in the catalogue."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.adapters.base_models import base_model_add
from webapp.config.faults import UserFault


class Command(BaseCommand):
    help = "Check a base model (architecture, chat template, memory, licence) and enter it in the catalogue."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "source", help="a hub id such as HuggingFaceTB/SmolLM2-360M-Instruct, or a local folder"
        )
        parser.add_argument(
            "--revision", help="a hub revision; without it the newest, or the one in the catalogue"
        )
        parser.add_argument(
            "--license", dest="licence", help="for a model without a card, or to confirm its terms"
        )
        parser.add_argument("--label", help="a sentence shown wherever the model answers")
        parser.add_argument(
            "--default", action="store_true", help="what the engine serves, and a job is offered first"
        )
        parser.add_argument(
            "--elsewhere", action="store_true", help="engine and trainer run on other machines than this"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            base, new = base_model_add(
                source=options["source"],
                revision=options["revision"],
                licence=options["licence"],
                label=options["label"],
                make_default=options["default"],
                elsewhere=options["elsewhere"],
            )
        except UserFault as fault:
            raise CommandError(fault.message) from None
        said = {
            "name": base.name,
            "added": new,
            "default": base.is_default,
            "architecture": base.architecture,
            "license": base.license,
            "memory_bytes": base.memory_bytes,
        }
        self.stdout.write(json.dumps(said, indent=1))
