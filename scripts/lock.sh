#!/bin/sh
# Chooses versions anew and writes the lock files. Needs `uv` in the environment given as the first argument.
set -eu
bin=$1
"$bin/python" -m pip install --quiet uv
compile() { "$bin/uv" pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 "$@"; }
compile pyproject.toml --group dev -o requirements-dev.lock --upgrade
compile pyproject.toml --extra interpreter --extra mcp --group build -c requirements-dev.lock -o requirements.lock --upgrade
compile --group compiler -o requirements-zig.lock --upgrade
