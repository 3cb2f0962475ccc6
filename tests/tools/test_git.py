"""Git from the first commit to a push that is refused."""

from __future__ import annotations

from tests.tools.workbench import Workbench

WHO = {"author_name": "Ada", "author_email": "ada@example.org"}


async def repository(work: Workbench) -> str:
    """A clone of an empty repository beside it; answers with its path."""
    await work.shell(f"git init -q --bare -b main {work.at('origin.git')}")
    cloned = await work.does("git_clone", url=work.at("origin.git"), path=work.at("clone"))
    assert (cloned["path"], cloned["commit"]) == (work.at("clone"), None)
    return str(cloned["path"])


async def test_work_is_cloned_changed_committed_and_pushed(work: Workbench) -> None:
    path = await repository(work)
    await work.put("clone/a b.txt", "one\ntwo\n")
    status = await work.does("git_status", path=path)
    assert (status["untracked"], status["clean"], status["commit"]) == (["a b.txt"], False, None)
    staged = await work.does("git_add", path=path)
    assert [(each["change"], each["path"]) for each in staged["staged"]] == [("A", "a b.txt")]
    assert "author_name" in await work.fails("git_commit", path=path, message="first")
    first = await work.does("git_commit", path=path, message="first 'quoted'\n\nbody", **WHO)
    assert len(first["commit"]) == 40
    await work.does("git_push", path=path)
    status = await work.does("git_status", path=path)
    assert (status["clean"], status["upstream"], status["ahead"]) == (True, f"origin/{status['branch']}", 0)
    [commit] = (await work.does("git_log", path=path))["commits"]
    assert (commit["subject"], commit["author"], commit["commit"]) == ("first 'quoted'", "Ada", first["commit"])


async def test_changes_are_shown_apart(work: Workbench) -> None:
    path = await repository(work)
    for name in ("kept", "renamed", "changed"):
        await work.put(f"clone/{name}", f"{name}\n" * 5)
    await work.does("git_commit", path=path, message="x", all=True, **WHO)
    await work.put("clone/changed", "other\n")
    await work.shell(f"cd {path} && git mv renamed new")
    status = await work.does("git_status", path=path)
    assert status["staged"] == [{"path": "new", "change": "R", "renamed_from": "renamed"}]
    assert status["unstaged"] == [{"path": "changed", "change": "M", "renamed_from": None}]
    diff = await work.does("git_diff", path=path)
    assert diff["files"] == [{"path": "changed", "added": 1, "removed": 5}]
    assert "+other" in diff["diff"]
    assert {each["path"] for each in (await work.does("git_diff", path=path, staged=True))["files"]} == {
        "renamed",
        "new",
    }


async def test_branches_are_made_switched_and_deleted(work: Workbench) -> None:
    path = await repository(work)
    await work.put("clone/f", "x")
    await work.does("git_commit", path=path, message="x", all=True, **WHO)
    first = (await work.does("git_branch", path=path))["current"]
    made = await work.does("git_branch", path=path, action="create", name="feature/x")
    assert made["current"] == "feature/x"
    assert (await work.does("git_branch", path=path, action="switch", name=first))["current"] == first
    left = await work.does("git_branch", path=path, action="delete", name="feature/x")
    assert left["branches"] == [first]
    assert "name" in await work.fails("git_branch", path=path, action="create")


async def test_a_push_that_others_came_before_says_to_pull(work: Workbench) -> None:
    path = await repository(work)
    await work.put("clone/f", "x")
    await work.does("git_commit", path=path, message="x", all=True, **WHO)
    await work.does("git_push", path=path)
    other = (await work.does("git_clone", url=work.at("origin.git"), path=work.at("other"), depth=1))["path"]
    await work.put("other/g", "x")
    await work.does("git_commit", path=other, message="other", all=True, **WHO)
    await work.does("git_push", path=other)
    await work.put("clone/h", "x")
    await work.does("git_commit", path=path, message="mine", all=True, **WHO)
    assert "git_pull" in await work.fails("git_push", path=path)
    await work.shell(f"cd {path} && git config user.name Ada && git config user.email ada@example.org")
    await work.does("git_pull", path=path, rebase=True)
    await work.does("git_push", path=path)
    subjects = [each["subject"] for each in (await work.does("git_log", path=path, limit=2))["commits"]]
    assert subjects == ["mine", "other"]


async def test_what_is_missing_is_said_with_the_next_step(work: Workbench) -> None:
    await work.put("plain/file", "")
    assert "git_clone" in await work.fails("git_status", path=work.at("plain"))
    assert "nothing to commit" in await work.fails("git_commit", path=await repository(work), message="x", **WHO)
    said = await work.fails("git_clone", url="http://name:secret@127.0.0.1:9/x.git", path=work.at("never"))
    assert "secret" not in said


async def test_git_never_asks(work: Workbench) -> None:
    """A server that wants a password: git gives up at once, and it is said what it needs."""
    port = 28_000 + int(work.folder[-4:], 16) % 4000
    script = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(401); self.send_header('WWW-Authenticate', 'Basic realm=x'); self.end_headers()\n"
        f"h.HTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    )
    path = await work.put("server.py", script)
    task = (await work.does("run_command", command=f"python3 {path}", background=True))["task_id"]
    await work.shell(
        f"for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit 0; sleep 0.1; done; exit 1"
    )
    said = await work.fails("git_clone", url=f"http://127.0.0.1:{port}/x.git", path=work.at("never"))
    assert "no credentials" in said
    await work.does("task_stop", task_id=task)
