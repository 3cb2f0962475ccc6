#!/bin/sh
# Chooses versions anew and writes the lock files. Needs `uv` in the environment given as the first argument.
set -eu
bin=$1
kit=src/paddock/interpreter/kit.lock
"$bin/python" -m pip install --quiet uv
compile() { "$bin/uv" pip compile -q --universal --generate-hashes --no-header --no-annotate "$@" ${UPGRADE---upgrade}; }
compile pyproject.toml --python-version 3.11 --group dev -o requirements-dev.lock
compile pyproject.toml --python-version 3.11 --group build -c requirements-dev.lock -o requirements.lock
compile --python-version 3.11 --group compiler -o requirements-zig.lock
# What sandboxes get, whose Python may be older. The same packages are left out as by LEFT_OUT of kit.py.
compile --python-version 3.9 --group kit --no-emit-package debugpy --no-emit-package jedi --no-emit-package parso \
  --no-emit-package tzdata -o "$kit"
