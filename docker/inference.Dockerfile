# Stock vLLM with Attune's plugin. Build from the repository's root:
#   docker build -f docker/inference.Dockerfile --target cpu  -t attune-engine:cpu  .
#   docker build -f docker/inference.Dockerfile --target cuda -t attune-engine:cuda .
FROM python:3.11.14-slim-bookworm AS cpu
RUN apt-get update \
 && apt-get install -y --no-install-recommends libnuma1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home --shell /usr/sbin/nologin attune \
 && install -d -o attune -g attune /cache \
 && python -m venv /venv
ENV PATH=/venv/bin:$PATH
COPY requirements/torch-cpu.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes --index-url https://download.pytorch.org/whl/cpu \
    -r /tmp/torch-cpu.lock
COPY requirements/engine-cpu.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/engine-cpu.lock
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY adapters_store adapters_store
COPY inference inference
# Installed, not only copied: vLLM finds the plugin by its entry point.
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
ENV PYTHONUNBUFFERED=1 HOME=/cache XDG_CACHE_HOME=/cache ATTUNE_MODELS_DIR=/models \
    ATTUNE_ADAPTER_CACHE_DIR=/cache/adapters ATTUNE_ENGINE_HOST=0.0.0.0 ATTUNE_ENGINE_PORT=8100 \
    VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
USER attune
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8100/health', timeout=4)"]
CMD ["python", "-m", "inference.serve"]

FROM vllm/vllm-openai:v0.32.0 AS cuda
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attune \
 && install -d -o attune -g attune /cache
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY adapters_store adapters_store
COPY inference inference
RUN python3 -m pip install --no-cache-dir ".[plugin]" "boto3>=1.43"
ENV PYTHONUNBUFFERED=1 HOME=/cache XDG_CACHE_HOME=/cache ATTUNE_MODELS_DIR=/models \
    ATTUNE_ADAPTER_CACHE_DIR=/cache/adapters ATTUNE_ENGINE_HOST=0.0.0.0 ATTUNE_ENGINE_PORT=8100 \
    VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
USER attune
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=600s --retries=3 \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8100/health', timeout=4)"]
ENTRYPOINT []
CMD ["python3", "-m", "inference.serve"]
