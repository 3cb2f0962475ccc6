"""What a command finds when it wakes up in a sandbox of template ``host``. All tests here share one sandbox."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from paddock.machine.base import TerminalSize
from tests.local.place import PRIVILEGED, Inside, Place, as_root

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = "HOST_SECRET_OF_THE_TEST"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    os.environ[SECRET] = "of the host"
    place = Place(tmp_path_factory.mktemp("inside"), tmp_path_factory.getbasetemp() / "made")
    await place.provider.start()
    yield await place.create(env={"FROM_SPEC": "yes"})
    await place.clear()
    del os.environ[SECRET]


async def test_a_command_runs_as_user_with_a_home_and_a_group_of_its_own(inside: Inside) -> None:
    assert await inside.says("id -u; id -un; id -g; id -gn; id -G") == "1000\nuser\n1000\nuser\n1000"
    assert await inside.says("pwd; echo $HOME $USER $LOGNAME $SHELL") == "/workspace\n/home/user user user /bin/bash"
    assert await inside.says("cd && pwd && touch mine && stat -c '%U %G' mine && rm mine") == "/home/user\nuser user"


async def test_the_workspace_and_the_home_are_the_users(inside: Inside) -> None:
    assert await inside.says("stat -c '%U:%G %a' /workspace /home/user") == "user:user 755\nuser:user 755"
    assert await inside.says("touch /workspace/a && stat -c %U /workspace/a && rm /workspace/a") == "user"


async def test_root_is_there_on_request(inside: Inside) -> None:
    assert await inside.says("id -u; id -un; echo $HOME; stat -c %a /root", user="root") == "0\nroot\n/root\n700"
    assert await inside.says("touch /etc/by-root && stat -c %u /etc/by-root && rm /etc/by-root", user="root") == "0"


@as_root  # one id is all that an ordinary user has: inside, "user" and "root" are two views of it
async def test_the_user_cannot_read_or_change_what_is_roots(inside: Inside) -> None:
    await inside.says("echo x > /etc/private && chmod 600 /etc/private", user="root")
    assert (await inside.run("cat /etc/private")).code == 1
    assert (await inside.run("echo y >> /etc/passwd")).code != 0
    assert (await inside.run("ls /root")).code != 0


async def test_new_files_have_the_usual_mode(inside: Inside) -> None:
    for user in ("user", "root"):
        assert await inside.says("umask; touch f; mkdir d; stat -c %a f d; rm -r f d", user=user) == "0022\n644\n755"


async def test_tmp_is_everybodys_and_sticky(inside: Inside) -> None:
    assert await inside.says("stat -c '%a' /tmp /var/tmp /dev/shm") == "1777\n1777\n1777"
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/home/user"):
        assert await inside.says(f"echo hi > {folder}/f && cat {folder}/f && rm {folder}/f") == "hi"


async def test_the_machine_is_called_sandbox(inside: Inside) -> None:
    assert await inside.says("hostname; uname -n; cat /etc/hostname") == "sandbox\nsandbox\nsandbox"
    assert await inside.says("getent hosts sandbox | cut -d' ' -f1")


async def test_nothing_of_the_servers_environment_is_inside(inside: Inside) -> None:
    for user in ("user", "root"):
        names = {line.partition("=")[0] for line in (await inside.says("env", user=user)).splitlines()}
        assert SECRET not in names
        assert not [name for name in names if name.startswith(("PYTEST", "PADDOCK", "VIRTUAL_ENV", "PYTHON"))]
    assert await inside.says("echo $FROM_SPEC $LC_CTYPE") == "yes C.UTF-8"
    assert SECRET not in await inside.says("cat /proc/1/environ | tr '\\0' '\\n'; true", user="root")


async def test_the_agent_is_the_first_process_and_there_are_few_others(inside: Inside) -> None:
    assert await inside.says("cat /proc/1/comm") in {"paddock-agent", "agent"}
    assert int(await inside.says("ls -d /proc/[0-9]* | wc -l")) < 8


async def test_extended_attributes_work_in_the_workspace(inside: Inside) -> None:
    script = (
        "import os; open('f', 'w').close(); os.setxattr('f', 'user.note', b'kept'); "
        "print(os.getxattr('f', 'user.note'), os.listxattr('f'))"
    )
    assert await inside.says(f'python3 -c "{script}"') == "b'kept' ['user.note']"


async def test_a_terminal_is_a_terminal(inside: Inside) -> None:
    process = await inside.start(
        "tty; stty size; echo $TERM; test -t 0 && test -t 1 && echo yes", terminal=TerminalSize(30, 100)
    )
    lines = (await inside.finish(process)).out.decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:4] == ["30 100", "xterm-256color", "yes"]


async def test_the_usual_devices_are_there_and_no_others(inside: Inside) -> None:
    names = set((await inside.says("ls /dev")).split())
    usual = {"null", "zero", "full", "random", "urandom", "tty"}
    assert names == usual | {"ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"}
    assert await inside.says("head -c 4 /dev/zero | od -An -tx1; echo gone > /dev/null; echo out > /dev/stdout") == (
        "00 00 00 00\nout"
    )
    assert (await inside.run("touch /dev/new", user="root")).code != 0


@pytest.mark.parametrize("program", ["python3", "python", "git", "curl", "perl", "bash", "tar", "gcc", "pip3"])
async def test_what_the_host_has_installed_is_there(inside: Inside, program: str) -> None:
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # "python" is there wherever "python3" is: agents type it.
    if shutil.which("python3" if program == "python" else program, path=system) is None:
        pytest.skip(f"the host itself has no {program}")
    assert (await inside.run(f"{program} --version")).code == 0


async def test_git_commits(inside: Inside) -> None:
    if not Path("/usr/bin/git").exists():
        pytest.skip("the host itself has no git")
    configured = "git -c user.name=me -c user.email=me@example.test"
    await inside.says(f"git init -q repo && cd repo && echo x > f && git add f && {configured} commit -qm first")
    assert await inside.says("cd repo && git log --format=%s") == "first"


async def test_sudo_needs_no_password(inside: Inside) -> None:
    assert await inside.says("sudo id -u; sudo -n id -un; sudo sh -c 'echo $HOME'") == "0\nroot\n/root"
    assert await inside.says("sudo -u user id -un; sudo -u root id -un") == "user\nroot"
    assert await inside.says("cd /tmp && sudo pwd") == "/tmp"


async def test_sudo_finds_sudo_again(inside: Inside) -> None:
    """An install script that was started with sudo calls it, too."""
    assert await inside.says("sudo sh -c 'sudo -u user id -u; sudo id -u'") == "1000\n0"


async def test_sudo_passes_streams_and_exit_codes_through(inside: Inside) -> None:
    assert await inside.says("echo one | sudo tee /etc/by-sudo | sudo cat | tr a-z A-Z; cat /etc/by-sudo") == (
        "ONE\none"
    )
    assert (await inside.run("sudo sh -c 'echo err >&2; exit 7'")).code == 7
    assert (await inside.run("sudo sh -c 'echo err >&2; exit 7'")).err == b"err\n"
    assert (await inside.run("sudo sh -c 'kill -TERM $$'")).code == 143
    assert (await inside.run("sudo no-such-program-anywhere")).code != 0
    assert await inside.says("head -c 3000000 /dev/zero | sudo cat | wc -c") == "3000000"


async def test_sudo_forwards_signals(inside: Inside) -> None:
    process = await inside.start(
        "exec sudo sh -c 'trap \"echo bye; exit 9\" TERM; echo up; while :; do sleep 0.05; done'"
    )
    await inside.until(process, b"up")
    await inside.machine.signal(process, 15)
    ran = await inside.finish(process)
    assert (ran.code, ran.out) == (9, b"up\nbye\n")


async def test_sudo_takes_variables_and_drops_the_rest(inside: Inside) -> None:
    assert await inside.says("SECRET=x sudo MINE=1 sh -c 'echo $MINE-$SECRET-$USER-$SUDO_USER'") == "1--root-user"
    assert await inside.says("SECRET=x sudo -E sh -c 'echo $SECRET'") == "x"


async def test_sudo_works_on_a_terminal(inside: Inside) -> None:
    process = await inside.start("sudo sh -c 'tty; id -u'", terminal=TerminalSize())
    lines = (await inside.finish(process)).out.decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/") and lines[1] == "0"


@as_root  # an ordinary user's sandbox has one id; chown to others needs more
async def test_root_may_give_files_away_and_make_users(inside: Inside) -> None:
    assert await inside.says("touch f; sudo chown 33:33 f; stat -c '%u:%g' f; sudo rm f") == "33:33"
    await inside.says("sudo useradd -m other && sudo -u other sh -c 'id -un; cd; pwd' && sudo userdel -r other")


async def test_a_core_is_never_dumped(inside: Inside) -> None:
    ran = await inside.run("ulimit -c unlimited 2>/dev/null; sh -c 'kill -SEGV $$'; echo $?; ls")
    assert "139" in ran.text and "core" not in ran.text


async def test_setuid_programs_give_nothing(inside: Inside) -> None:
    assert await inside.says("grep NoNewPrivs /proc/self/status | tr -d '\\t'") == "NoNewPrivs:1"
    assert await inside.says("grep -E 'Seccomp:|CapEff' /proc/self/status | tr -d '\\t'") in {
        "CapEff:0000000000000000\nSeccomp:2",
        *(() if PRIVILEGED else ("CapEff:000001ffffffffff\nSeccomp:2",)),
    }
