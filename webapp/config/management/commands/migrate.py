"""`python manage.py migrate`: Django's own, run as the role that owns the tables."""

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangoMigrate
from django.db import connections

from webapp.config.database import grant_to_web
from webapp.config.settings import settings


class Command(DjangoMigrate):
    help = "Bring the tables up to date as the role of ATTUNE_DATABASE_OWNER_URL, and let the web's role use them."

    def handle(self, *args: Any, **options: Any) -> None:
        owner_url = settings().database_owner_url
        if owner_url is None:
            raise CommandError("Set ATTUNE_DATABASE_OWNER_URL: the web's own role may not change tables.")
        super().handle(*args, **(options | {"database": "owner"}))
        connections["owner"].close()
        grant_to_web(owner_url=owner_url, web_url=settings().database_url)
