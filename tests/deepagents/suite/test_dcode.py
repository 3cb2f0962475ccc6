"""The real ``dcode`` with Paddock among its sandboxes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deepagents_code.integrations.sandbox_factory import create_sandbox
from deepagents_code.integrations.sandbox_registry import SandboxRegistry

from paddock.client import SyncSandboxClient


def test_the_registry_lists_it_with_what_it_can() -> None:
    registry = SandboxRegistry.load()
    assert "paddock" in registry.available_providers()
    metadata = registry.get_metadata("paddock")
    assert metadata is not None and metadata.working_dir == "/workspace" and metadata.supports_sandbox_id


def test_the_command_line_names_it() -> None:
    program = Path(sys.executable).with_name("dcode")
    ran = subprocess.run([program, "--sandbox", "nonesuch", "-n", "hello"], capture_output=True, text=True, timeout=500)
    assert "paddock" in ran.stdout + ran.stderr


def test_a_run_has_a_sandbox_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    setup = tmp_path / "setup.sh"
    setup.write_text("echo prepared > /workspace/setup")
    with create_sandbox("paddock", setup_script_path=str(setup)) as backend:
        assert backend.execute("cat setup").output == "prepared\n"
    with SyncSandboxClient() as client:
        assert client.get_status(backend.id).status == "deleted"


def test_a_sandbox_that_was_named_is_kept() -> None:
    with SyncSandboxClient() as client:
        box = client.create_sandbox("dcode")
        with create_sandbox("paddock", sandbox_id=box.sandbox_id) as backend:
            assert backend.id == box.sandbox_id
        assert client.get_status(box.sandbox_id).status == "running"
        client.delete_sandbox(box.sandbox_id)
