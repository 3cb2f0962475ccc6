#!/bin/sh
# Holds every provider to the same promises (tests/conformance) and writes docs/providers.md from what was found; then runs
# what else only happens where there is an engine or gVisor: the Docker provider's own tests, kills of a server on it, guests,
# and the whole escape suite on containers and guests.
# Starts a Docker engine for itself. What a machine lacks (an engine, gVisor) is got where we may, else left out.
set -eu
python=${PYTHON:-python3}
report=build/conformance.xml

say() { printf '%s\n' "paddock: $*" >&2; }

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  for pair in dockerd:docker.io runsc:runsc nft:nftables; do
    command -v "${pair%%:*}" >/dev/null 2>&1 && continue
    say "${pair%%:*} is missing; installing ${pair##*:}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${pair##*:}" >/dev/null || say "it cannot be had; left out"
  done
fi

home=$(mktemp -d)
engine=
leave() {
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  rm -rf "$home"
}
trap leave EXIT
trap 'exit 130' INT TERM

if [ -z "${DOCKER_HOST:-}" ] && [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null 2>&1; then
  port=$("$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  export DOCKER_HOST="unix://$home/docker.sock" PADDOCK_TEST_DOCKER_TCP="tcp://127.0.0.1:$port"
  set -- --data-root "$home/data" --exec-root "$home/exec" -p "$home/pid" --bridge=none --iptables=false
  if command -v runsc >/dev/null 2>&1; then
    set -- "$@" --add-runtime "runsc=$(command -v runsc)"
  fi
  dockerd "$@" -H "$DOCKER_HOST" -H "$PADDOCK_TEST_DOCKER_TCP" >"$home/log" 2>&1 &
  engine=$!
  say "waiting for a Docker engine of our own"
  "$python" - "$home/docker.sock" "$engine" <<'END' || { tail -5 "$home/log" >&2; exit 1; }
import os, socket, sys, time
until = time.monotonic() + 90
while time.monotonic() < until:
    os.kill(int(sys.argv[2]), 0)
    try:
        socket.socket(socket.AF_UNIX).connect(sys.argv[1])
        sys.exit()
    except OSError:
        time.sleep(0.1)
sys.exit("it does not listen")
END
fi

mkdir -p build
status=0
PADDOCK_TEST_VENDOR=all "$python" -m pytest tests/conformance -n "${PADDOCK_TEST_WORKERS:-3}" --dist worksteal \
  -q --junitxml "$report" || status=$?
"$python" -m tests.conformance.capabilities "$report"
say "docs/providers.md is written"
"$python" -m pytest -n "${PADDOCK_TEST_WORKERS:-3}" --dist worksteal -q tests/docker tests/local/test_gvisor.py \
  tests/local/test_guest_ending.py || status=$?
# One after the other: what one bomb does to the others is measured.
"$python" -m pytest -q tests/escape/test_attempts.py tests/escape/test_server.py tests/escape/test_doctor.py \
  -k "docker or hardened or containers or level" || status=$?
CHAOS_KILLS=${CHAOS_KILLS:-15} "$python" -m pytest -q tests/chaos/test_kill_the_server.py -k docker || status=$?
exit "$status"
