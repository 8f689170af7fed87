#!/usr/bin/env bash
# Renews cpu.lock from pyproject.toml (needs uv). torch is left out: setup installs it first, as a CPU build.
# What overrides.txt switches off, and what only those packages wanted, is left out as well.
set -euo pipefail
cd "$(dirname "$0")/.."
absent=(torch torchvision torchaudio torchcodec triton llm llm-llama-cpp llama-cpp-python
        click-default-group condense-json diskcache pip puremagic python-ulid sqlite-fts4 sqlite-utils tabulate)
uv pip compile pyproject.toml --extra web --extra train --extra serve-cpu --extra local --extra dev \
  --override requirements/overrides.txt --universal --python-version 3.11 --generate-hashes \
  "${absent[@]/#/--no-emit-package=}" \
  --no-emit-index-url --no-emit-find-links --custom-compile-command requirements/lock.sh --quiet \
  --output-file requirements/cpu.lock "$@"
if grep -n "sys_platform == 'never'" requirements/cpu.lock; then
  echo "These are never installed: add them to 'absent' in requirements/lock.sh." >&2
  exit 1
fi
