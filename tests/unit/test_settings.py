"""Settings: from the environment, documented, and refused where they make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from paddock.egress.addresses import PrivateAccess
from paddock.settings import Settings, default_home

DOCS = Path(__file__).parents[2] / "docs"


def test_every_setting_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    missing = [
        field.validation_alias for field in Settings.model_fields.values() if f"`{field.validation_alias}`" not in text
    ]
    assert missing == []


def test_home_follows_xdg_and_is_not_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PADDOCK_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", "/nowhere")
    assert default_home() == tmp_path / "paddock"
    assert Settings(_env_file=None).home == tmp_path / "paddock"


def test_the_environment_wins_over_the_env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=1111\nDEFAULT_TIMEOUT=77\n")
    monkeypatch.setenv("PORT", "2222")
    settings = Settings(_env_file=tmp_path / ".env")
    assert (settings.port, settings.default_timeout, settings.domain) == (2222, 77, "localhost:2222")


@pytest.mark.parametrize(
    "bad",
    [
        {"PADDOCK_DEFAULT_EGRESS": "some"},
        {"PADDOCK_MIN_ISOLATION": "perfect"},
        {"PADDOCK_POOL_SIZE": -1},
        *(
            {"PADDOCK_EGRESS_REACHABLE": f"10.0.0.0/8,{bad}"}
            for bad in ("nonsense", "*", "1.2.3", "10.0.0.1/8", "a.b:80:90", ":80")
        ),
        {"PORT": "x"},
        {"PORT": 70000},
        {"DEFAULT_TIMEOUT": 90, "MAX_TIMEOUT": 60},
        {"MAX_TIMEOUT": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(_env_file=None, **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "internal_url", "published"),
    [
        ("127.0.0.1", "", ""),
        ("0.0.0.0", "", ""),
        ("localhost", "", ""),
        ("10.0.0.5", "", "http://10.0.0.5:8080"),
        ("fd00::5", "", "http://[fd00::5]:8080"),
        ("10.0.0.5", "https://node-5.internal/", "https://node-5.internal"),
        ("0.0.0.0", "http://10.0.0.5:80", "http://10.0.0.5:80"),
    ],
)
def test_other_servers_are_told_an_address_that_they_can_reach(host: str, internal_url: str, published: str) -> None:
    assert Settings(HOST=host, PADDOCK_INTERNAL_URL=internal_url, _env_file=None).node_url == published


def test_port_urls_have_the_form_that_browsers_resolve() -> None:
    settings = Settings(_env_file=None, PORT=8080)
    assert settings.port_url("iabc", 3000) == "http://3000-iabc.localhost:8080/"


def test_networks_are_a_list_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(_env_file=None).egress_reachable == ()
    monkeypatch.setenv("PADDOCK_EGRESS_REACHABLE", "10.1.2.0/24, fd00::/8")
    assert Settings(_env_file=None).egress_reachable == ("10.1.2.0/24", "fd00::/8")
    given = "db.Corp.example,.inner.example, *.a-b.example, 10.0.0.1,registry:5000,a.b:80,10.0.0.1:80,[fd00::/8]:443"
    monkeypatch.setenv("PADDOCK_EGRESS_REACHABLE", given)
    names = Settings(_env_file=None).egress_reachable
    assert names == tuple(place.strip() for place in given.split(","))
    PrivateAccess(reachable=names)  # and all of them are understood
