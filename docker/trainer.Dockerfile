# A training worker for CPU or for NVIDIA GPUs. Build from the repository's root:
#   docker build -f docker/trainer.Dockerfile --build-arg TORCH=cpu  -t attune-trainer:cpu  .
#   docker build -f docker/trainer.Dockerfile --build-arg TORCH=cuda -t attune-trainer:cuda .
ARG TORCH=cpu

FROM python:3.11.14-slim-bookworm AS base
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attune \
 && install -d -o attune -g attune /work \
 && python -m venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONPATH=/app ATTUNE_MODELS_DIR=/models ATTUNE_WORK_DIR=/work

FROM base AS cpu
COPY requirements/torch-cpu.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes --index-url https://download.pytorch.org/whl/cpu \
    -r /tmp/torch-cpu.lock

FROM base AS cuda
# The ordinary wheel carries its own CUDA libraries, which are not locked; the host brings the driver.
RUN pip install --no-cache-dir --only-binary :all: torch==2.13.0

FROM ${TORCH}
COPY requirements/trainer.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/trainer.lock
WORKDIR /app
COPY adapters_store adapters_store
COPY training_jobs training_jobs
USER attune
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=3 \
  CMD ["sh", "-c", "celery -A training_jobs.app inspect ping --destination trainer@$(hostname) --timeout 10"]
# Asked to stop, a worker leaves a checkpoint and gives its job back; allow it 30 seconds.
CMD ["python", "-m", "training_jobs"]
