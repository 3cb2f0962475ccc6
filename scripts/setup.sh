#!/bin/sh
# Makes the virtual environment and installs exactly what the lock file names. Says what is missing and how to get it.
set -eu
venv=$1
lock=$2
python=${PYTHON:-python3}

say() { printf '%s\n' "paddock: $*" >&2; }

if ! command -v "$python" >/dev/null 2>&1; then
  say "python3 is missing. Debian or Ubuntu: apt-get install python3 python3-venv"
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  say "Python 3.11 or newer is needed; $python is $("$python" -V 2>&1 | cut -d' ' -f2)."
  say "Install a newer one (Debian 12, Ubuntu 24.04 have it) and say: make PYTHON=python3.12 …"
  exit 1
fi
if [ ! -x "$venv/bin/pip" ]; then
  say "step 1 of 3: making the environment in $venv"
  rm -rf "$venv"
  if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
      say "python3-venv is missing; installing it with apt-get"
      if ! { apt-get update -qq && apt-get install -y -qq python3-venv; } >/dev/null 2>&1; then
        rm -rf "$venv"
        say "apt-get could not install python3-venv. Is this machine on the network? Try: apt-get install python3-venv"
        exit 1
      fi
      "$python" -m venv "$venv"
    else
      rm -rf "$venv"
      say "Python's venv module is missing. Debian or Ubuntu: sudo apt-get install python3-venv"
      exit 1
    fi
  fi
fi
# Comes with the environments of Python 3.11, and nothing here needs it.
"$venv/bin/python" -m pip uninstall --quiet --yes setuptools >/dev/null 2>&1 || true
log=$venv/install.log
say "step 2 of 3: fetching what $lock names (a minute or two the first time)"
"$venv/bin/python" scripts/install.py "$lock" "$log"
# The programs that make sandboxes are compiled here: by the system's C compiler, or by one that comes as a wheel.
if ! "$venv/bin/python" -c 'import hatch_build; hatch_build.find_compiler(both=False)' 2>/dev/null; then
  say "there is no C compiler that can link statically; fetching one into $venv (about 100 MB)"
  "$venv/bin/python" scripts/install.py requirements-zig.lock "$log"
fi
say "step 3 of 3: compiling the programs that run in sandboxes, and installing Paddock"
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  -e client -e . >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  say "Paddock itself could not be installed; what was said is in $log"
  exit 1
fi
# Bytecode of what a server imports, also for those who may not write into the environment.
"$venv/bin/python" -c 'import paddock.api.app, paddock.cli.app, paddock.client, paddock.mcp.server'
say "ready"
