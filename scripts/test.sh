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
# Three workers on two cores: much of the time a test waits for a process or a socket.
status=0
"$python" -m pytest -n "${PADDOCK_TEST_WORKERS:-3}" --dist worksteal "$@" || status=$?
[ "$status" = 1 ] || exit "$status"

# Thousands of tests with real processes, servers and kills at once can starve one of them of the machine. What failed
# gets one more try by itself, and is named, so that nobody takes it for sound; what fails again is broken.
few=12
# Parts of a test (subtests) fail without their test being remembered: then nothing can be tried again.
failed=$("$python" -c '
import json, pathlib
cache = pathlib.Path(".pytest_cache/v")
again = len(json.loads((cache / "cache/lastfailed").read_text()))
first = json.loads((cache / "paddock/first_try").read_text())
print(again if again >= first["failed"] + first["error"] else 1_000_000)' 2>/dev/null || echo "$((few + 1))")
if [ "$failed" -gt "$few" ]; then
  exit 1
fi
say "once more, alone, what failed among the others:"
if PADDOCK_SECOND_TRY=1 "$python" -m pytest -n 0 --last-failed --last-failed-no-failures none -v; then
  say "all tests passed; those just named only when they had the machine for themselves: they want a look"
else
  exit 1
fi
