"""Plain words run without the shell that they are meant for, and nobody can tell: the real agent beside real bash."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.ids import new_process_id
from paddock.machine.agent import AgentMachine
from paddock.machine.agent.environment import undisturbed
from paddock.machine.base import ProcessSpec
from tests.support.waiting import PATIENCE_S


def spec(command: str, words: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> ProcessSpec:
    argv = ["/bin/bash", "-c", command]
    return ProcessSpec(new_process_id(), argv, cwd=str(cwd), env=env or {}, shortcut=words, label=command)


async def said(machine: AgentMachine, wanted: ProcessSpec) -> tuple[int | None, list[bytes], bytes]:
    """Lines in any order: that of the variables is nobody's business."""
    info, stdout, stderr = await machine.run(wanted, PATIENCE_S)
    return info.exit_code, sorted(stdout.data.splitlines()), stderr.data


@pytest.fixture
def place(folder: Path) -> Path:
    """Programs of every kind, good and bad."""
    scripts = {
        "good": '#!/bin/sh\necho "$0:$#:$1"\n',
        "bare": 'echo "bare $0 $BASH_VERSION"\n',
        "orphan": "#!/no/such/interpreter\n",
        "ended": "#!/bin/sh\nexit 9\n",
        "killed": "#!/bin/sh\nkill -TERM $$\n",
        "showing": "echo $0 $PPID; ulimit -a; umask; pwd; trap; env | sort; exit 4\n",
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "plain").write_text("not a program")
    (folder / "directory").mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "empty").chmod(0o755)
    (folder / "later").mkdir()
    for name in ("plain", "directory", "orphan"):  # a good one stands behind the bad one
        (folder / "later" / name).write_text("#!/bin/sh\necho later\n")
        (folder / "later" / name).chmod(0o755)
    (folder / "link").symlink_to("good")
    return folder


WORDS = """
/bin/echo hi
env
/usr/bin/env
cat /proc/self/cmdline
cat
ls /proc/self/fd
nice
sleep 0
sh showing
./good one
./bare
./orphan
./plain
./directory
./empty
./ended
./killed
./link x
good one
bare
orphan
plain
directory
empty
killed
no-such-program
./no-such-program
./good/below
/
.. x
-x
"""


@pytest.mark.parametrize("line", WORDS.strip().splitlines())
async def test_it_is_as_if_bash_had_run_it(machine: AgentMachine, place: Path, line: str) -> None:
    """Its exit code, its output, its errors and its environment; found in PATH or not, good or bad."""
    path = {"PATH": f"{place}:{place}/later:/usr/local/bin:/usr/bin:/bin"}
    by_bash = await said(machine, spec(line, [], place, path))
    assert await said(machine, spec(line, line.split(), place, path)) == by_bash


@pytest.mark.parametrize(
    "path", ["relative:/usr/bin", ":/usr/bin", "/usr/bin/", "~/bin:/usr/bin", "", "/nowhere", "/usr/bin:"]
)
async def test_every_kind_of_path_is_searched_as_bash_does(machine: AgentMachine, place: Path, path: str) -> None:
    (place / "relative").mkdir()
    (place / "relative" / "env").symlink_to("/usr/bin/env")
    by_bash = await said(machine, spec("env", [], place, {"PATH": path}))
    assert await said(machine, spec("env", ["env"], place, {"PATH": path})) == by_bash


async def test_a_directory_behind_a_link_has_the_name_that_bash_gives_it(machine: AgentMachine, place: Path) -> None:
    (place / "shorter").symlink_to("later")
    by_bash = await said(machine, spec("env", [], place / "shorter"))
    assert await said(machine, spec("env", ["env"], place / "shorter")) == by_bash
    assert f"PWD={place}/later".encode() in by_bash[1]


async def test_the_shell_is_really_left_out(machine: AgentMachine, folder: Path) -> None:
    """Or nothing here would prove anything."""
    assert await said(machine, spec("exit 7", ["/bin/echo", "hi"], folder)) == (0, [b"hi"], b"")


async def test_what_cannot_be_run_is_left_to_the_shell(machine: AgentMachine, folder: Path) -> None:
    assert (await said(machine, spec("exit 7", ["no-such-program"], folder)))[0] == 7


async def test_a_shell_that_was_told_something_is_not_left_out(machine: AgentMachine, folder: Path) -> None:
    (folder / "told").write_text("echo told\n")
    wanted = spec("/bin/echo hi", ["/bin/echo", "hi"], folder, {"BASH_ENV": f"{folder}/told"})
    assert await said(machine, wanted) == (0, [b"hi", b"told"], b"")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "SHELLOPTS",
            "BASHOPTS",
            "POSIXLY_CORRECT",
            "LC_ALL",
            "LANG",
            "SHLVL",
            "PWD",
            "_",
        ),
        *("OLDPWD", "IFS", "UID", "EXECIGNORE", "SSH_CLIENT", "not-a-name", "with.dot", "RANDOM", "BASH_XTRACEFD"),
    ],
)
def test_what_means_something_to_bash_is_known(name: str) -> None:
    assert not undisturbed({"PATH": "/bin", name: "x"})


def test_what_sandboxes_have_means_nothing_to_it() -> None:
    usual = {"PATH": "/bin", "HOME": "/home/user", "TERM": "xterm", "LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}
    assert undisturbed({**usual, "http_proxy": "http://127.0.0.1:3128", "NO_PROXY": "localhost", "MY_KEY": "x y"})


async def test_a_command_without_its_shell_is_shown_and_signalled_as_any(machine: AgentMachine, folder: Path) -> None:
    wanted = spec("sleep 600", ["sleep", "600"], folder)
    info = await machine.spawn(wanted)
    assert info.label == "sleep 600" and info.running
    await machine.signal(info.process_id, signal.SIGTERM)
    assert (await machine.wait(info.process_id, PATIENCE_S)).exit_code == 128 + signal.SIGTERM
