# Web, dispatcher and migrations: no torch, no model weights. Build from the repository's root:
#   docker build -f docker/web.Dockerfile -t attune-web .
FROM python:3.11.14-slim-bookworm AS packages
RUN python -m venv /venv
COPY requirements/web.lock /tmp/
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r /tmp/web.lock

FROM python:3.11.14-slim-bookworm
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attune
COPY --from=packages /venv /venv
WORKDIR /app
COPY manage.py ./
COPY adapters_store adapters_store
COPY training_jobs/__init__.py training_jobs/conversation.py training_jobs/judged.py training_jobs/message.py \
     training_jobs/messages.py training_jobs/
COPY webapp webapp
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONPATH=/app
USER attune
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["uvicorn", "webapp.config.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-access-log", \
     "--timeout-graceful-shutdown", "10"]
