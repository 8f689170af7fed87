#!/usr/bin/env bash
# Makes .venv and the demo model, or finds in a few milliseconds that they are as they should be.
#   setup.sh            packages and demo model
#   setup.sh browser    Chromium for the browser tests
set -euo pipefail
cd "$(dirname "$0")/../.."

home=${ATTUNE_HOME:-$PWD/.attune}
venv=$PWD/.venv
model=$home/models/smollm2-135m-instruct
stamp=$venv/.setup-stamp
log=$home/logs/setup.log
inputs=(requirements/cpu.lock requirements/torch-cpu.lock pyproject.toml local_stack/setup/setup.sh local_stack/demo_model.py)

say() { printf "%s\n" "$@"; }

# A step that takes its time: its output goes to the log, a counter of packages to the reader.
quietly() { # quietly WHAT ADVICE COMMAND...
  local what=$1 advice=$2 began=$SECONDS
  shift 2
  say "  $what"
  if ! "$@" 2>&1 | tee -a "$log" | progress; then
    say "" "That did not work. The end of $log:"
    tail -n 12 "$log" | sed 's/^/    /'
    say "$advice"
    exit 1
  fi
  say "    done in $((SECONDS - began)) s"
}

progress() {
  awk -v total="$(grep -c '^[a-z0-9]' requirements/cpu.lock)" '
    /^(Collecting|Processing) / { if (++n % 25 == 0) { print "    " n " of " total " packages"; fflush() } }
    /^Installing collected packages/ { print "    unpacking"; fflush() }'
}

browser() {
  local found
  found=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
  if [ -n "$found" ]; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    mkdir -p "$(dirname "$log")"
    quietly "Chromium for the browser tests (about 70 s)" "Try: apt-get update && apt-get install -y chromium" \
      bash -c 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium'
  else
    say "The browser tests need Chromium and fail without it. This brings it:" \
      "" "    sudo apt-get update && sudo apt-get install -y chromium" ""
  fi
}

suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null && suitable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
}

wanted_stamp() { cat "${inputs[@]}" | sha256sum; }

complete() { [ -f "$model/config.json" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted_stamp)" ]; }

if [ "${1:-}" = browser ]; then
  browser
  exit
fi
if complete; then exit 0; fi

say "Setting up Attune in $PWD (about 5 minutes the first time, no root needed)."
python=$(find_python)
checker=${python:-$(command -v python3 || true)}
if [ -z "$checker" ]; then
  say "Python is missing. This brings it:" "" "    sudo apt-get update && sudo apt-get install -y python3 python3-venv" ""
  exit 1
fi
"$checker" local_stack/setup/check.py "$python" "$venv"

mkdir -p "$home/logs" "$home/models" || true
if ! [ -w "$home" ]; then
  say "The data folder $home cannot be written. Choose another one with ATTUNE_HOME."
  exit 1
fi
exec 9>"$home/setup.lock"
flock 9 # two `make` at once: the second waits and finds everything done
if complete; then
  say "Setup is complete."
  exit 0
fi
: >"$log"

if ! suitable "$venv/bin/python"; then
  quietly "Virtual environment (.venv) with $("$python" --version)" "Remove .venv and try again." \
    "$python" -m venv --clear "$venv"
fi
# pip unpacks 1.3 GB on the way; /tmp may be small and in memory.
export TMPDIR=$venv/tmp PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
mkdir -p "$TMPDIR"
# pip would compile 27,000 modules on one core.
pip=("$venv/bin/python" -m pip install --no-deps --no-compile --progress-bar off)
again="Check the network and pip's configuration (pip config list), then run make setup again: it goes on from here."

torch=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' requirements/torch-cpu.lock)
if [ "$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null)" != "$torch" ]; then
  # Only a CPU build: what plain `torch` would bring is several GB of CUDA. First from where pip is set up to look.
  say "  PyTorch $torch (about 200 MB)"
  if ! "${pip[@]}" --require-hashes -r requirements/torch-cpu.lock >>"$log" 2>&1; then
    quietly "the configured package sources have no CPU build; PyTorch's own has" "$again" \
      "${pip[@]}" --index-url https://download.pytorch.org/whl/cpu --require-hashes -r requirements/torch-cpu.lock
  fi
fi
quietly "Packages of requirements/cpu.lock (about 1 GB, 2 to 4 minutes)" "$again" \
  "${pip[@]}" --require-hashes -r requirements/cpu.lock
quietly "Attune itself" "$again" "${pip[@]}" --no-build-isolation --editable .
# Tests of packages are never run. Some files are templates: what does not compile is nothing to stop for.
quietly "Compiling the packages on all cores (about a minute)" "$again" \
  bash -c '"$1" -m compileall -qq -j 0 -x "/tests?/" "$2" || true' compile "$venv/bin/python" "$venv/lib"
rm -rf "$TMPDIR"
quietly "Demo model SmolLM2-135M-Instruct (about 30 s)" "Remove $model and try again." \
  "$venv/bin/python" -m local_stack.demo_model "$model"
wanted_stamp >"$stamp"
say "Setup is complete."
