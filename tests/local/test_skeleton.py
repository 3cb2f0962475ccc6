"""The layers of template ``host``: what of the host may be seen, decided on trees made for the purpose."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import pytest

from paddock.providers.base import Shape
from paddock.providers.local import host_root, templates
from tests.local.place import PRIVILEGED, Inside, Place, as_root


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A small ``/usr``, with things in it that not every user of the host may read."""
    top = tmp_path / "usr"
    for path, mode in {
        "bin/tool": 0o755,
        "bin/only-run": 0o711,
        "bin/setuid": 0o4711,
        "bin/admins": 0o750,
        "lib/data": 0o644,
        "lib/key": 0o640,
        "lib/secrets/inner": 0o644,
        "lib/listless/inner": 0o644,
        "lib/open/deep/token": 0o600,
        "lib/open/deep/plain": 0o644,
    }.items():
        file = top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        file.chmod(mode)
    (top / "lib/secrets").chmod(0o750)
    (top / "lib/listless").chmod(0o711)
    (top / "lib/link").symlink_to("key")
    return top


def test_what_not_everybody_may_read_is_found(top: Path) -> None:
    found = {str(path.relative_to(top)) for path in host_root.hidden_below(top)}
    assert found == {"bin/admins", "lib/key", "lib/secrets", "lib/listless", "lib/open/deep/token"}


def test_a_tree_that_anybody_may_read_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/f").write_text("x")
    for path in (tmp_path / "a", tmp_path / "a/b"):
        path.chmod(0o755)
    assert host_root.hidden_below(tmp_path) == []


def test_a_folder_that_is_gone_meanwhile_is_no_trouble(tmp_path: Path) -> None:
    assert host_root.hidden_below(tmp_path / "never") == []


@as_root  # making a whiteout needs it
def test_the_hiding_layer_has_a_whiteout_for_each_and_the_modes_of_their_folders(top: Path, tmp_path: Path) -> None:
    (top / "lib/open").chmod(0o751 | 0o004)
    made = host_root.make_hiding(tmp_path / "made" / "hiding", top, host_root.hidden_below(top))
    devices = {
        str(path.relative_to(made)): path.lstat().st_rdev
        for path in made.rglob("*")
        if stat.S_ISCHR(path.lstat().st_mode)
    }
    assert set(devices) == {"bin/admins", "lib/key", "lib/secrets", "lib/listless", "lib/open/deep/token"}
    assert set(devices.values()) == {os.makedev(0, 0)}
    assert (made / "lib/open").stat().st_mode == (top / "lib/open").stat().st_mode
    assert made.stat().st_mode == top.stat().st_mode
    assert not [path for path in made.rglob("*") if path.is_file()], "nothing of the content was copied"


@as_root
def test_making_the_layer_again_keeps_the_first(top: Path, tmp_path: Path) -> None:
    made = host_root.make_hiding(tmp_path / "hiding", top, host_root.hidden_below(top))
    before = made.stat().st_ino
    host_root.make_hiding(tmp_path / "hiding", top, host_root.hidden_below(top))
    assert made.stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_skeleton_has_no_people_and_no_secrets_of_the_host(tmp_path: Path) -> None:
    made = host_root.make(tmp_path / "skeleton", PRIVILEGED)
    for line in (made / "etc/passwd").read_text().splitlines():
        name, _, number, *_ = line.split(":")
        assert name == "user" or int(number) not in range(1000, 65_534)
    assert (made / "etc/shadow").read_text() == "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n"
    assert (made / "etc/hostname").read_text() == "sandbox\n"
    for name in (
        "ssh",
        "shadow-",
        "gshadow",
        "sudoers",
        "machine-id.old",
        "NetworkManager",
        "ssl/private",
        "letsencrypt",
    ):
        assert not (made / "etc" / name).exists(), name
    assert list((made / "home").iterdir()) == [made / "home/user"]
    assert {path.name for path in (made / "root").iterdir()} <= {".bashrc", ".profile"}


