"""Django's settings. What an operator may change is in `settings.py`; here is what follows from it."""

from urllib.parse import urlsplit

from webapp.config.database import database
from webapp.config.logs import configure_logs
from webapp.config.settings import settings

_settings = settings()
_public = urlsplit(_settings.public_url)

SECRET_KEY = _settings.secret_key.get_secret_value()
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", _public.hostname or "localhost"]
ALLOWED_HOSTS += [host.strip() for host in _settings.allowed_hosts.split(",") if host.strip()]
ROOT_URLCONF = "webapp.config.urls"
ASGI_APPLICATION = "webapp.config.asgi.application"
# A redirect would turn a client's POST into a GET without a body.
APPEND_SLASH = False

INSTALLED_APPS = [
    # First, so that its `migrate` is the one that runs.
    "webapp.config",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "webapp.tenants",
    "webapp.adapters",
    "webapp.datasets",
    "webapp.jobs",
    "webapp.usage",
    "webapp.chat",
    "webapp.api",
    "webapp.dashboard",
]
# All of these run under ASGI without a thread, so that a chat stream does not hold one.
MIDDLEWARE = [
    "webapp.config.request_ids.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "webapp.config.headers.ContentSecurityMiddleware",
    "webapp.config.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# A pool, because each request under ASGI runs in a thread of its own and would connect anew.
DATABASES = {"default": database(_settings.database_url, pool={"min_size": 1, "max_size": 20, "timeout": 10})}
if _settings.database_owner_url is not None:
    DATABASES["owner"] = database(_settings.database_owner_url)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "tenants.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"

_https = _public.scheme == "https"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]
# A proxy in front says so in this header; without https in ATTUNE_PUBLIC_URL nobody is believed.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SILENCED_SYSTEM_CHECKS = [
    "security.W005",  # HSTS for subdomains, and
    "security.W021",  # preloading: not ours to decide for the operator's whole domain
    "security.W008",  # the proxy that terminates TLS redirects
    "security.W009",  # the secret key's length is checked in settings.py
]

STATIC_URL = "/static/"
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# A part larger than this goes to a temporary file while it arrives. JSON bodies are never larger.
FILE_UPLOAD_MAX_MEMORY_SIZE = 1_000_000
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "webapp.config.uploads.UnnamedFileUploadHandler",
]
DATA_UPLOAD_MAX_MEMORY_SIZE = 4_000_000

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-gb"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["webapp.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["webapp.api.renderers.JsonRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "webapp.api.renderers.IgnoreAccept",
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "webapp.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Attune",
    "DESCRIPTION": "A model of one's own for every user. Speaks the OpenAI client's language.",
    "VERSION": "0.1.0",
    "SCHEMA_PATH_PREFIX": "/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "webapp.api.schema.add_chat",
    ],
}

LOGGING_CONFIG = None
configure_logs(_settings.log_level)
