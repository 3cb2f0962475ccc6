"""What is taken out of everything that is written down, and what stays."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from typing import Any

import pytest
import structlog

from paddock import errors
from paddock.api import logging as api_logging
from paddock.redaction import HIDDEN, LogRedactor, has_credentials, redact, redact_all, visible, without_credentials
from paddock.settings import Settings

KEY = "e2b_" + "0123456789abcdef0123456789abcdef01234567"
TICKET = "t_abcdefghijklmnopqrstuvwxyz_-0123"
LINK = "1893456000." + "ab" * 32


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("git clone https://alice:s3cret@example.org/a.git", "s3cret"),
        ("git clone https://ghp_token@example.org/a.git", "ghp_token"),
        ("https://alice:p@ss@example.org/a.git", "p@ss"),
        ("fatal: 'postgresql://u:pw123456@db/x' failed", "pw123456"),
        (f"key {KEY} is wrong", KEY[4:]),
        (f"GET /sandboxes/a/ws?ticket={TICKET} HTTP/1.1", TICKET),
        (f"used {TICKET}.", TICKET[2:]),
        (f"https://x.test/?paddock_link={LINK}&a=1", LINK),
        (f"path /signed-preview-url/{LINK}/expire", LINK[11:]),
        ("/files?path=/a&signature=v1_abcdef&x=1", "v1_abcdef"),
        ("?access_token=zzzzzz", "zzzzzz"),
        ("&X-Amz-Signature=0123abcd", "0123abcd"),
        ("curl -H 'Authorization: Bearer abcdefghijklmnop'", "abcdefghijklmnop"),
        ('{"X-API-Key": "abcdefghijklmnop"}', "abcdefghijklmnop"),
        ("e2b-traffic-access-token: " + "ab" * 32, "ab" * 32),
        ("dtn_" + "0123456789abcdef" * 4, "0123456789abcdef"),
    ],
)
def test_secrets_are_known_by_their_form_and_their_place(text: str, secret: str) -> None:
    assert secret not in redact(text) and HIDDEN in redact(text)
    assert secret not in str(errors.Invalid(text))
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/a.git",
        "ssh://git@example.org/a.git",
        "git@example.org:a/b.git",
        "user@example.org",
        "Send the key as X-API-Key: KEY, or as Authorization: Bearer KEY.",
        "sha256 " + "ab" * 32,
        "/sandboxes?limit=5&author=alice",
        "it_is_only_a_name",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_documents_are_searched_and_secret_names_hide_their_values() -> None:
    found = redact_all({"command": f"echo {KEY}", "headers": {"token": "plain", "n": 1}, "list": [f"x{TICKET}", KEY]})
    assert found == {"command": "echo e2b_***", "headers": {"token": HIDDEN, "n": 1}, "list": [f"x{TICKET}", "e2b_***"]}


def test_urls_of_repositories() -> None:
    assert without_credentials("https://u:p@h/a") == "https://***@h/a"
    assert has_credentials("https://u:p@h/a") and not has_credentials("https://***@h/a")
    assert not has_credentials("ssh://git@h/a")


def test_no_text_takes_long() -> None:
    """Texts are chosen by tenants. Twice the text takes about twice the time, with a wide margin."""
    for unit in ("a://", ";token", "x-key", "&", "bearer ", "https://a:b", "t_", "1.", "authorization:"):
        times = []
        for count in (4_000, 16_000):
            began = time.process_time()
            redact(unit * (count // len(unit)))
            times.append(time.process_time() - began)
        assert times[1] < 40 * max(times[0], 0.001), unit


def test_control_characters_are_shown() -> None:
    assert visible("a\x1b[2Jb\x9b\u202e\n", keep="") == "a\\x1b[2Jb\\x9b\\u202e\\n"
    assert visible("a\tb\nc", keep="\n\t") == "a\tb\nc"


class TestLogs:
    def logged(self, monkeypatch: pytest.MonkeyPatch, form: str, **settings: Any) -> io.StringIO:
        said = io.StringIO()
        monkeypatch.setattr("sys.stderr", said)
        api_logging.configure_logging(Settings(_env_file=None, PADDOCK_LOG_FORMAT=form, **settings))
        return said

    @pytest.fixture(autouse=True)
    def as_it_was(self) -> Any:
        root = logging.getLogger()
        before = root.handlers, root.level, list(logging.getLogger("uvicorn.error").filters)
        yield
        root.handlers, root.level = before[0], before[1]
        logging.getLogger("uvicorn.error").filters = before[2]
        structlog.reset_defaults()

    @pytest.mark.parametrize("form", ["json", "console"])
    def test_our_own_and_those_of_libraries(self, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
        said = self.logged(
            monkeypatch, form, E2B_API_KEY="an-unusual-vendor-key", DATABASE_URL="postgresql://u:pa%21ssword@db/x"
        )
        monkeypatch.setattr(logging.getLogger("uvicorn.error"), "level", logging.INFO)  # other tests start servers
        for library in ("uvicorn", "uvicorn.error"):
            monkeypatch.setattr(logging.getLogger(library), "disabled", False)
            monkeypatch.setattr(logging.getLogger(library), "propagate", True)
        logging.getLogger("uvicorn.error").manager._clear_cache()  # type: ignore[attr-defined]
        log = structlog.get_logger()
        log.warning("problem", problem=f"with {KEY}", token="nothing like a token", nested={"url": "http://a:bcdef@h/"})
        log.warning("vendor said an-unusual-vendor-key, and pa!ssword or pa%21ssword")
        logging.getLogger("uvicorn.error").info(
            '%s - "WebSocket %s" [accepted]', "1.2.3.4:5", f"/sandboxes/a/terminal?ticket={TICKET}&command=rm+-rf"
        )
        logging.getLogger("some.library").warning("calling https://alice:s3cret@example.org with %s", KEY)
        try:
            raise ValueError(f"it was {KEY}")
        except ValueError:
            log.exception("unexpected failure")
        text = said.getvalue()
        secrets = [KEY, TICKET, "rm+-rf", "s3cret", "bcdef", "nothing like", "an-unusual", "pa!ssword", "pa%21ssword"]
        assert [secret for secret in secrets if secret in text] == []
        assert "/sandboxes/a/terminal" in text and "ValueError: it was e2b_***" in text

    def test_a_text_cannot_forge_a_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = self.logged(monkeypatch, "console")
        log = structlog.get_logger()
        forged = "x\n2030-01-01T00:00:00Z [error    ] all is lost\x1b[2J"
        log.warning(f"named {forged}", name=forged, names=[forged])
        log.warning("blocked", stack=f"File here\n{forged}")
        logging.getLogger("some.library").warning("named %s", forged)
        try:
            raise ValueError(forged)
        except ValueError:
            log.exception("unexpected failure")
        lines = said.getvalue().splitlines()
        assert not [line for line in lines if re.match(r"(\x1b\[[0-9;]*m)*2030-01-01", line)]
        assert "\x1b[2J" not in said.getvalue()
        assert "    File here" in lines, "a stack is read on lines of its own"

    def test_one_line_is_one_document(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = self.logged(monkeypatch, "json")
        structlog.get_logger().warning("a\nb", name="c\nd")
        [line] = said.getvalue().splitlines()
        assert json.loads(line)["name"] == "c\\nd"


def test_a_redactor_without_secrets_is_one() -> None:
    assert LogRedactor()(None, "", {"event": "x", "when": 5}) == {"event": "x", "when": 5}
