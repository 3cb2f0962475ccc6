"""From ``up`` to ``kill``, as a user types it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import COMMAND, Paddock
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def test_up_keeps_its_secrets_to_its_owner(up: tuple[Path, str], paddock: Paddock) -> None:
    home, _ = up
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600
    assert (home / "key").read_text().strip() not in paddock("health").stdout


def test_a_port_that_is_taken_is_said_in_one_line(paddock: Paddock) -> None:
    port = paddock.url.rsplit(":", 1)[1]
    said = paddock("up", "--port", port, check=1).stderr
    assert said.startswith(f"Error: Cannot listen on 127.0.0.1:{port}")
    assert "--port" in said


def test_a_provider_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    assert (
        "Error: SANDBOX_PROVIDER='nonsense'"
        in Paddock(tmp_path)("up", "--port", "0", "--provider", "nonsense", check=1).stderr
    )


def test_a_database_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    said = Paddock(tmp_path)("up", "--port", "0", "--provider", "local", "--database-url", "nonsense", check=1).stderr
    assert said.startswith("Error: DATABASE_URL is not a URL")


def test_keys_open_the_server_until_they_are_revoked(paddock: Paddock, tmp_path: Path) -> None:
    made = paddock.json("keys", "create", "laptop", "--user", "bob")
    assert made["user_id"] == "bob"
    bob = Paddock(tmp_path, paddock.url, made["key"])
    assert bob.json("list")["sandboxes"] == []
    assert made["key_id"] in [key["key_id"] for key in paddock.json("keys", "list")["keys"]]
    assert made["key"] not in paddock("keys", "list").stdout
    assert paddock("keys", "create", "second").stdout.startswith("e2b_")
    paddock("keys", "revoke", str(made["key_id"]))
    assert bob.json("list", check=1)["error"]["code"] == "unauthorized"


def test_keys_can_be_made_without_a_server(tmp_path: Path) -> None:
    user = Paddock(tmp_path, "http://127.0.0.1:1")
    made = user.json("keys", "create", "laptop")
    assert made["key"].startswith("e2b_")
    assert [key["name"] for key in user.json("keys", "list")["keys"]] == ["laptop"]
    user("keys", "revoke", str(made["key_id"]))
    assert user.json("keys", "list")["keys"] == []
    assert "name: may have up to 63 letters" in user("keys", "create", "not/safe", check=1).stderr
    assert user.json("keys", "list", "--server", "http://127.0.0.1:1", check=1)["error"]["code"] == "server_unreachable"


def test_a_sandbox_from_create_to_kill(paddock: Paddock) -> None:
    made = paddock.json(
        *("create", "--user-id", "alice", "--timeout", "600", "--on-timeout", "delete", "--env", "A=1=2"),
        *("--metadata", "chat=42", "--cpu", "0.5", "--memory", "64", "--disk", "100"),
    )
    name = made["sandbox_id"]
    assert re.fullmatch(r"alice_[0-9a-f]{8}\n", paddock("create", "--user-id", "alice").stdout)
    assert (made["on_timeout"], made["metadata"], made["resources"]["memory_mb"]) == ("delete", {"chat": "42"}, 64)
    assert paddock("exec", name, "--", "echo $A").stdout == "1=2\n"
    assert re.search(rf"{name}\s+running\s+alice", paddock("list").stdout)
    assert name in [box["sandbox_id"] for box in paddock.json("list", "--user-id", "alice", "--all")["sandboxes"]]
    assert "10 min idle, then delete" in paddock("status", name).stdout
    assert "pause in 20 min" in paddock("timeout", name, "1200", "--action", "pause").stdout
    assert paddock("pause", name).stdout == f"{name} paused\n"
    assert paddock.json("status", name)["status"] == "paused"
    assert paddock("resume", name).stdout == f"{name} running\n"
    urls = paddock("url", name, "3000")
    assert re.fullmatch(r"http://3000-\S+\n", urls.stdout)
    assert re.fullmatch(r"For programs such as curl or Python: http://localhost:\d+/p/\S+/3000/\S+\n", urls.stderr)
    assert re.fullmatch(r"http://localhost:\d+/p/\S+\n", (program := paddock("url", name, "3000", "--program")).stdout)
    assert program.stderr == "" and "/p/" in paddock.json("url", name, "3000")["program_url"]
    assert "sandbox.running" in paddock("events", name).stdout
    events = paddock.json("events", name, "--after", "1")["events"]
    assert events[0]["seq"] == 2
    assert "alice" in paddock("usage", name).stdout
    assert paddock("usage", "--since", "2000-01-01").stdout.startswith("USER")
    assert paddock("delete", name).stdout == f"{name} deleted\n"
    assert name not in paddock("list").stdout
    followed = paddock("events", name, "--follow", "--json").stdout.splitlines()
    assert json.loads(followed[-1])["type"] == "sandbox.deleted"


def test_what_stands_around_a_sandbox(paddock: Paddock) -> None:
    name = paddock("create", "--egress", "none", "--allow", "a.test", "--deny", "*.b.test:443").stdout.strip()
    assert re.search(r"egress\s+none", paddock("status", name).stdout)
    shown = paddock("egress", name).stdout
    assert "a.test" in shown and "*.b.test:443" in shown and "0, 0 denied" in shown
    assert paddock.json("egress", name, "--allow", "c.test", "--allow", "d.test")["allow"] == ["c.test", "d.test"]
    assert paddock.json("egress", name, "--deny", "")["deny"] == []
    assert "seccomp" in paddock("isolation", name).stdout
    assert "isolation level" in paddock("create", "--isolation", "hardened", check=1).stderr
    assert "not for mounting" in paddock("create", "--mount", ".:/workspace", check=1).stderr
    assert re.search(r"pool\s+\d+ ready of \d+", paddock("health").stdout)
    paddock("kill", name)


def test_many_are_tried_even_when_one_fails(paddock: Paddock, box: str) -> None:
    tried = paddock("kill", "nobody_00000000", box, check=1)
    assert tried.stdout == f"{box} deleted\n"
    assert "nobody_00000000" in tried.stderr
    document = paddock.json("kill", "nobody_00000000", "nobody_00000001", check=1)
    assert set(document["error"]["details"]["failed"]) == {"nobody_00000000", "nobody_00000001"}


def test_exec_is_as_a_command_at_home(paddock: Paddock, box: str) -> None:
    done = paddock.raw("exec", box, "--cwd", "/tmp", "-e", "A=b c", "--", r"printf '\377'; echo $A >&2; pwd; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"\xff/tmp\n", b"b c\n", 7)
    assert paddock("exec", box, "--", "printf", "%s|", "a b", "$HOME", "'").stdout == "a b|$HOME|'|"
    assert paddock("exec", box, "-i", "--", "tr a-z A-Z", input="shout").stdout == "SHOUT"
    assert paddock("exec", box, "--hard-timeout", "0.2", "--", "sleep 30", check=137)


def test_exec_says_as_json_what_came_of_it(paddock: Paddock, box: str) -> None:
    done = paddock("exec", box, "--json", "--", "echo out; exit 3", check=3)
    assert json.loads(done.stdout)["stdout"] == "out\n"


def test_exec_stops_watching_and_the_command_runs_on(paddock: Paddock, box: str) -> None:
    watched = paddock(
        "exec", box, "--timeout", "0.2", "--", "echo begun; sleep 1; echo done > /workspace/done", check=124
    )
    assert watched.stdout == "begun\n"
    assert re.search(r"Still running as p_[0-9a-f]{16}", watched.stderr)
    process_id = paddock("exec", box, "--background", "--", "sleep 0.1").stdout.strip()
    assert re.fullmatch(r"p_[0-9a-f]{16}", process_id)
    assert (
        paddock("exec", box, "--", "while [ ! -e /workspace/done ]; do sleep 0.1; done; cat /workspace/done").stdout
        == "done\n"
    )


def test_ctrl_c_reaches_the_remote_process(paddock: Paddock, box: str) -> None:
    process = paddock.start(
        "exec", box, "--", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert (output, process.returncode) == (b"caught\n", 9)


def test_a_second_ctrl_c_detaches(paddock: Paddock, box: str) -> None:
    process = paddock.start("exec", box, "--", "trap 'echo no' INT; echo ready; while :; do sleep 0.1; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"no\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"Detached: it may run on as p_" in said


def test_a_reader_who_leaves_ends_the_command(paddock: Paddock, box: str) -> None:
    process = paddock.start("exec", box, "--", "yes")
    assert process.stdout is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(20) == 141
    gone = "while pgrep -x yes; do sleep 0.1; done; echo gone"
    assert paddock("exec", box, "--hard-timeout", "10", "--", gone).stdout.endswith("gone\n")


def test_files_go_in_and_out(paddock: Paddock, box: str, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o750)
    assert "Copied 1 file, 3.0 MB" in paddock("cp", str(source), f"{box}:/workspace/").stderr
    back = tmp_path / "back.bin"
    assert paddock.json("cp", f"{box}:/workspace/source.bin", str(back))["bytes"] == 3_000_000
    assert back.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(back.stat().st_mode) == 0o750
    paddock("cp", "-", f"{box}:/workspace/piped", input="from a pipe")
    assert paddock("cp", f"{box}:/workspace/piped", "-").stdout == "from a pipe"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.bin", "source.bin"]


def test_directories_go_in_and_out(paddock: Paddock, box: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep" / "empty").mkdir(parents=True)
    (tree / "deep" / "file").write_text("deep")
    (tree / "ünï cödé").write_text("name")
    (tree / "link").symlink_to("/etc/hostname")
    (tree / "directory-link").symlink_to("/etc")
    into = paddock("cp", str(tree), f"{box}:/workspace/copy")
    assert "directory-link" in into.stderr
    paddock("exec", box, "--", "ln -s /etc/passwd /workspace/copy/outside")
    out = paddock.json("cp", f"{box}:/workspace/copy", str(tmp_path / "back"))
    assert out["skipped"] == ["/workspace/copy/outside"]
    back = tmp_path / "back"
    assert (back / "deep" / "file").read_text() == "deep"
    assert (back / "deep" / "empty").is_dir()
    assert (back / "ünï cödé").read_text() == "name"
    assert not (back / "outside").exists()
    paddock("cp", f"{box}:/workspace/copy", str(tmp_path / "back"))
    assert (back / "copy" / "deep" / "file").exists()


def test_names_that_a_sandbox_chose_do_nothing_to_a_terminal(paddock: Paddock, box: str, tmp_path: Path) -> None:
    """The title is set, the screen is cleared, a line is overwritten: by the name of a file."""
    evil = "a\\x1b]0;owned\\x07\\xc2\\x9b2J\\rb"
    for make in ("mkdir -p evil", f"ln -sf /x \"evil/$(printf '{evil}')\"", f"touch \"evil/$(printf 'f{evil}')\""):
        paddock("exec", box, "--", f"cd /workspace && {make}")
    out = _on_a_terminal(paddock, "cp", f"{box}:/workspace/evil", str(tmp_path / "back"))
    assert "Skipped" in out and "\\x1b]0;owned" in out
    seen = [
        out,
        _on_a_terminal(paddock, "events", box),
        _on_a_terminal(paddock, "cp", f"{box}:/workspace/evil", str(tmp_path / "more"), "--json"),
    ]
    shown = _on_a_terminal(paddock, "create", "--user-id", "tty", "--metadata", "note=\x1b]0;owned\x07\x9b2J")
    seen += [
        shown,
        _on_a_terminal(paddock, "list"),
        _on_a_terminal(paddock, "tool", "call", box, "list_directory", "path=/workspace/evil"),
    ]
    for text in seen:
        assert "\x1b]" not in text and "\x07" not in text and "\x9b" not in text and "\rb" not in text
    raw = _on_a_terminal(paddock, "exec", box, "--", "printf '\\033]0;mine\\007'")
    assert "\x1b]0;mine" in raw, "what a program writes is passed on as it is"


def test_failures_are_one_line_and_a_hint(paddock: Paddock, box: str, tmp_path: Path) -> None:
    missing = paddock("status", "nobody_00000000", check=1)
    assert missing.stdout == ""
    assert missing.stderr.splitlines()[0].startswith("Error: There is no sandbox 'nobody_00000000'")
    assert missing.stderr.splitlines()[1].startswith("Hint: `paddock list`")
    assert paddock.json("status", "nobody_00000000", check=1)["error"]["code"] == "sandbox_not_found"
    assert "no file" in paddock("cp", str(tmp_path / "nothing"), f"{box}:/workspace/", check=1).stderr
    assert "Error:" in paddock("cp", f"{box}:/workspace/nothing", str(tmp_path), check=1).stderr
    assert "Error:" in paddock("create", "--user-id", "not/safe", check=1).stderr
    unreachable = Paddock(tmp_path, "http://127.0.0.1:1")("list", check=1).stderr
    assert "No Paddock server answers at http://127.0.0.1:1" in unreachable
    keyless = Paddock(tmp_path, paddock.url)("list", check=1).stderr
    assert "PADDOCK_API_KEY" in keyless
    assert Paddock(tmp_path)("--server", paddock.url, "--api-key", "wrong", "list", check=1)
    assert Paddock(tmp_path)("list", "--server", paddock.url, "--api-key", "wrong", check=1)


def test_ids_are_completed_and_silence_is_kept_without_a_server(paddock: Paddock, box: str, tmp_path: Path) -> None:
    assert box in _complete(paddock).split()
    assert _complete(Paddock(tmp_path, "http://127.0.0.1:1")).strip() == ""


def _complete(user: Paddock) -> str:
    asked = {"_PADDOCK_COMPLETE": "complete_bash", "COMP_WORDS": "paddock status al", "COMP_CWORD": "2"}
    done = subprocess.run(COMMAND, env=user.env | asked, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return done.stdout


def test_on_a_terminal_there_are_colours_and_advice_and_in_a_pipe_there_are_none(paddock: Paddock, box: str) -> None:
    assert "\x1b[" not in paddock("list").stdout
    shown = _on_a_terminal(paddock, "list")
    assert "\x1b[32mrunning" in shown
    assert "\x1b[3" not in _on_a_terminal(paddock, "list", NO_COLOR="1")
    made = _on_a_terminal(paddock, "create", "--user-id", "tty")
    assert "Try: paddock exec tty_" in made


def test_urls_are_whole_lines_on_a_narrow_terminal(paddock: Paddock, box: str) -> None:
    address = paddock("url", box, "3000").stdout.strip()
    shown = _on_a_terminal(paddock, "url", box, "3000", COLUMNS="80").splitlines()
    assert len(address) > 80 and [len(line) for line in shown if line.startswith("http")] == [len(address)]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", _on_a_terminal(paddock, "status", box, COLUMNS="40"))
    urls = re.findall(r"https?://\S+", paddock("status", box).stdout)
    assert len(urls) == 2
    for url in urls:
        assert re.search(rf"^{re.escape(url.partition('?')[0])}(\?\S+)?\r?$", plain, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [("list", "--json"), ("template", "list"), ("version",), ("health",), ("keys", "list"), ("--help",)],
    ids=" ".join,
)
def test_a_reader_who_leaves_hears_nothing(words: tuple[str, ...], paddock: Paddock) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        process = paddock.start(*words, stdout=closed)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) in [(141, b""), (1, b"")]


def test_what_never_ends_is_said_so(paddock: Paddock) -> None:
    made = paddock.json("create", "--user-id", "alice", "--auto-resume")
    assert "1 h idle, then pause" in paddock("status", made["sandbox_id"]).stdout
    key = (paddock.home / "key").read_text().strip()
    answer = httpx.post(
        f"{paddock.url}/daytona/api/sandbox", json={"autoStopInterval": 0}, headers={"Authorization": f"Bearer {key}"}
    )
    answer.raise_for_status()
    [row] = [line for line in paddock("list").stdout.splitlines() if line.startswith("admin_")]
    assert row.rstrip().endswith("never")
    assert re.search(r"^timeout\s+never", paddock("status", row.split()[0]).stdout, re.MULTILINE)


def test_templates_are_the_servers(paddock: Paddock, tmp_path: Path) -> None:
    [row] = paddock.json("template", "list")["templates"]
    assert (row["template_id"], row["provider"], row["default"]) == ("host", "local", True)
    alone = Paddock(tmp_path)
    found = alone.json("template", "list")["templates"]
    assert [(one["template_id"], one["provider"]) for one in found] == [("host", "local")]


def _on_a_terminal(user: Paddock, *words: str, **env: str) -> str:
    outer, inner = pty.openpty()
    env = user.env | {"TERM": "xterm", "COLUMNS": "160"} | env
    process = subprocess.Popen((*COMMAND, *words), env=env, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    try:
        while chunk := os.read(outer, 65536):
            shown += chunk
    except OSError:  # EIO: the other side is closed
        pass
    os.close(outer)
    assert process.wait(30) == 0
    return shown.decode()
