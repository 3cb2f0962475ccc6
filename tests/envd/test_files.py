"""``/files`` on the wire: paths, users, codings, ranges, parts, metadata, and files of any size."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.envd.box import Box

STAT = "filesystem.Filesystem/Stat"


def failure(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body["code"] == status
    return str(body["message"])


async def parts(
    box: Box, *files: tuple[str, bytes], params: dict[str, str] | None = None, **headers: str
) -> httpx.Response:
    given = [("file", (name, data)) for name, data in files]
    return await box.client.post("/files", params=params, files=given, headers=box.headers(**headers))


# Up and down


async def test_a_file_goes_up_and_comes_down(box: Box) -> None:
    written = await box.put("notes/a b.txt", b"hello")
    assert written.status_code == 200, written.text
    assert written.json() == [{"path": "/home/user/notes/a b.txt", "name": "a b.txt", "type": "file"}]
    read = await box.get("/home/user/notes/a b.txt")
    assert (read.status_code, read.content) == (200, b"hello")
    assert read.headers["content-length"] == "5"
    assert read.headers["content-type"] == "text/plain"
    assert read.headers["content-disposition"] == 'inline; filename="a b.txt"'
    assert "Accept-Encoding" in read.headers["vary"]
    assert "sandbox" in read.headers["content-security-policy"].split("; ")


async def test_an_empty_file_says_that_it_is_empty(box: Box) -> None:
    await box.put("empty", b"")
    read = await box.get("empty")
    assert (read.status_code, read.content, read.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file", "/home/user/file"),
        ("~/file", "/home/user/file"),
        ("/tmp/file", "/tmp/file"),
        ("/tmp/x/../file", "/tmp/file"),
        ("./a//b/", "/home/user/a/b"),
    ],
)
async def test_paths_mean_what_they_mean_in_envd(box: Box, given: str, path: str) -> None:
    assert (await box.put(given, b"x")).json()[0]["path"] == path
    assert (await box.get(path)).content == b"x"


async def test_a_path_of_another_home_cannot_be_meant(box: Box) -> None:
    failure(await box.get("~root/file"), 400)
    failure(await box.put("~root/file", b""), 400)


async def test_what_is_not_there_and_what_is_no_file(box: Box) -> None:
    assert failure(await box.get("/no/such"), 404) == "path '/no/such' does not exist"
    assert failure(await box.get("/tmp"), 400) == "path '/tmp' is a directory"
    assert failure(await box.get(""), 400) == "path '/home/user' is a directory"
    failure(await box.put("/tmp", b"x"), 400)
    await box.put("/tmp/plain", b"x")
    failure(await box.put("/tmp/plain/below", b"x"), 400)


async def test_a_file_belongs_to_the_user_wherever_it_is(box: Box, provider: str) -> None:
    assert (await box.put("/opt/app/main.py", b"x")).status_code == 200
    entry = (await box.ok(STAT, {"path": "/opt/app/main.py"}))["entry"]
    assert (entry["owner"], entry["mode"], entry["permissions"]) == ("user", 0o644, "-rw-r--r--")
    assert (await box.ok(STAT, {"path": "/opt/app"}))["entry"]["permissions"] == "drwxr-xr-x"
    rooted = await box.put("/opt/app/of-root", b"x", {"username": "root"})
    assert rooted.status_code == 200
    if os.geteuid() == 0:  # else one id stands for both
        assert (await box.ok(STAT, {"path": "/opt/app"}))["entry"]["owner"] == "user"
        assert (await box.ok(STAT, {"path": "/opt/app/of-root"}))["entry"]["owner"] == "root"
    relative = await box.put("mine", b"x", {"username": "root"})
    assert relative.json()[0]["path"] == "/root/mine"
    assert failure(await box.get("x", {"username": "nobody-here"}), 401) == "invalid username: 'nobody-here'"


async def test_a_file_without_a_size_is_read_to_its_end(box: Box) -> None:
    read = await box.get("/proc/version")
    assert read.status_code == 200
    assert read.text.startswith("Linux version")
    assert read.headers.get("transfer-encoding") == "chunked"


# Many at once


async def test_many_parts_are_many_files(box: Box) -> None:
    many = [(f"dir{n}/ünïcode \\ {n}.bin", bytes([n]) * 70_000) for n in range(5)]
    written = await parts(box, *many)
    assert [entry["path"] for entry in written.json()] == [f"/home/user/{name}" for name, _ in many]
    for name, data in many:
        assert (await box.get(name)).content == data


async def test_a_path_wins_over_a_filename_and_other_fields_mean_nothing(box: Box) -> None:
    answer = await box.client.post(
        "/files",
        params={"path": "/tmp/real"},
        files=[("other", ("ignored", b"no")), ("file", ("/tmp/said", b"yes"))],
        data={"text": "no"},
        headers=box.headers(),
    )
    assert [entry["path"] for entry in answer.json()] == ["/tmp/real"]
    assert (await box.get("/tmp/real")).content == b"yes"
    failure(await box.get("/tmp/said"), 404)


async def test_the_same_path_twice_is_refused(box: Box) -> None:
    assert "/tmp/one" in failure(await parts(box, ("/tmp/one", b"1"), ("/tmp/../tmp/one", b"2")), 400)
    failure(await parts(box, ("/tmp/a", b"1"), ("/tmp/b", b"2"), params={"path": "/tmp/c"}), 400)


async def test_a_body_that_is_not_what_it_says(box: Box) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    for body in (
        b"",
        b"nonsense",
        b"--x\r\n",
        b"--x\r\n\r\nno end",
        b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n',
    ):
        failure(await box.client.post("/files", content=body, headers=box.headers(**kind)), 400)
    empty = await box.client.post("/files", content=b"--x--\r\n", headers=box.headers(**kind))
    failure(empty, 400)
    failure(await box.client.post("/files", content=b"x", headers=box.headers(**{"Content-Type": "text/plain"})), 400)
    no_path = await box.client.post(
        "/files", content=b"x", headers=box.headers(**{"Content-Type": "application/octet-stream"})
    )
    failure(no_path, 400)


# Codings and ranges


async def test_gzip_comes_out_of_an_upload(box: Box) -> None:
    data = b"again and again " * 200_000
    squeezed = gzip.compress(data[:100]) + gzip.compress(data[100:])
    await box.put("/tmp/data", squeezed, **{"Content-Encoding": "gzip"})
    assert (await box.get("/tmp/data")).content == data
    for bad in (b"no gzip", gzip.compress(data)[:-20]):
        failure(await box.put("/tmp/bad", bad, **{"Content-Encoding": "gzip"}), 400)
    failure(await box.put("/tmp/bad", b"x", **{"Content-Encoding": "br"}), 400)


async def test_gzip_is_sent_to_who_asks_for_just_that(box: Box) -> None:
    data = b"again and again " * 200_000
    await box.put("/tmp/data", data)
    async with box.client.stream(
        "GET", "/files", params={"path": "/tmp/data"}, headers=box.headers(**{"Accept-Encoding": "gzip"})
    ) as answer:
        raw = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert "content-length" not in answer.headers
    assert zlib.decompress(raw, 31) == data
    for by_habit in ("gzip, deflate", "gzip, deflate, br, zstd", "identity", "*"):
        plain = await box.get("/tmp/data", **{"Accept-Encoding": by_habit})
        assert "content-encoding" not in plain.headers and plain.content == data
    failure(await box.get("/tmp/data", **{"Accept-Encoding": "identity;q=0"}), 406)
    failure(await box.get("/tmp/data", **{"Accept-Encoding": "br, identity;q=0"}), 406)


async def test_a_part_of_a_file_can_be_asked_for(box: Box) -> None:
    await box.put("/tmp/data", b"0123456789")
    some = await box.get("/tmp/data", Range="bytes=2-4")
    assert (some.status_code, some.content) == (206, b"234")
    assert some.headers["content-range"] == "bytes 2-4/10"
    assert (await box.get("/tmp/data", Range="bytes=-3", **{"Accept-Encoding": "gzip"})).content == b"789"
    beyond = await box.get("/tmp/data", Range="bytes=20-")
    failure(beyond, 416)
    assert beyond.headers["content-range"] == "bytes */10"


async def test_what_has_not_changed_is_not_sent_again(box: Box) -> None:
    await box.put("/tmp/data", b"0123456789")
    first = await box.get("/tmp/data")
    for header in ({"If-None-Match": first.headers["etag"]}, {"If-Modified-Since": first.headers["last-modified"]}):
        again = await box.get("/tmp/data", **header)
        assert (again.status_code, again.content) == (304, b"")
    assert (await box.get("/tmp/data", **{"If-None-Match": '"other"'})).status_code == 200
    head = await box.client.head("/files", params={"path": "/tmp/data"}, headers=box.headers())
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "10")


# Metadata


async def test_metadata_is_kept_with_a_file_and_replaced_with_it(box: Box) -> None:
    written = await box.put("/tmp/file", b"x", **{"X-Metadata-Author": "Zo", "x-metadata-kind": "note"})
    assert written.json()[0]["metadata"] == {"author": "Zo", "kind": "note"}
    assert (await box.ok(STAT, {"path": "/tmp/file"}))["entry"]["metadata"] == {"author": "Zo", "kind": "note"}
    listed = await box.ok("filesystem.Filesystem/ListDir", {"path": "/tmp"})
    assert [entry["metadata"] for entry in listed["entries"]] == [{"author": "Zo", "kind": "note"}]
    inside = await box.run(
        "getfattr -d /tmp/file 2>/dev/null || python3 -c 'import os; print(os.listxattr(\"/tmp/file\"))'"
    )
    assert "user.e2b.author" in inside.stdout
    assert "metadata" not in (await box.put("/tmp/file", b"y")).json()[0]
    assert "metadata" not in (await box.ok(STAT, {"path": "/tmp/file"}))["entry"]
    both = await parts(box, ("/tmp/a", b"1"), ("/tmp/b", b"2"), **{"X-Metadata-K": "v"})
    assert [entry["metadata"] for entry in both.json()] == [{"k": "v"}, {"k": "v"}]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Metadata-": "no name"},
        {"X-Metadata-" + "k" * 247: "v"},
        {"X-Metadata-Long": "v" * 4096},
        {"X-Metadata-Sign": "caf\xe9".encode("latin-1").decode("latin-1")},
    ],
)
async def test_metadata_has_bounds(box: Box, headers: dict[str, Any]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    base = [(name.encode(), value.encode()) for name, value in box.headers().items()]
    answer = await box.client.post(
        "/files",
        params={"path": "/tmp/file"},
        content=b"x",
        headers=[*base, *raw, (b"Content-Type", b"application/octet-stream")],
    )
    failure(answer, 400)


# Large


async def test_a_large_stream_goes_both_ways_without_a_length(box: Box) -> None:
    piece = bytes(range(256)) * 4096

    async def many() -> AsyncIterator[bytes]:
        for _ in range(48):
            yield piece

    written = await box.client.post(
        "/files",
        params={"path": "/workspace/large"},
        content=many(),
        headers=box.headers(**{"Content-Type": "application/octet-stream"}),
    )
    assert written.status_code == 200, written.text
    digest = (await box.run("sha256sum < /workspace/large; stat -c %s /workspace/large")).stdout
    assert digest.splitlines()[1] == str(48 << 20)
    size = 0
    async with box.client.stream("GET", "/files", params={"path": "/workspace/large"}, headers=box.headers()) as answer:
        async for chunk in answer.aiter_raw():
            size += len(chunk)
    assert size == 48 << 20


async def test_a_large_part_passes_through(box: Box) -> None:
    data = b"\r\n--almost a boundary\r\n" * 400_000
    assert (await parts(box, ("/workspace/large", data))).status_code == 200
    assert (await box.get("/workspace/large")).content == data


async def test_a_full_disk_is_told(box: Box) -> None:
    await box.as_user("root").run("mount -t tmpfs -o size=64k none /mnt 2>/dev/null")
    where = "/mnt" if "tmpfs" in (await box.run("stat -f -c %T /mnt")).stdout else "/dev/shm"
    answer = await box.put(f"{where}/big", b"x" * (300 << 20))
    if answer.status_code == 200:
        pytest.skip("there is no small disk here")
    assert failure(answer, 507) == "not enough disk space available"


async def test_files_are_put_together(box: Box) -> None:
    await box.put("/tmp/a", b"one ")
    await box.put("/tmp/b", b"two")
    answer = await box.client.post(
        "/files/compose",
        json={"source_paths": ["/tmp/a", "/tmp/b"], "destination": "joined/c"},
        headers=box.headers(),
    )
    assert answer.json()["path"] == "/home/user/joined/c"
    assert (await box.get("joined/c")).content == b"one two"
    missing = {"source_paths": ["/tmp/none"], "destination": "/tmp/d"}
    failure(await box.client.post("/files/compose", json=missing, headers=box.headers()), 404)
    failure(await box.client.post("/files/compose", content=b"[]", headers=box.headers()), 400)