def test_only_what_everybody_may_read_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "etc"
    (source / "sub").mkdir(parents=True)
    for name, mode in {"public": 0o644, "private": 0o600, "sub/inner": 0o640, "program": 0o4755}.items():
        (source / name).write_text(name)
        (source / name).chmod(mode)
    os.mkfifo(source / "pipe", 0o644)
    host_root._copy_public(source, tmp_path / "copy")
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == {"public", "program", "sub"}
    assert (tmp_path / "copy/program").stat().st_mode & 0o7777 == 0o755


def test_package_sources_with_a_password_in_them_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "sources.list.d"
    source.mkdir()
    (source / "open.list").write_text("deb http://mirror.example.test/debian stable main\n")
    (source / "paid.list").write_text("deb https://me:password@mirror.example.test/debian stable main\n")
    host_root._copy_public(source, tmp_path / "copy", without_credentials=True)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["open.list"]


async def test_a_sandbox_of_the_host_template_sees_no_home_no_keys_and_no_shadow(inside: Inside) -> None:
    assert await inside.says("ls /home; ls -A /home/user | grep -v -e .bashrc -e .profile; true") == "user"
    assert await inside.says(
        "ls -A /root | grep -v -e .bashrc -e .profile; ls -A /mnt /srv /media; true", user="root"
    ) in {"/media:\n\n/mnt:\n\n/srv:"}
    shadow = await inside.says("cat /etc/shadow", user="root")
    assert shadow.splitlines() == ["root:*:19000:0:99999:7:::", "user:*:19000:0:99999:7:::"]
    assert (await inside.run("ls /etc/ssh/ssh_host_*", user="root")).code != 0
    assert await inside.says("ls -A /var/log /var/mail; true", user="root") == "/var/log:\n\n/var/mail:"


async def test_no_file_below_usr_that_is_closed_to_others_can_be_read_inside(inside: Inside) -> None:
    """Whatever the host has: even its root must not read through the sandbox's root what others may not."""
    hidden = host_root.hidden_below(Path("/usr"))
    if not hidden:
        pytest.skip("this host has nothing below /usr that is closed to others")
    listing = "\n".join(map(str, hidden))
    await inside.put("/workspace/hidden", listing + "\n")
    for user in ("user", "root"):
        ran = await inside.run(
            'while read -r path; do cat "$path" >/dev/null 2>&1 && echo "$path"; done < hidden', user=user
        )
        assert ran.text == ""


@as_root
def test_what_becomes_private_later_is_added_to_the_layer(top: Path, tmp_path: Path) -> None:
    made = host_root.make_hiding(tmp_path / "hiding", top, host_root.hidden_below(top))
    (top / "share/new").mkdir(parents=True)
    (top / "share/new/key").write_text("secret")
    (top / "share/new/key").chmod(0o600)
    (top / "lib/open").chmod(0o700)
    (top / "lib/secrets").chmod(0o755)
    (top / "lib/secrets/inner").chmod(0o600)
    for _ in range(2):
        host_root.hide_more(made, top, host_root.hidden_below(top))
        for path in ("share/new/key", "lib/open", "lib/secrets"):
            status = (made / path).lstat()
            assert (stat.S_ISCHR(status.st_mode), status.st_rdev) == (True, 0), path
        assert stat.S_IMODE((made / "share").stat().st_mode) == stat.S_IMODE((top / "share").stat().st_mode)


@as_root
async def test_a_private_file_made_after_the_layers_is_hidden_from_new_sandboxes(
    place: Place, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_HIDDEN_GOOD_SECONDS", 0.0)
    await place.provider.warm(Shape("host", 128))
    secret = Path("/usr/local/share") / f"paddock-test-{secrets.token_hex(8)}"
    try:
        secret.touch(mode=0o600)
    except OSError as error:
        pytest.skip(f"nothing can be made below /usr here: {error}")
    try:
        secret.write_text("a secret of the host")
        await place.restart()
        for _ in range(2):
            later = await place.create()
            ran = await later.run(f"cat {secret}", user="root")
            assert (ran.code, ran.text) == (1, "")
    finally:
        secret.unlink()
