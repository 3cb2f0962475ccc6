"""The R that a sandbox has is any program of that name: one that never answers must not be waited for for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.interpreter.inside import kernels, r_kernel
from paddock.interpreter.inside.kernels import CannotStart


async def test_an_r_that_does_not_answer_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where the time that it gets can be short."""
    program, pid = tmp_path / "R", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setattr(kernels, "ADDONS", str(tmp_path / "nothing"))
    monkeypatch.setattr(r_kernel, "START_SECONDS", 0.5)
    with pytest.raises(CannotStart, match="R does not answer"):
        await r_kernel.RKernel(str(tmp_path)).start()
    assert not Path(f"/proc/{pid.read_text().strip()}/exe").exists()
