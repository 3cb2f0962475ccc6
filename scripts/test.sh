#!/bin/sh
# Runs every test. Gets what does not come from PyPI (a PostgreSQL server, a C compiler, a browser), or says how to.
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
if ! command -v cc >/dev/null 2>&1 || ! command -v make >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "the C compiler is missing, with which the tests build the agent and its sanitized twin; installing it"
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev make >/dev/null
  else
    say "The tests build the agent and its sanitized twin with the system's C compiler."
    say "Debian or Ubuntu: sudo apt-get install gcc libc6-dev make"
    exit 1
  fi
fi
if ! "$python" -c 'import sys; from tests.gateway.browser import CHROMIUM; sys.exit(CHROMIUM is None)' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "Chromium is missing, in which the tests play hostile pages; installing it"
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null ||
      say "there is no package of it here: those tests will be skipped"
  else
    say "Without Chromium the tests that play hostile pages are skipped. Debian: sudo apt-get install chromium"
  fi
fi
# Servers start hundreds of times: let them keep what Python compiled.
unset PYTHONDONTWRITEBYTECODE
# Of all tests many need other people's programs: what takes longest is begun now, and locked until it is whole.
if [ $# = 0 ]; then
  "$python" -m tests.support.installs >/dev/null 2>&1 &
  installs=$!
  trap 'kill "$installs" 2>/dev/null || true' EXIT
  trap 'exit 130' INT TERM
fi
# Four workers on two cores: much of the time a test waits for a process or a socket.
"$python" -m pytest -n "${PADDOCK_TEST_WORKERS:-4}" --dist worksteal "$@"
