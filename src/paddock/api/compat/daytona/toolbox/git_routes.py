"""Routes of git."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import ConfigDict

from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.git import Git, whole_text
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute
from paddock.models import Text

router = APIRouter(prefix="/{sandbox_id}/git", route_class=ToolboxRoute)

_SCOPES = ("global", "local", "system")
_RESETS = ("soft", "mixed", "hard", "merge", "keep")


class GitRequest(DaytonaRequest):
    model_config = ConfigDict(alias_generator=None)  # these fields are in snake case in Daytona's API

    path: Text


class Clone(GitRequest):
    url: Text
    branch: Text | None = None
    commit_id: Text | None = None
    username: Text | None = None
    password: Text | None = None
    insecure_skip_tls: bool | None = None
    depth: int | None = None


class Branch(GitRequest):
    name: Text


class Checkout(GitRequest):
    branch: Text


class Add(GitRequest):
    files: list[Text]


class GitCommit(GitRequest):
    message: Text
    author: Text
    email: Text
    allow_empty: bool | None = None


class PushPull(GitRequest):
    username: Text | None = None
    password: Text | None = None
    branch: Text | None = None
    remote: Text | None = None
    set_upstream: bool | None = None


class Init(GitRequest):
    bare: bool | None = None
    initial_branch: Text | None = None


class Reset(GitRequest):
    mode: Text | None = None
    target: Text | None = None
    files: list[Text] | None = None


class Restore(GitRequest):
    files: list[Text]
    staged: bool | None = None
    worktree: bool | None = None
    source: Text | None = None


class Remote(GitRequest):
    name: Text
    url: Text
    fetch: bool | None = None
    overwrite: bool | None = None


class GitConfig(GitRequest):
    path: Text | None = None  # type: ignore[assignment]
    key: Text
    value: Text
    scope: Text | None = None


class GitUser(GitRequest):
    path: Text | None = None  # type: ignore[assignment]
    name: Text
    email: Text
    scope: Text | None = None


class GitCredentials(GitRequest):
    path: Text | None = None  # type: ignore[assignment]
    username: Text
    password: Text
    host: Text | None = None
    protocol: Text | None = None


@router.post("/clone")
async def clone(inside: InsideHere, body: Clone) -> Response:
    git = Git(inside, body.path)
    words = ["-c", "http.sslVerify=false"] if body.insecure_skip_tls else []
    words += ["clone", "--quiet"]
    words += ["--depth", str(body.depth)] if body.depth and body.depth > 0 else []
    words += ["--branch", _plain(body.branch)] if body.branch else []
    await git.remote([*words, "--", _plain(body.url), git.path], body.username, body.password, outside=True)
    if body.commit_id:
        await git("checkout", "--quiet", "--detach", _plain(body.commit_id))
    return Response(status_code=200)


@router.get("/status")
async def status(inside: InsideHere, path: str) -> Response:
    return _json(await Git(inside, path).status())


@router.get("/history")
async def history(inside: InsideHere, path: str) -> Response:
    return _json(await Git(inside, path).history())


@router.get("/branches")
async def branches(inside: InsideHere, path: str) -> Response:
    return _json(await Git(inside, path).branches())


@router.post("/branches")
async def create_branch(inside: InsideHere, body: Branch) -> Response:
    await Git(inside, body.path)("branch", "--", _plain(body.name))
    return Response(status_code=201)


@router.delete("/branches")
async def delete_branch(inside: InsideHere, body: Branch) -> Response:
    await Git(inside, body.path)("branch", "-D", "--", _plain(body.name))
    return Response(status_code=204)


@router.post("/checkout")
async def checkout(inside: InsideHere, body: Checkout) -> Response:
    await Git(inside, body.path)("checkout", "--quiet", _plain(body.branch), "--")
    return Response(status_code=200)


@router.post("/add")
async def add(inside: InsideHere, body: Add) -> Response:
    await Git(inside, body.path)("add", "--", *map(_plain, body.files))
    return Response(status_code=200)


@router.post("/commit")
async def commit(inside: InsideHere, body: GitCommit) -> dict[str, Any]:
    git = Git(inside, body.path)
    who = ["-c", f"user.name={_plain(body.author)}", "-c", f"user.email={_plain(body.email)}"]
    empty = ["--allow-empty"] if body.allow_empty else []
    await git(*who, "commit", "--quiet", *empty, "--message", _plain(body.message))
    return {"hash": (await git.ask("rev-parse", "HEAD")).strip()}


@router.post("/push")
async def push(inside: InsideHere, body: PushPull) -> Response:
    git = Git(inside, body.path)
    remote = _plain(body.remote or "origin")
    branch = _plain(body.branch or (await git.ask("branch", "--show-current")).strip() or "HEAD")
    upstream = ["--set-upstream"] if body.set_upstream else []
    await git.remote(["push", "--quiet", *upstream, "--", remote, branch], body.username, body.password)
    return Response(status_code=200)


@router.post("/pull")
async def pull(inside: InsideHere, body: PushPull) -> Response:
    git = Git(inside, body.path)
    where = [_plain(body.remote or "origin"), _plain(body.branch)] if body.branch else []
    if body.remote and not body.branch:
        where = [_plain(body.remote)]
    await git.remote(
        ["pull", "--quiet", "--no-rebase", *(["--", *where] if where else [])], body.username, body.password
    )
    return Response(status_code=200)


@router.post("/init")
async def init(inside: InsideHere, body: Init) -> Response:
    git = Git(inside, body.path)
    words = ["init", "--quiet", *(["--bare"] if body.bare else [])]
    words += [f"--initial-branch={_plain(body.initial_branch)}"] if body.initial_branch else []
    await git(*words, "--", git.path, outside=True)
    return Response(status_code=201)


@router.post("/reset")
async def reset(inside: InsideHere, body: Reset) -> Response:
    git = Git(inside, body.path)
    target = [_plain(body.target)] if body.target else []
    if body.files:
        await git("reset", "--quiet", *target, "--", *map(_plain, body.files))
        return Response(status_code=200)
    mode = body.mode or "mixed"
    if mode not in _RESETS:
        raise DaytonaError(400, f"unknown reset mode {mode[:20]!r}: {', '.join(_RESETS)}", source=DAEMON)
    await git("reset", "--quiet", f"--{mode}", *target)
    return Response(status_code=200)


@router.post("/restore")
async def restore(inside: InsideHere, body: Restore) -> Response:
    words = ["--staged"] if body.staged else []
    words += ["--worktree"] if body.worktree or (body.worktree is None and not body.staged) else []
    words += [f"--source={_plain(body.source)}"] if body.source else []
    await Git(inside, body.path)("restore", "--quiet", *words, "--", *map(_plain, body.files))
    return Response(status_code=200)


@router.get("/remotes")
async def remotes(inside: InsideHere, path: str) -> Response:
    return _json(await Git(inside, path).remotes())


@router.post("/remotes")
async def add_remote(inside: InsideHere, body: Remote) -> Response:
    git, name = Git(inside, body.path), _plain(body.name)
    known = (await git.ask("remote")).split()
    if name in known and body.overwrite:
        await git("remote", "set-url", "--", name, _plain(body.url))
    elif name in known:
        raise DaytonaError(409, f"remote {name} already exists", "GIT_REMOTE_EXISTS", DAEMON)
    else:
        await git("remote", "add", "--", name, _plain(body.url))
    if body.fetch:
        await git("fetch", "--quiet", "--", name)
    return Response(status_code=201)


@router.get("/config")
async def get_config(inside: InsideHere, key: str, scope: str | None = None, path: str | None = None) -> Response:
    where = _scope(inside, scope, path)
    said = await where.attempt("config", *_flag(scope), "--get", _plain(key), outside=not path)
    return JSONResponse({"value": whole_text(said).removesuffix("\n")} if said.exit_code == 0 else {})


@router.post("/config")
async def set_config(inside: InsideHere, body: GitConfig) -> Response:
    where = _scope(inside, body.scope, body.path)
    await where("config", *_flag(body.scope), _plain(body.key), body.value, outside=not body.path)
    return Response(status_code=200)


@router.post("/config/user")
async def configure_user(inside: InsideHere, body: GitUser) -> Response:
    where = _scope(inside, body.scope, body.path)
    for key, value in (("user.name", body.name), ("user.email", body.email)):
        await where("config", *_flag(body.scope), key, value, outside=not body.path)
    return Response(status_code=200)


@router.post("/credentials")
async def authenticate(inside: InsideHere, body: GitCredentials) -> Response:
    """Stores credentials in the sandbox, readable by everything in it, as the name of the SDK's method says."""
    protocol, host = body.protocol or "https", body.host or "github.com"
    if any(sign in protocol + host for sign in "/\n @") or not host:
        raise DaytonaError(400, "host and protocol must be plain names", source=DAEMON)
    path = f"{inside.home}/.git-credentials"
    mine = f"{protocol}://{quote(body.username, safe='')}:{quote(body.password, safe='')}@{host}"
    lines = ((await inside.read(path)) or b"").decode(errors="replace").splitlines()
    kept = [line for line in lines if not (line.startswith(f"{protocol}://") and line.endswith(f"@{host}"))]

    async def text() -> Any:
        yield "".join(f"{line}\n" for line in [*kept, mine]).encode()

    await inside.machine.write_file(path, text(), mode=0o600, user=inside.user)
    await Git(inside, "/")("config", "--global", "credential.helper", "store", outside=True)
    return Response(status_code=200)


def _scope(inside: ToolboxContext, scope: str | None, path: str | None) -> Git:
    if (scope or "global") not in _SCOPES:
        raise DaytonaError(400, f"unknown scope {str(scope)[:20]!r}: {', '.join(_SCOPES)}", source=DAEMON)
    if scope == "local" and not path:
        raise DaytonaError(400, "the scope 'local' needs the path of a repository", source=DAEMON)
    return Git(inside, path or "/")


def _flag(scope: str | None) -> list[str]:
    return [f"--{scope or 'global'}"]


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _plain(text: str | None) -> str:
    """A value that git cannot take for an option and that contains no line end."""
    if not text or text.startswith("-") or "\0" in text:
        raise DaytonaError(400, f"{str(text)[:100]!r} cannot be used here", source=DAEMON)
    return text
