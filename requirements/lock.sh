#!/usr/bin/env bash
# Renews cpu.lock from pyproject.toml (needs uv). torch is left out: setup installs it first, as a CPU build.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile pyproject.toml --extra web --extra train --extra serve-cpu --extra local --extra dev \
  --override requirements/overrides.txt --universal --python-version 3.11 --generate-hashes \
  --no-emit-package torch --no-emit-package torchvision --no-emit-package torchaudio --no-emit-package torchcodec \
  --no-emit-index-url --no-emit-find-links --custom-compile-command requirements/lock.sh --quiet \
  --output-file requirements/cpu.lock "$@"
