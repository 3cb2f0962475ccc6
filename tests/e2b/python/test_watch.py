"""Watching a folder. The blocking SDK asks for events, the other one is told."""

import contextlib

import pytest
from waiting import wait_until


class Watch:
    """Events of a folder, as (name, kind)."""

    def __init__(self, sandbox, sdk, folder, **options):
        self.events = []
        self._sync = not sdk.is_async
        if self._sync:
            self.handle = sandbox.files.watch_dir(folder, **options)
        else:
            self.handle = sandbox.files.watch_dir(folder, on_event=self.events.append, **options)

    def seen(self):
        if self._sync:
            self.events += self.handle.get_new_events()
        return [(event.name, event.type.value) for event in self.events]

    def until(self, *expected):
        wait_until(lambda: set(expected) <= set(self.seen()))


@pytest.fixture
def watch(sandbox, sdk, folder):
    made = []

    def start(**options):
        made.append(Watch(sandbox, sdk, folder, **options))
        return made[-1]

    yield start
    for each in made:
        with contextlib.suppress(Exception):
            each.handle.stop()


def test_a_new_file_is_made_owned_and_written(sandbox, folder, watch):
    watching = watch()
    sandbox.files.write(f"{folder}/file", "x")
    watching.until(("file", "write"))
    assert watching.seen() == [("file", "create"), ("file", "chmod"), ("file", "write")]


def test_events_are_there_right_after_the_deed(sandbox, folder, watch, sdk):
    if sdk.is_async:
        pytest.skip("the asynchronous SDK is told when they come")
    watching = watch()
    sandbox.files.write(f"{folder}/file", "x")
    assert ("file", "write") in watching.seen()


def test_a_change_a_move_and_an_end_are_told(sandbox, folder, watch):
    sandbox.files.write(f"{folder}/file", "x")
    watching = watch()
    sandbox.files.write(f"{folder}/file", "y")
    watching.until(("file", "write"))
    sandbox.files.rename(f"{folder}/file", f"{folder}/other")
    watching.until(("file", "rename"), ("other", "create"))
    sandbox.files.remove(f"{folder}/other")
    watching.until(("other", "remove"))
    sandbox.commands.run("touch mode && chmod 600 mode", cwd=folder)
    watching.until(("mode", "chmod"))


def test_folders_below_are_watched_when_asked(sandbox, folder, watch):
    sandbox.files.make_dir(f"{folder}/below")
    watching = watch(recursive=True)
    sandbox.files.write(f"{folder}/below/file", "x")
    watching.until(("below/file", "write"))
    sandbox.files.make_dir(f"{folder}/below/new")
    watching.until(("below/new", "create"))
    sandbox.files.write(f"{folder}/below/new/deep", "x")
    watching.until(("below/new/deep", "write"))


def test_folders_below_are_not_watched_otherwise(sandbox, folder, watch):
    sandbox.files.make_dir(f"{folder}/below")
    watching = watch()
    sandbox.files.write(f"{folder}/below/file", "x")
    sandbox.files.write(f"{folder}/last", "x")
    watching.until(("last", "write"))
    assert {name for name, _ in watching.seen()} <= {"last", "below"}


def test_an_event_may_carry_what_it_is_about(sandbox, folder, watch):
    watching = watch(include_entry=True)
    sandbox.files.write(f"{folder}/file", "five!")
    watching.until(("file", "write"))
    written = next(event for event in watching.events if event.type.value == "write")
    assert written.entry.path == f"{folder}/file" and written.entry.type.value == "file"


def test_network_mounts_may_be_allowed(sandbox, folder, watch):
    watching = watch(allow_network_mounts=True)
    sandbox.files.write(f"{folder}/file", "x")
    watching.until(("file", "write"))


def test_a_stopped_watch_tells_no_more(sandbox, folder, watch, sdk):
    watching = watch()
    watching.handle.stop()
    sandbox.files.write(f"{folder}/file", "x")
    if sdk.is_async:
        assert watching.events == []
    else:
        with pytest.raises(sdk.error("SandboxException")):
            watching.handle.get_new_events()


def test_watching_nothing_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("FileNotFoundException", "NotFoundException")):
        Watch(sandbox, sdk, "/no/such/folder")


def test_watching_a_file_is_refused(sandbox, sdk, folder):
    sandbox.files.write(f"{folder}/file", "x")
    with pytest.raises(sdk.error("InvalidArgumentException")):
        Watch(sandbox, sdk, f"{folder}/file")
