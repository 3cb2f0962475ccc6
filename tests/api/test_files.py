"""Files over HTTP: as JSON and as streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from tests.api.conftest import assert_error


async def write(client: httpx.AsyncClient, sandbox: str, path: str, content: bytes) -> None:
    answer = await client.put(f"/sandboxes/{sandbox}/files", params={"path": path}, content=content)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("content", ["", "hello\n", "zwölf 🐑 and a NUL \0 too"])
async def test_what_is_written_is_read_back(client: httpx.AsyncClient, sandbox: str, content: str) -> None:
    body = {"sandbox_id": sandbox, "path": "/workspace/deep/er/note.txt"}
    written = await client.post("/sandboxes/write-file", json={**body, "content": content})
    assert written.json()["file"]["size"] == len(content.encode())
    read = await client.post("/sandboxes/read-file", json=body)
    assert (read.json()["content"], read.json()["size"]) == (content, len(content.encode()))


@pytest.mark.parametrize("content", ["not base64!", "abc", "¾"])
async def test_content_that_is_not_base64_is_refused(client: httpx.AsyncClient, sandbox: str, content: str) -> None:
    body = {"sandbox_id": sandbox, "path": "/workspace/raw", "encoding": "base64", "content": content}
    assert_error(await client.post("/sandboxes/write-file", json=body), 422, "invalid_request")


async def test_bytes_go_as_base64(client: httpx.AsyncClient, sandbox: str) -> None:
    body = {"sandbox_id": sandbox, "path": "/workspace/raw", "encoding": "base64"}
    await client.post("/sandboxes/write-file", json={**body, "content": "/wD+"})
    assert (await client.post("/sandboxes/read-file", json=body)).json()["content"] == "/wD+"
    as_text = await client.post("/sandboxes/read-file", json={**body, "encoding": "utf-8"})
    assert "base64" in assert_error(as_text, 422)["message"]
    assert_error(await client.post("/sandboxes/write-file", json={**body, "content": "!"}), 422)


async def test_an_upload_streams_and_keeps_its_mode(client: httpx.AsyncClient, sandbox: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(40):
            yield bytes([number]) * 100_000

    answer = await client.put(
        f"/sandboxes/{sandbox}/files", params={"path": "/workspace/big", "mode": "0755"}, content=chunks()
    )
    assert answer.json()["file"] | {"modified_at": ""} == {
        **answer.json()["file"],
        "modified_at": "",
        "size": 4_000_000,
        "mode": "0755",
    }
    got = await client.get(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/big"})
    assert got.content == b"".join(bytes([number]) * 100_000 for number in range(40))
    assert got.headers["content-length"] == "4000000"


async def test_a_download_follows_a_symlink(client: httpx.AsyncClient, sandbox: str) -> None:
    await write(client, sandbox, "/workspace/file", b"behind the link")
    await client.post("/sandboxes/run-command", json={"sandbox_id": sandbox, "command": "ln -s file link"})
    answer = await client.get(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/link"})
    assert answer.content == b"behind the link"


async def test_a_range_is_honoured(client: httpx.AsyncClient, sandbox: str) -> None:
    await write(client, sandbox, "/workspace/digits", b"0123456789")

    async def ask(value: str, **headers: str) -> httpx.Response:
        return await client.get(
            f"/sandboxes/{sandbox}/files", params={"path": "/workspace/digits"}, headers={"Range": value, **headers}
        )

    for value, content, where in [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=0-99", b"0123456789", "bytes 0-9/10"),
    ]:
        answer = await ask(value)
        assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, content, where)
    for ignored in ["bytes=5-2", "lines=1-2", "bytes=1-2,4-5", "bytes=-", "nonsense"]:
        assert (await ask(ignored)).status_code == 200
    outside = await ask("bytes=10-")
    assert_error(outside, 416, "range_not_satisfiable")
    assert outside.headers["content-range"] == "bytes */10"
    assert (await ask("bytes=2-4", **{"If-Range": '"old"'})).status_code == 200


async def test_head_says_what_a_download_would(client: httpx.AsyncClient, sandbox: str) -> None:
    await write(client, sandbox, "/workspace/page.html", b"<p>")
    answer = await client.head(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/page.html"})
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "3")
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["content-disposition"] == 'attachment; filename="page.html"'
    missing = await client.head(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/no"})
    assert missing.status_code == 404


async def test_a_file_name_cannot_break_a_header(client: httpx.AsyncClient, sandbox: str) -> None:
    name = 'a"b\r\nX-Evil: 1\\ü.txt'
    await write(client, sandbox, f"/workspace/{name}", b"x")
    answer = await client.get(f"/sandboxes/{sandbox}/files", params={"path": f"/workspace/{name}"})
    assert answer.content == b"x"
    assert "x-evil" not in answer.headers
    assert answer.headers["content-disposition"].endswith(f"filename*=UTF-8''{quote(name, safe='')}")


async def test_list_stat_move_mkdir_and_delete(client: httpx.AsyncClient, sandbox: str) -> None:
    path = f"/sandboxes/{sandbox}/files"
    made = await client.post(f"{path}/mkdir", json={"path": "/workspace/a/b"})
    assert (made.json()["type"], made.json()["name"]) == ("directory", "b")
    assert (await client.post(f"{path}/mkdir", json={"path": "/workspace/a/b"})).status_code == 200
    await write(client, sandbox, "/workspace/a/b/one", b"1")
    moved = await client.post(f"{path}/move", json={"source": "/workspace/a/b/one", "destination": "/workspace/a/two"})
    assert moved.json()["path"] == "/workspace/a/two"
    listed = (await client.get(f"{path}/list", params={"path": "/workspace", "depth": 5})).json()["entries"]
    assert [entry["path"] for entry in listed] == ["/workspace/a", "/workspace/a/b", "/workspace/a/two"]
    assert (await client.get(f"{path}/stat", params={"path": "/workspace/a/two"})).json()["size"] == 1
    assert_error(await client.delete(path, params={"path": "/workspace/a"}), 409, "path_conflict")
    assert (await client.delete(path, params={"path": "/workspace/a", "recursive": True})).json()["success"] is True
    assert_error(await client.get(f"{path}/stat", params={"path": "/workspace/a"}), 404, "file_not_found")


async def test_a_directory_cannot_be_downloaded(client: httpx.AsyncClient, sandbox: str) -> None:
    assert_error(await client.get(f"/sandboxes/{sandbox}/files", params={"path": "/workspace"}), 409, "path_conflict")
    body = {"sandbox_id": sandbox, "path": "/workspace"}
    assert_error(await client.post("/sandboxes/read-file", json=body), 409, "path_conflict")


async def test_a_missing_file_is_not_found(client: httpx.AsyncClient, sandbox: str) -> None:
    for answer in [
        await client.get(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/no"}),
        await client.post("/sandboxes/read-file", json={"sandbox_id": sandbox, "path": "/workspace/no"}),
        await client.get(f"/sandboxes/{sandbox}/files/list", params={"path": "/workspace/no"}),
        await client.get(f"/sandboxes/{sandbox}/files/watch", params={"path": "/workspace/no"}),
        await client.delete(f"/sandboxes/{sandbox}/files", params={"path": "/workspace/no"}),
    ]:
        assert_error(answer, 404, "file_not_found")


@pytest.mark.parametrize(
    "path", ["..", "../etc", "a/../b", "~/..", "x" * 4090, "/a/../b", "/..", "/nul\0", "/" + "x" * 256, "/x" * 3000, ""]
)
async def test_a_path_that_is_none_is_refused(client: httpx.AsyncClient, sandbox: str, path: str) -> None:
    for answer in [
        await client.get(f"/sandboxes/{sandbox}/files", params={"path": path}),
        await client.put(f"/sandboxes/{sandbox}/files", params={"path": path}, content=b""),
        await client.get(f"/sandboxes/{sandbox}/files/stat", params={"path": path}),
        await client.post(f"/sandboxes/{sandbox}/files/mkdir", json={"path": path}),
        await client.post("/sandboxes/read-file", json={"sandbox_id": sandbox, "path": path}),
        await client.post("/sandboxes/write-file", json={"sandbox_id": sandbox, "path": path, "content": ""}),
    ]:
        assert assert_error(answer, 422)["details"]["errors"][0]["field"] == "path"


async def test_a_file_too_large_for_json_says_where_to_go(client: httpx.AsyncClient, sandbox: str) -> None:
    command = "truncate -s 70M /workspace/huge"
    await client.post("/sandboxes/run-command", json={"sandbox_id": sandbox, "command": command})
    answer = await client.post("/sandboxes/read-file", json={"sandbox_id": sandbox, "path": "/workspace/huge"})
    assert "GET /sandboxes/{sandbox_id}/files" in assert_error(answer, 413)["message"]
