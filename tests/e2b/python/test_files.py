"""Files and folders: what is there, and what becomes of it."""

from datetime import UTC, datetime, timedelta

import pytest


def test_a_folder_is_listed_in_order(sandbox, folder):
    sandbox.files.write(f"{folder}/b.txt", "bb")
    sandbox.files.write(f"{folder}/a.txt", "a")
    sandbox.files.make_dir(f"{folder}/c")
    found = sandbox.files.list(folder)
    assert [(each.name, each.type.value, each.path, each.size) for each in found[:2]] == [
        ("a.txt", "file", f"{folder}/a.txt", 1),
        ("b.txt", "file", f"{folder}/b.txt", 2),
    ]
    assert (found[2].name, found[2].type.value) == ("c", "dir")


def test_a_list_goes_as_deep_as_it_is_told(sandbox, folder):
    sandbox.files.write(f"{folder}/one/two/three.txt", "3")
    names = [each.path.removeprefix(f"{folder}/") for each in sandbox.files.list(folder, depth=2)]
    assert names == ["one", "one/two"]
    names = [each.path.removeprefix(f"{folder}/") for each in sandbox.files.list(folder, depth=3)]
    assert names == ["one", "one/two", "one/two/three.txt"]


def test_a_list_of_no_depth_is_refused(sandbox, folder, sdk):
    with pytest.raises(sdk.error("InvalidArgumentException")):
        sandbox.files.list(folder, depth=0)


def test_a_list_of_a_file_is_refused(sandbox, folder, sdk):
    sandbox.files.write(f"{folder}/file", "x")
    with pytest.raises(sdk.error("InvalidArgumentException")):
        sandbox.files.list(f"{folder}/file")


def test_a_list_of_nothing_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("FileNotFoundException", "NotFoundException")):
        sandbox.files.list("/no/such/folder")


def test_a_list_shows_links_as_links(sandbox, folder):
    sandbox.files.write(f"{folder}/real/file", "x")
    sandbox.commands.run("ln -s real link && ln -s real/file plain", cwd=folder)
    found = {each.name: each for each in sandbox.files.list(folder, depth=3)}
    assert found["link"].symlink_target == f"{folder}/real"
    assert found["plain"].symlink_target == f"{folder}/real/file"
    assert len([each for each in sandbox.files.list(folder, depth=3) if each.name == "file"]) == 1


def test_a_relative_path_begins_at_home(sandbox, folder):
    name = folder.removeprefix("/home/user/")
    sandbox.files.write(f"{name}/note", "home")
    assert sandbox.files.read(f"{folder}/note") == "home"
    assert sandbox.files.read(f"~/{name}/note") == "home"


def test_a_new_folder_is_made_with_its_parents(sandbox, folder):
    assert sandbox.files.make_dir(f"{folder}/one/two") is True
    assert sandbox.files.get_info(f"{folder}/one/two").type.value == "dir"


def test_a_folder_that_is_there_is_not_made_again(sandbox, folder):
    assert sandbox.files.make_dir(folder) is False


def test_a_folder_in_the_place_of_a_file_is_refused(sandbox, folder, sdk):
    sandbox.files.write(f"{folder}/file", "x")
    with pytest.raises(sdk.error("InvalidArgumentException")):
        sandbox.files.make_dir(f"{folder}/file")


def test_info_of_a_file(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "five!")
    info = sandbox.files.get_info(f"{folder}/file")
    assert (info.name, info.path, info.type.value, info.size) == ("file", f"{folder}/file", "file", 5)
    assert (info.mode, info.permissions) == (0o644, "-rw-r--r--")
    assert (info.owner, info.group) == ("user", "user")
    assert abs(datetime.now(UTC) - info.modified_time.replace(tzinfo=UTC)) < timedelta(minutes=1)
    assert info.symlink_target is None


def test_info_of_a_folder(sandbox, folder):
    info = sandbox.files.get_info(folder)
    assert (info.type.value, info.mode, info.permissions) == ("dir", 0o755, "drwxr-xr-x")


def test_info_of_a_link(sandbox, folder):
    sandbox.files.write(f"{folder}/real", "12345")
    sandbox.commands.run("ln -s real link", cwd=folder)
    info = sandbox.files.get_info(f"{folder}/link")
    assert (info.name, info.symlink_target) == ("link", f"{folder}/real")


def test_info_of_nothing_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("FileNotFoundException", "NotFoundException")):
        sandbox.files.get_info("/no/such/file")


def test_exists_tells_of_files_and_folders(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "")
    assert sandbox.files.exists(f"{folder}/file") is True
    assert sandbox.files.exists(folder) is True
    assert sandbox.files.exists(f"{folder}/other") is False


def test_a_file_is_renamed(sandbox, folder):
    sandbox.files.write(f"{folder}/old", "same")
    entry = sandbox.files.rename(f"{folder}/old", f"{folder}/deep/new")
    assert (entry.name, entry.path, entry.type.value) == ("new", f"{folder}/deep/new", "file")
    assert sandbox.files.exists(f"{folder}/old") is False
    assert sandbox.files.read(f"{folder}/deep/new") == "same"


def test_a_folder_is_renamed_with_what_is_in_it(sandbox, folder):
    sandbox.files.write(f"{folder}/old/file", "same")
    sandbox.files.rename(f"{folder}/old", f"{folder}/new")
    assert sandbox.files.read(f"{folder}/new/file") == "same"


def test_renaming_nothing_is_not_found(sandbox, folder, sdk):
    with pytest.raises(sdk.error("FileNotFoundException", "NotFoundException")):
        sandbox.files.rename(f"{folder}/nothing", f"{folder}/new")


def test_a_folder_is_removed_with_what_is_in_it(sandbox, folder):
    sandbox.files.write(f"{folder}/one/two", "x")
    sandbox.files.remove(f"{folder}/one")
    assert sandbox.files.exists(f"{folder}/one") is False


def test_removing_nothing_is_fine(sandbox, folder):
    sandbox.files.remove(f"{folder}/nothing")


def test_files_belong_to_who_asked(sandbox, folder):
    sandbox.files.write("/root/secret", "x", user="root")
    assert sandbox.files.get_info("/root/secret", user="root").owner == "root"
    assert sandbox.files.read("/root/secret", user="root") == "x"
    sandbox.files.remove("/root/secret", user="root")


def test_names_may_be_odd(sandbox, folder):
    for name in ("with space", "ü漢🐴", "per%20cent", "que?ry&a=b#c", "quo'te\"s", "plus+", "new\\back"):
        sandbox.files.write(f"{folder}/{name}", name)
        assert sandbox.files.read(f"{folder}/{name}") == name
    assert len(sandbox.files.list(folder)) == 7
