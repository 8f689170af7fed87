"""`uvicorn webapp.config.asgi:application`. Starting is refused with a sentence when the database role owns tables."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.django")
_django = get_asgi_application()

# Only now, because Django has to be set up first.
from webapp.config.body_limit import BodyLimit  # noqa: E402
from webapp.config.database import assert_owns_nothing  # noqa: E402
from webapp.config.settings import settings  # noqa: E402

assert_owns_nothing(settings().database_url)
application = BodyLimit(_django, limit=settings().max_upload_bytes)
