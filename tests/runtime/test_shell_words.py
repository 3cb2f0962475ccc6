"""Lines that need no shell: cut into the words that bash would cut them into, and no other line taken for one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.runtime.shell_words import words_of

HEARD = 'command_not_found_handle() { printf \'%s\\0\' "$#" "$@"; }\n'
"""What bash makes of a line whose program is nowhere: how many words, and which."""

PLAIN = {
    "/bin/echo hi": ["/bin/echo", "hi"],
    "  ls -la\t/tmp \n": ["ls", "-la", "/tmp"],
    "python3 -c 'print(\"a  b\")'": ["python3", "-c", 'print("a  b")'],
    'git commit -m "two  words; and $more"'.replace("$", ""): ["git", "commit", "-m", "two  words; and more"],
    "pip install requests==2.31 'a'b\"c\"": ["pip", "install", "requests==2.31", "abc"],
    "grep -e '' \"\" x": ["grep", "-e", "", "", "x"],
    "python3 -c 'import os\nprint(1)'": ["python3", "-c", "import os\nprint(1)"],
    "./run --rate=50% user@host:path": ["./run", "--rate=50%", "user@host:path"],
}
NOT_PLAIN = [
    *("", "   ", "\n", "''", '"" x', "'ls'", "ls'x'", "a=1", "A=1 ls", "a+=1 ls", "a[0]=1 ls", "%1", "ls # no"),
    *(
        "ls *",
        "ls ?",
        "ls [a]",
        "ls ~",
        "ls a~",
        "ls {a,b}",
        "ls $HOME",
        "ls $(id)",
        "ls `id`",
        'ls "$HOME"',
        'ls "`id`"',
    ),
    *(
        'ls "\\$"',
        "ls a\\ b",
        "ls > x",
        "ls < x",
        "ls 2>x",
        "ls | cat",
        "ls & ",
        "ls; id",
        "ls && id",
        "(ls)",
        "ls (",
        "! ls",
    ),
    *(
        "ls\nid",
        "ls \\\n x",
        "ls 'open",
        'ls "open',
        'ls "a!b"',
        "ls !x",
        "ls ^x",
        "ls é",
        "ls 'é'",
        "é",
        "ls\rx",
        "ls \0",
        "ls\x0bx",
    ),
    *(
        "echo hi",
        "cd /",
        "true",
        "test -f x",
        "[ -f x ]",
        "exit 3",
        "exec ls",
        "source x",
        ". x",
        ": x",
        "time ls",
        "if",
    ),
    *("kill 1", "printf x", "pwd", "export A=1", "eval ls", "command ls", "type ls", "wait", "umask", "ulimit -n"),
    "ls " + "x" * 9000,
]

fragments = st.sampled_from(
    [
        "a",
        "Zed",
        "0",
        "-",
        "--x",
        "_",
        ".",
        "/",
        ",",
        ":",
        "+",
        "@",
        "%",
        "=",
        " ",
        "  ",
        "\t",
        "'",
        '"',
        "'q q'",
        '"d d"',
        "\n",
    ]
)
strange = st.sampled_from([*"$`\\~*?[]{}!#;&|<>()^\r\x0b", "é", "\u3000", "if", "echo", "A=1"])
lines = st.lists(st.one_of(fragments, fragments, fragments, strange), max_size=14).map("".join)
plain_lines = st.lists(fragments, min_size=1, max_size=14).map(lambda parts: "zz" + "".join(parts))


@pytest.mark.parametrize(("line", "words"), PLAIN.items())
def test_a_plain_line_is_its_words(line: str, words: list[str]) -> None:
    assert list(words_of(line)) == words


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_whatever_may_mean_more_is_left_to_the_shell(line: str) -> None:
    assert list(words_of(line)) == []


def test_everything_that_bash_does_itself_is_left_to_it() -> None:
    said = subprocess.run(["bash", "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True).stdout
    assert len(said.split()) > 70
    assert [name for name in said.split() if words_of(name) or words_of(f"{name} x")] == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.one_of(plain_lines, lines))
def test_the_words_are_those_of_bash(line: str, tmp_path: Path) -> None:
    words = words_of(line)
    if not words or "/" in words[0]:  # bash looks for a path itself, and tells nobody which words it had
        return
    heard = subprocess.run(
        ["/bin/bash", "-c", HEARD + line],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/nowhere"},
        check=True,
    )
    assert heard.stdout.split("\0")[:-1] == [str(len(words)), *words]
    assert heard.stderr == "" and list(tmp_path.iterdir()) == []


@settings(max_examples=2000, deadline=None)
@given(line=st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_no_line_whatever_is_too_much_for_it(line: str) -> None:
    words = words_of(line)
    assert all(isinstance(word, str) for word in words)
    assert not words or line.isascii()
