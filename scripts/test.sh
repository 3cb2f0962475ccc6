#!/bin/sh
# Runs every test. Gets the one thing that does not come from PyPI, a PostgreSQL server, or says how to.
set -eu
python=${PYTHON:-python3}

say() { printf '%s\n' "paddock: $*" >&2; }

if ! "$python" -c 'from tests.support.postgres import find_binaries; find_binaries()' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "PostgreSQL is missing; installing it"
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
  else
    say "The tests need a PostgreSQL server, which they start themselves."
    say "Debian or Ubuntu: sudo apt-get install postgresql"
    exit 1
  fi
fi
exec "$python" -m pytest -n 2 --dist worksteal "$@"
