"""A Docker-compatible engine for the tests, where there is one, with images that are made here and need no registry."""

from __future__ import annotations

import fcntl
import functools
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import errors
from paddock.providers.docker.address import Address

DEBIAN = "paddock-test-debian:2"
SCRATCH = "paddock-test-scratch:1"
RUNTIME = os.environ.get("PADDOCK_TEST_DOCKER_RUNTIME", "")
"""For those who are reached through the engine alone."""
_PACKAGES = "ca-certificates,procps,python3"
_HELLO = r"""
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    printf("hello from uid %d in %s\n", (int)getuid(), getcwd((char[256]){0}, 256));
    return count > 1 ? words[1][0] - '0' : 0;
}
"""


def address() -> Address:
    """Of an engine that answers, with the images; else the test is skipped, at once, and says why."""
    reason = _missing()
    if reason is not None:
        pytest.skip(reason)
    return Address.parse(os.environ.get("DOCKER_HOST", ""))


def far_address() -> Address:
    """Of the same engine, by the network where ``PADDOCK_TEST_DOCKER_TCP`` says how."""
    near = address()
    given = os.environ.get("PADDOCK_TEST_DOCKER_TCP")
    return Address.parse(given) if given else near


def call(method: str, path: str, **more: Any) -> httpx.Response:
    """The engine itself, past the provider: to look, and to do what somebody else would."""
    with connection(Address.parse(os.environ.get("DOCKER_HOST", ""))) as client:
        return client.request(method, path, **more)


def containers(label: str) -> list[dict[str, Any]]:
    found = call("GET", "/containers/json", params={"all": 1, "filters": f'{{"label": ["{label}"]}}'})
    return list(found.json())


def silent() -> str | None:
    """Why no engine answers. Other than for ``address`` no images are made for this."""
    try:
        with connection(Address.parse(os.environ.get("DOCKER_HOST", ""))) as client:
            client.get("/_ping", timeout=5).raise_for_status()
    except (errors.PaddockError, httpx.HTTPError, OSError) as error:
        return f"no Docker engine answers here: {error}"
    return None


@functools.cache
def _missing() -> str | None:
    try:
        place = Address.parse(os.environ.get("DOCKER_HOST", ""))
        with connection(place) as client:
            client.get("/_ping", timeout=0.5).raise_for_status()
            return _without_images(client)
    except (errors.PaddockError, httpx.HTTPError, OSError) as error:
        return f"no Docker engine answers here: {error}"


def connection(place: Address) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=place.socket)
    return httpx.Client(transport=transport, base_url=place.url, timeout=120, trust_env=False)


def _without_images(client: httpx.Client) -> str | None:
    """One builder at a time, and each image once for an engine."""
    with Path(tempfile.gettempdir(), f"paddock-test-images-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, make in ((DEBIAN, _debian), (SCRATCH, _scratch)):
            if client.get(f"/images/{name}/json").status_code == 200:
                continue
            made = make()
            if isinstance(made, str):
                return made
            repo, _, tag = name.partition(":")
            given = {"fromSrc": "-", "repo": repo, "tag": tag}
            client.post("/images/create", params=given, content=io.BytesIO(made)).raise_for_status()
    return None


def _debian() -> bytes | str:
    tool = shutil.which("mmdebstrap")
    if tool is None:
        return "an image for the tests is made by mmdebstrap, which is not here"
    command = [tool, "--quiet", "--variant=minbase", f"--include={_PACKAGES}", "--format=tar", "bookworm", "-"]
    done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    return done.stdout if done.returncode == 0 else f"mmdebstrap did not succeed: {done.stderr[-300:]!r}"


def _scratch() -> bytes | str:
    """Nothing but one static program."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "no C compiler for the program of an image that holds nothing else"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "hello.c"), Path(folder, "hello")
        source.write_text(_HELLO)
        subprocess.run([compiler, "-static", "-o", str(program), str(source)], check=True, timeout=120)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(program, "hello")
        return packed.getvalue()
