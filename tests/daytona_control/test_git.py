"""Git's routes on a real repository: what is listed, and in which words."""

from __future__ import annotations

from tests.daytona_control.conftest import Daytona, refused
from tests.daytona_control.test_toolbox import Box

REPOSITORY = """
git init -q -b main repo && cd repo && git config user.name Ada && git config user.email ada@example.com
git remote add origin https://example.com/a.git
echo 1 >kept && echo 1 >moved && git add . && GIT_COMMITTER_DATE='2024-01-02T03:04:05Z' git commit -qm 'First
and more'
git branch -q other
echo 2 >>kept && git mv moved 'to here' && echo new >'ünew' && rm -f gone
"""


async def test_what_git_lists(daytona: Daytona) -> None:
    box = Box(daytona, (await daytona.new())["id"])
    refused(await box.get("/git/status", path="."), 404, "not a git repository", "GIT_REPO_NOT_FOUND")
    made = await daytona.run(box.key, REPOSITORY)
    assert made["exitCode"] == 0, made

    status = (await box.get("/git/status", path="repo")).json()
    files = status.pop("fileStatus")
    assert status == {"currentBranch": "main", "branchPublished": False, "detached": False}
    assert {file["name"]: (file["staging"], file["worktree"], file["extra"]) for file in files} == {
        "kept": ("Unmodified", "Modified", ""),
        "to here": ("Renamed", "Unmodified", "moved"),
        "ünew": ("Untracked", "Untracked", ""),
    }
    [commit] = (await box.get("/git/history", path="repo")).json()
    assert (len(commit.pop("hash")), commit) == (
        40,
        {
            "author": "Ada",
            "email": "ada@example.com",
            "message": "First\nand more",
            "timestamp": "2024-01-02T03:04:05.000Z",
        },
    )
    branches = (await box.get("/git/branches", path="repo")).json()
    assert branches == {"branches": ["main", "other"], "current": "main"}
    remotes = (await box.get("/git/remotes", path="repo")).json()
    assert remotes == {"remotes": [{"name": "origin", "url": "https://example.com/a.git"}]}
    commit = {"path": "repo", "message": "m", "author": "B", "email": "b@example.com"}
    assert len((await box.post("/git/commit", commit)).json()["hash"]) == 40


async def test_a_repository_without_commits_has_no_history(daytona: Daytona) -> None:
    box = Box(daytona, (await daytona.new())["id"])
    assert (await box.post("/git/init", {"path": "empty", "initial_branch": "main"})).status_code == 201
    assert (await box.get("/git/history", path="empty")).json() == []
    assert (await box.get("/git/branches", path="empty")).json() == {"branches": [], "current": "main"}
    assert (await box.get("/git/remotes", path="empty")).json() == {"remotes": []}
    refused(await box.get("/git/remotes", path="nowhere"), 404, "", "GIT_REPO_NOT_FOUND")
