#!/usr/bin/env bash
# Renews the locks from pyproject.toml (needs uv): cpu.lock is everything, for the local stack; the others are subsets
# of it for the images. torch is left out: it is installed first, as the build that the machine wants. torch-cpu.lock has
# the CPU's, by hand.
# What overrides.txt switches off, and what only those packages wanted, is left out as well.
set -euo pipefail
cd "$(dirname "$0")/.."
absent=(torch torchvision torchaudio torchcodec triton llm llm-llama-cpp llama-cpp-python
        click-default-group condense-json diskcache pip puremagic python-ulid sqlite-fts4 sqlite-utils
        rouge-score absl-py defusedxml nltk sqlitedict word2number scikit-learn joblib narwhals scipy threadpoolctl)

lock() { # lock FILE UV-OPTIONS...
  local file=requirements/$1
  shift
  uv pip compile pyproject.toml --override requirements/overrides.txt --universal --python-version 3.11 \
    --generate-hashes "${absent[@]/#/--no-emit-package=}" --no-emit-index-url --no-emit-find-links \
    --custom-compile-command requirements/lock.sh --quiet --output-file "$file" "$@"
  if grep -n "sys_platform == 'never'" "$file"; then
    echo "These are never installed: add them to 'absent' in requirements/lock.sh." >&2
    exit 1
  fi
}

lock cpu.lock --extra web --extra train --extra eval --extra serve-cpu --extra local --extra dev "$@"
lock web.lock --extra web --constraint requirements/cpu.lock "$@"
lock trainer.lock --extra train --constraint requirements/cpu.lock "$@"
lock engine-cpu.lock --extra serve-cpu --constraint requirements/cpu.lock "$@"
