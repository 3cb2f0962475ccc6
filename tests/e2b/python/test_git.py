"""The SDK's own git commands, between two repositories in the sandbox."""

import pytest


@pytest.fixture
def repository(sandbox, folder):
    """One with a first commit, and a bare one to push to."""
    git, path = sandbox.git, f"{folder}/work"
    git.init(path, initial_branch="main")
    git.configure_user("Me", "me@example.org", scope="local", path=path)
    sandbox.files.write(f"{path}/file", "one")
    git.add(path)
    git.commit(path, "first")
    git.init(f"{folder}/remote.git", bare=True, initial_branch="main")
    git.remote_add(path, "origin", f"{folder}/remote.git")
    return path


def test_a_commit_is_made_and_seen(sandbox, repository):
    assert sandbox.git.status(repository).is_clean
    sandbox.files.write(f"{repository}/file", "two")
    sandbox.files.write(f"{repository}/new", "n")
    status = sandbox.git.status(repository)
    assert {each.name for each in status.file_status} == {"file", "new"} and not status.is_clean
    sandbox.git.add(repository, files=["file"])
    assert sandbox.git.status(repository).has_staged


def test_staged_changes_are_taken_back(sandbox, repository):
    sandbox.files.write(f"{repository}/file", "two")
    sandbox.git.add(repository)
    sandbox.git.restore(repository, paths=["file"], staged=True)
    assert not sandbox.git.status(repository).has_staged
    sandbox.git.reset(repository, mode="hard")
    assert sandbox.files.read(f"{repository}/file") == "one"


def test_branches_come_and_go(sandbox, repository):
    sandbox.git.create_branch(repository, "side")
    assert sandbox.git.branches(repository).current_branch == "side"
    sandbox.git.checkout_branch(repository, "main")
    found = sandbox.git.branches(repository)
    assert found.current_branch == "main" and set(found.branches) == {"main", "side"}
    sandbox.git.delete_branch(repository, "side")
    assert sandbox.git.branches(repository).branches == ["main"]


def test_work_goes_from_one_repository_to_another(sandbox, repository, folder):
    sandbox.git.push(repository, remote="origin", branch="main")
    assert sandbox.git.remote_get(repository, "origin") == f"{folder}/remote.git"
    sandbox.git.clone(f"{folder}/remote.git", path=f"{folder}/copy")
    assert sandbox.files.read(f"{folder}/copy/file") == "one"
    sandbox.files.write(f"{repository}/file", "two")
    sandbox.git.add(repository)
    sandbox.git.commit(repository, "second")
    sandbox.git.push(repository, remote="origin", branch="main")
    sandbox.git.pull(f"{folder}/copy")
    assert sandbox.files.read(f"{folder}/copy/file") == "two"


def test_pulling_without_an_origin_is_refused(sandbox, repository, sdk):
    with pytest.raises(sdk.error("GitUpstreamException", "SandboxException")):
        sandbox.git.pull(repository)


def test_settings_are_kept(sandbox, repository):
    sandbox.git.set_config("pull.rebase", "true", scope="local", path=repository)
    assert sandbox.git.get_config("pull.rebase", scope="local", path=repository) == "true"


def test_credentials_are_stored_when_asked(sandbox, repository):
    sandbox.git.dangerously_authenticate("me", "token")
    assert "me:token" in sandbox.files.read("/home/user/.git-credentials")
    sandbox.files.remove("/home/user/.git-credentials")
