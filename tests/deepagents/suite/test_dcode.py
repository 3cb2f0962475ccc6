"""The real ``dcode`` with Paddock among its sandboxes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from blockbuster import blockbuster_ctx
from deepagents_code.integrations.sandbox_factory import create_sandbox
from deepagents_code.integrations.sandbox_registry import SandboxRegistry
from scripted_model import Model, serving

from paddock.client import SyncSandboxClient
from paddock.deepagents import PaddockSandbox


def test_the_registry_lists_it_with_what_it_can() -> None:
    registry = SandboxRegistry.load()
    assert "paddock" in registry.available_providers()
    metadata = registry.get_metadata("paddock")
    assert metadata is not None and metadata.working_dir == "/workspace" and metadata.supports_sandbox_id


def test_the_command_line_names_it() -> None:
    program = Path(sys.executable).with_name("dcode")
    ran = subprocess.run([program, "--sandbox", "nonesuch", "-n", "hello"], capture_output=True, text=True, timeout=500)
    assert "paddock" in ran.stdout + ran.stderr


def test_the_words_of_the_older_command_line_have_the_counterparts_that_the_docs_name(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("dcode")
    env = {**os.environ, "HOME": str(tmp_path), "DEEPAGENTS_CODE_OFFLINE": "1"}

    def said(*words: str) -> str:
        ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=500, env=env)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert "-y, --auto-approve" in said("--help")
    assert "coder" in said("agents", "reset", "--agent", "coder", "--dry-run")


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


def test_a_run_with_a_model_works_in_a_sandbox_that_is_deleted_at_its_end(tmp_path: Path) -> None:
    """Its server is ended by a signal, so none of dcode's own exit handlers runs."""
    with SyncSandboxClient() as client:
        before = {box.sandbox_id for box in client.iter_sandboxes(user_id="dcode")}
    steps = [
        ("execute", {"command": "echo made > note.txt; pwd"}),
        ("write_file", {"file_path": "/workspace/second.txt", "content": "second\n"}),
        ("execute", {"command": "cat note.txt second.txt"}),
    ]
    model = Model(steps)
    with serving(model) as url:
        words = ["--sandbox", "paddock", "-M", "anthropic:claude-sonnet-4-5", "-S", "all", "-n", "do it"]
        ran = subprocess.run(
            [_python(tmp_path), "-m", "deepagents_code", *words],
            env={**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "DEEPAGENTS_CODE_OFFLINE": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert ran.returncode == 0 and "All done." in ran.stdout, ran.stdout + ran.stderr
    assert "/workspace" in model.results[0] and "made\\nsecond" in model.results[2], model.results
    with SyncSandboxClient() as client:
        deadline = time.monotonic() + 60
        while left := {box.sandbox_id for box in client.iter_sandboxes(user_id="dcode")} - before:
            assert time.monotonic() < deadline, f"{left} is still there"
            time.sleep(0.1)


def test_its_event_loop_is_never_blocked() -> None:
    async def use(sandbox_id: str) -> None:
        backend = PaddockSandbox(sandbox_id)
        with blockbuster_ctx():
            slow = asyncio.create_task(backend.aexecute("sleep 5; echo slept"))
            assert (await backend.aexecute("seq 100000")).exit_code == 0
            assert (await backend.awrite("/workspace/a.txt", "text\n" * 1000)).error is None
            assert (await backend.aedit("/workspace/a.txt", "text", "word", True)).error is None
            assert (await backend.aread("/workspace/a.txt")).error is None
            assert (await backend.agrep("word", "/workspace")).matches and (await backend.als("/workspace")).entries
            assert (await backend.aglob("*.txt", "/workspace")).matches
            await backend.aupload_files([("/workspace/b", b"x" * 1_000_000)])
            await backend.adownload_files(["/workspace/b"])
            assert (await slow).output == "slept\n"
            await backend.aclose()

    with SyncSandboxClient() as client:
        box = client.create_sandbox("blocked")
        asyncio.run(use(box.sandbox_id))
        client.delete_sandbox(box.sandbox_id)


def _python(folder: Path) -> Path:
    """With Paddock installed: dcode starts its server without PYTHONPATH."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    paths = [sysconfig.get_path("purelib"), *os.environ["PYTHONPATH"].split(os.pathsep)]
    (packages / "paddock.pth").write_text("\n".join(paths))
    return folder / "venv/bin/python"
