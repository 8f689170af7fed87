#!/usr/bin/env bash
# make check: style, types, architecture, migrations, compose file. Every check runs; one failure fails the whole.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python
failed=()

check() { # check WHAT COMMAND...
  local what=$1 began=$SECONDS output
  shift
  if output=$("$@" 2>&1); then
    printf '  %-34s ok  (%d s)\n' "$what" $((SECONDS - began))
  else
    printf '  %-34s FAILED\n%s\n' "$what" "$output"
    failed+=("$what")
  fi
}

migrations() {
  local folder code=0
  folder=$(mktemp -d) && chmod 755 "$folder"
  $python -m local_stack up --fast --home "$folder" --parts postgres,valkey,s3 \
    --once $python manage.py makemigrations --check --dry-run || code=$?
  rm -rf "$folder"
  return $code
}

check "ruff" $python -m ruff check --quiet .
check "ruff format" $python -m ruff format --check --quiet .
check "mypy (strict where parts meet)" $python -m mypy
check "import-linter (architecture)" .venv/bin/lint-imports
check "migrations are complete" migrations

for profile in cpu gpu; do
  if docker compose version >/dev/null 2>&1; then
    check "compose file, profile $profile" docker compose --env-file .env.example --profile $profile config --quiet
  elif command -v docker-compose >/dev/null; then
    check "compose file, profile $profile" docker-compose --env-file .env.example --profile $profile config --quiet
  else
    printf '  %-34s skipped: neither docker compose nor docker-compose is installed\n' "compose file, profile $profile"
  fi
done

if [ ${#failed[@]} -gt 0 ]; then
  printf '\nFailed: %s\n' "$(IFS=,; echo "${failed[*]}")"
  exit 1
fi
