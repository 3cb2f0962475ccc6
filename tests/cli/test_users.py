"""``paddock users``: accounts and their quotas, with a server and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddock import models
from paddock.cli.users import QUOTAS
from tests.cli.conftest import Paddock


def test_the_quotas_are_those_of_the_wire() -> None:
    assert set(QUOTAS) == set(models.QuotaChange.model_fields)


def _a_life(user: Paddock, name: str) -> dict[str, Any]:
    user("keys", "create", name)  # makes the user, too
    made: dict[str, Any] = user.json("users", "create", name, "--quota", "max_live=1", "--quota", "max_cpu=0.5")
    assert (made["role"], made["quota"]["max_live"], made["quota"]["max_cpu"]) == ("member", 1, 0.5)
    assert "PATCH" in user.json("users", "create", name, check=1)["error"]["message"]
    changed: dict[str, Any] = user.json("users", "update", name, "--quota", "max_cpu=default", "--disable")
    assert (changed["quota"]["max_live"], changed["quota"]["max_cpu"], changed["disabled"]) == (1, 0, True)
    assert user.json("users", "show", name) == changed
    assert changed in user.json("users", "list")["users"]
    shown = user("users", "show", name).stdout
    assert "disabled" in shown and "max_live" in shown
    return changed


def test_users_through_the_server(paddock: Paddock) -> None:
    made = paddock.json("keys", "create", "hank-laptop", "--user", "hank")
    paddock("users", "update", "hank", "--quota", "max_live=1")
    hank = Paddock(paddock.home, paddock.url, made["key"])
    box = hank("create").stdout.strip()
    assert hank.json("create", check=1)["error"]["code"] == "quota_exceeded"
    hank("kill", box)
    _a_life(paddock, "ivan")
    assert "ivan" in paddock("users", "list").stdout


def test_users_without_a_server(tmp_path: Path) -> None:
    user = Paddock(tmp_path, "http://127.0.0.1:1")
    _a_life(user, "judy")
    assert user.json("users", "show", "nobody", check=1)["error"]["code"] == "user_not_found"


def test_mistakes_are_said_in_a_sentence(paddock: Paddock, tmp_path: Path) -> None:
    assert "max_live" in paddock("users", "create", "kim", "--quota", "live=1", check=2).stderr
    assert "NAME=NUMBER" in paddock("users", "create", "kim", "--quota", "max_live=many", check=2).stderr
    assert "--role" in paddock("users", "update", "kim", check=2).stderr
    for user in (paddock, Paddock(tmp_path, "http://127.0.0.1:1")):
        said = user("users", "create", "kim@example.com", check=1).stderr
        assert "for example kim-example-com" in said
