"""``filesystem.Filesystem`` on the wire: entries to the last field, orders, and the code of every failure."""

from __future__ import annotations

import re

from tests.envd.box import Box

SERVICE = "filesystem.Filesystem/"
STAT, MAKE, MOVE, LIST, REMOVE = (SERVICE + name for name in ("Stat", "MakeDir", "Move", "ListDir", "Remove"))


async def names(box: Box, path: str, depth: int = 0) -> list[str]:
    return [entry["path"] for entry in (await box.ok(LIST, {"path": path, "depth": depth})).get("entries", [])]


async def test_an_entry_has_every_field(box: Box) -> None:
    await box.put("/tmp/file.txt", b"12345")
    entry = (await box.ok(STAT, {"path": "/tmp/file.txt"}))["entry"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", entry.pop("modifiedTime"))
    assert entry == {
        "name": "file.txt",
        "type": "FILE_TYPE_FILE",
        "path": "/tmp/file.txt",
        "size": "5",
        "mode": 0o644,
        "permissions": "-rw-r--r--",
        "owner": "user",
        "group": "user",
        "isSymlink": False,
    }


async def test_permissions_are_written_as_go_writes_them(box: Box) -> None:
    await box.run("mkdir d; chmod 1777 d; touch x; chmod 4755 x; touch y; chmod 2070 y; touch z; chmod 0 z")
    expected = {"d": "dtrwxrwxrwx", "x": "urwxr-xr-x", "y": "g---rwx---", "z": "----------"}
    for name, text in expected.items():
        entry = (await box.ok(STAT, {"path": name}))["entry"]
        assert entry["permissions"] == text
    assert (await box.ok(STAT, {"path": "d"}))["entry"]["mode"] == 0o777


async def test_a_symlink_is_seen_through(box: Box) -> None:
    await box.run(
        "mkdir -p real; echo hi > real/file; chmod 600 real/file; ln -s real dir; ln -s dir/file two; ln -s no gone"
    )
    two = (await box.ok(STAT, {"path": "two"}))["entry"]
    assert (two["type"], two["mode"], two["isSymlink"]) == ("FILE_TYPE_FILE", 0o600, True)
    assert (two["symlinkTarget"], two["permissions"]) == ("/home/user/real/file", "Lrwxrwxrwx")
    assert (two["name"], two["path"]) == ("two", "/home/user/two")
    assert (await box.ok(STAT, {"path": "dir"}))["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    gone = (await box.ok(STAT, {"path": "gone"}))["entry"]
    assert (gone["type"], gone["isSymlink"]) == ("FILE_TYPE_UNSPECIFIED", True)
    listed = await names(box, "dir")
    assert listed == ["/home/user/dir/file"]


async def test_a_tree_is_listed_as_one_walks_it(box: Box) -> None:
    await box.run("mkdir -p t/a/x t/a-b t/b; touch t/a/1 t/a/x/2 t/a-b/3 t/b/4 t/z; ln -s a t/link")
    top = [f"/home/user/t/{name}" for name in ("a", "a-b", "b", "link", "z")]
    assert await names(box, "t") == top
    assert await names(box, "t", 1) == top
    assert await names(box, "t", 2) == [
        f"/home/user/t/{name}" for name in ("a", "a/1", "a/x", "a-b", "a-b/3", "b", "b/4", "link", "z")
    ]
    assert len(await names(box, "t", 9)) == 10
    assert await names(box, "t/b/../a/x") == ["/home/user/t/a/x/2"]


async def test_only_a_directory_can_be_listed(box: Box) -> None:
    await box.put("file", b"")
    await box.fails(LIST, {"path": "file"}, 400, "invalid_argument")
    await box.fails(LIST, {"path": "missing"}, 404, "not_found")
    await box.fails(STAT, {"path": "missing"}, 404, "not_found")
    assert (await box.ok(LIST, {"path": "/tmp"})) in ({}, {"entries": []})


async def test_a_directory_is_made_once_with_its_parents(box: Box) -> None:
    made = (await box.ok(MAKE, {"path": "/srv/a/b"}))["entry"]
    assert (made["path"], made["type"], made["owner"]) == ("/srv/a/b", "FILE_TYPE_DIRECTORY", "user")
    assert (await box.ok(STAT, {"path": "/srv/a"}))["entry"]["owner"] == "user"
    await box.fails(MAKE, {"path": "/srv/a/b"}, 409, "already_exists")
    await box.put("file", b"")
    await box.fails(MAKE, {"path": "file"}, 400, "invalid_argument")
    await box.fails(MAKE, {"path": "file/below"}, 400, "invalid_argument")


async def test_moving_makes_room_for_what_comes(box: Box) -> None:
    await box.put("a", b"content")
    moved = (await box.ok(MOVE, {"source": "a", "destination": "new/dir/b"}))["entry"]
    assert moved["path"] == "/home/user/new/dir/b"
    assert (await box.get("new/dir/b")).content == b"content"
    await box.put("c", b"other")
    await box.ok(MOVE, {"source": "c", "destination": "new/dir/b"})
    assert (await box.get("new/dir/b")).content == b"other"
    await box.ok(MOVE, {"source": "new", "destination": "renamed"})
    assert await names(box, "renamed", 3) == ["/home/user/renamed/dir", "/home/user/renamed/dir/b"]
    await box.fails(MOVE, {"source": "missing", "destination": "x"}, 404, "not_found")


async def test_removing_takes_all_and_nothing_is_no_failure(box: Box) -> None:
    await box.run("mkdir -p t/a/b; touch t/a/b/c; ln -s /home/user/t link")
    await box.ok(REMOVE, {"path": "link"})
    assert await names(box, "t") == ["/home/user/t/a"]
    await box.ok(REMOVE, {"path": "t"})
    await box.ok(REMOVE, {"path": "t"})
    await box.fails(STAT, {"path": "t"}, 404, "not_found")


async def test_files_of_root_can_be_handled_too(box: Box) -> None:
    """As in E2B, where envd runs as root whoever asks."""
    await box.as_user("root").run("mkdir -p /var/of-root; echo x > /var/of-root/f; chmod 700 /var/of-root")
    assert await names(box, "/var/of-root") == ["/var/of-root/f"]
    await box.ok(REMOVE, {"path": "/var/of-root"})


async def test_an_unknown_user_is_told_apart(box: Box) -> None:
    message = await box.as_user("nobody-here").fails(LIST, {"path": "/"}, 401, "unauthenticated")
    assert message == "invalid username: 'nobody-here'"
