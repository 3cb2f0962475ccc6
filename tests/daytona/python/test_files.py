"""Files and git."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import daytona
import pytest
from daytona import FileDownloadRequest, FileUpload


def test_files_come_and_go(sandbox: Any, folder: str, tmp_path: Path) -> None:
    fs = sandbox.fs
    fs.upload_file(b"bytes", f"{folder}/new/a.bin")
    here = tmp_path / "local"
    here.write_bytes(b"from a file")
    fs.upload_file(str(here), f"{folder}/b.bin")
    fs.upload_files([FileUpload(b"1", f"{folder}/c1"), FileUpload(b"2", f"{folder}/ü 2")])
    assert fs.download_file(f"{folder}/new/a.bin") == b"bytes"
    fs.download_file(f"{folder}/b.bin", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"from a file"
    asked = [FileDownloadRequest(source=f"{folder}/{name}") for name in ("c1", "none", "ü 2")]
    first, missing, last = fs.download_files(asked)
    assert (first.result, last.result) == (b"1", b"2")
    assert missing.error_details.code == "FILE_NOT_FOUND"
    with pytest.raises(daytona.DaytonaNotFoundError):
        fs.download_file(f"{folder}/none")


def test_a_large_file_is_streamed_both_ways(sandbox: Any, folder: str) -> None:
    data = bytes(range(256)) * 4096 * 10
    sandbox.fs.upload_file_stream(data, f"{folder}/large")
    assert b"".join(sandbox.fs.download_file_stream(f"{folder}/large")) == data


def test_files_are_described_changed_and_searched(sandbox: Any, folder: str) -> None:
    fs = sandbox.fs
    fs.upload_file(b"alpha\nbeta\n", f"{folder}/a.txt")
    fs.set_file_permissions(f"{folder}/a.txt", mode="600")
    info = fs.get_file_info(f"{folder}/a.txt")
    assert (info.size, info.permissions, info.is_dir) == (11, "0600", False)
    assert [each.name for each in fs.list_files(folder)] == ["a.txt"]
    assert [(each.line, each.content) for each in fs.find_files(folder, "bet")] == [(2, "beta")]
    assert fs.search_files(folder, "*.txt").files == [f"{folder}/a.txt"]
    assert fs.replace_in_files([f"{folder}/a.txt"], "beta", "gamma")[0].success
    fs.move_files(f"{folder}/a.txt", f"{folder}/b.txt")
    assert fs.download_file(f"{folder}/b.txt") == b"alpha\ngamma\n"
    fs.create_folder(f"{folder}/deep/er", "700")
    with pytest.raises(daytona.DaytonaBadRequestError):
        fs.delete_file(f"{folder}/deep")
    fs.delete_file(f"{folder}/deep", recursive=True)
    fs.delete_file(f"{folder}/b.txt")
    assert fs.list_files(folder) == []


def test_a_file_of_somebody_else_is_forbidden(sandbox: Any) -> None:
    with pytest.raises(daytona.DaytonaForbiddenError):
        sandbox.fs.delete_file("/usr/bin/env")


def test_git_from_init_to_push(sandbox: Any, folder: str) -> None:
    git, origin, work = sandbox.git, f"{folder}/origin", f"{folder}/work"
    git.init(origin, bare=True, initial_branch="main")
    git.clone(origin, work)
    git.configure_user("Ada", "ada@example.org", scope="local", path=work)
    sandbox.fs.upload_file(b"one", f"{work}/file")
    status = git.status(work)
    assert [(each.name, each.worktree) for each in status.file_status] == [("file", "Untracked")]
    git.add(work, ["file"])
    assert len(git.commit(work, "the first", "Ada", "ada@example.org").sha) == 40
    git.push(work, branch="main", set_upstream=True)
    assert git.status(work).upstream == "origin/main"
    git.create_branch(work, "side")
    with pytest.raises(daytona.DaytonaConflictError):
        git.create_branch(work, "side")
    git.checkout_branch(work, "side")
    assert git.branches(work).current == "side"
    git.checkout_branch(work, "main")
    git.delete_branch(work, "side")
    assert git.branches(work).branches == ["main"]
    git.pull(work)
    sandbox.fs.upload_file(b"two", f"{work}/file")
    git.restore(work, ["file"])
    assert sandbox.fs.download_file(f"{work}/file") == b"one"
    sandbox.fs.upload_file(b"two", f"{work}/file")
    git.reset(work, mode="hard")
    assert git.status(work).file_status == []


def test_git_remotes_and_configuration(sandbox: Any, folder: str) -> None:
    git = sandbox.git
    git.init(folder)
    git.remote_add(folder, "up", "https://example.org/up.git")
    assert git.remote_get(folder, "up") == "https://example.org/up.git"
    assert [each.name for each in git.remotes(folder).remotes] == ["up"]
    git.set_config("some.key", "value", scope="local", path=folder)
    assert git.get_config("some.key", scope="local", path=folder) == "value"
    assert git.get_config("no.such", scope="local", path=folder) is None
    git.dangerously_authenticate("ada", "secret", host="example.org")
    assert "ada" in sandbox.process.exec("cat ~/.git-credentials").result


def test_failures_of_git_have_classes_of_their_own(sandbox: Any, folder: str) -> None:
    with pytest.raises(daytona.DaytonaNotFoundError):
        sandbox.git.status(folder)
    with pytest.raises(daytona.DaytonaNotFoundError):
        sandbox.git.clone(f"{folder}/nothing", f"{folder}/x")
    sandbox.git.init(f"{folder}/r")
    with pytest.raises(daytona.DaytonaNotFoundError):
        sandbox.git.checkout_branch(f"{folder}/r", "nowhere")
