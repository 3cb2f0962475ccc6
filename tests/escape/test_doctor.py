"""``paddock doctor``: what it finds, what it advises, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paddock.cli.app import app
from paddock.doctor import checks, plan
from paddock.doctor.attempts import AttemptOutcome, Group, Verdict
from paddock.doctor.catalogue import FILES
from paddock.doctor.checks import Check, Diagnosis, examine
from paddock.doctor.plan import LeftOut, planned
from paddock.doctor.server.attacks import SERVER_ATTACKS
from paddock.providers.base import IsolationLevel, IsolationReport, Layer
from paddock.providers.common.cgroups import Cgroups
from paddock.providers.docker.probe import EngineOptions
from paddock.providers.local.host import HostCapabilities
from paddock.settings import Settings
from tests.docker import engine
from tests.docker.fake_engine import FakeEngine
from tests.local import gvisor

runner = CliRunner()
GOOD = Diagnosis(
    True,
    (Check("kernel", True, "Linux"),),
    IsolationReport(IsolationLevel.BASIC, (Layer("freezer", False, "do this"),)),
)
BAD = Diagnosis(False, (Check("sandboxes", False, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),), None)


@pytest.fixture(autouse=True)
def logging_as(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """How this process was told to log, instead of doing so for all tests after this one."""
    told: list[Settings] = []
    monkeypatch.setattr("paddock.api.logging.configure_logging", told.append)
    return told


@pytest.fixture
def diagnosis(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """What the machine is made to look like; a test may change it."""
    wanted = [GOOD]
    monkeypatch.setattr(checks, "examine", lambda home, docker, runsc, **given: wanted[-1])
    return wanted


def by_name(diagnosis: Diagnosis) -> dict[str, Check]:
    return {check.name: check for check in diagnosis.checks}


def test_this_machine_is_examined_and_nothing_is_left_behind(possible: None, tmp_path: Path) -> None:
    found = examine(tmp_path)
    assert found.runs
    assert found.report is not None
    assert by_name(found)["sandboxes"].good
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_not_there_yet_is_looked_for_above(tmp_path: Path) -> None:
    assert by_name(examine(tmp_path / "not" / "yet"))["disk space"].detail.endswith("GB free")
    assert not (tmp_path / "not").exists()


def test_a_write_ahead_log_that_is_not_emptied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a database that is not in the home."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PADDOCK_HOME", str(tmp_path / "home"))

    def asked() -> dict[str, dict[str, Any]]:
        found = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
        return {check["name"]: check for check in found["checks"]}

    assert "database log" not in asked(), "there is no database"
    for database in (tmp_path / "home/paddock.db", tmp_path / "data/other.db"):
        database.parent.mkdir(exist_ok=True)
        database.touch()
        with database.with_name(database.name + "-wal").open("wb") as log:
            log.truncate(1 << 20)
            monkeypatch.setenv("DATABASE_URL", f"sqlite:///{database}")
            assert asked()["database log"]["good"]
            log.truncate(430 << 20)
        found = asked()["database log"]
        assert not found["good"]
        assert "451 MB" in found["detail"]
        assert "Restart the server" in found["detail"]
    monkeypatch.setenv("DATABASE_URL", "postgresql://db.test/paddock")
    assert not {"database", "database log"} & set(asked())


@pytest.mark.parametrize("kind", ["ext4", "nfs4", "tmpfs"])
def test_the_file_system_of_a_database_elsewhere_matters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setattr(checks, "_kind_of", lambda path: kind)
    found = by_name(examine(tmp_path / "home", database=tmp_path / "data/paddock.db"))["database"]
    assert (found.good, "change DATABASE_URL" in found.detail) == (kind == "ext4", kind == "tmpfs")
    assert "database" not in by_name(examine(tmp_path, database=tmp_path / "paddock.db")), "it is with the home"


def test_the_room_of_a_database_elsewhere_matters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = "Only 1 MB are free."
    monkeypatch.setattr(checks, "_kind_of", lambda path: "ext4")
    monkeypatch.setattr(checks.disk_space, "shortage", lambda path, mb: short if path.name == "data" else None)
    (tmp_path / "data").mkdir()
    found = by_name(examine(tmp_path / "home", database=tmp_path / "data/paddock.db"))["database"]
    assert (found.good, found.detail.startswith(short)) == (False, True)


def test_a_machine_without_user_namespaces_says_how_to_allow_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, possible: None
) -> None:
    host = HostCapabilities(
        False, ("Allow it: sudo sysctl -w user.max_user_namespaces=15000",), False, None, _no_cgroups(), None
    )
    monkeypatch.setattr(checks, "look", lambda *given: host)
    found = examine(tmp_path, EngineOptions(f"unix://{tmp_path}/no-engine"))
    assert not found.runs
    assert found.report is None
    assert "sysctl -w" in by_name(found)["sandboxes"].detail
    assert "nftables" in by_name(found)["full egress"].detail


def test_a_missing_program_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paddock.providers.common.programs._BIN", tmp_path)
    found = examine(tmp_path)
    assert not found.runs
    assert "compiler" in by_name(found)["native programs"].detail


@pytest.mark.parametrize(("kind", "good"), [("ext4", True), ("nfs4", False), ("tmpfs", False)])
def test_the_file_system_of_the_home_matters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, good: bool
) -> None:
    monkeypatch.setattr(checks, "_kind_of", lambda path: kind)
    assert checks._file_system(tmp_path).good is good


def test_the_deepest_and_latest_mount_decides() -> None:
    mounts = "\n".join(
        (
            "1 1 0:1 / / rw - ext4 /dev/a rw",
            "2 1 0:2 / /srv rw - xfs /dev/b rw",
            "3 1 0:3 / /srv rw - nfs4 host:/x rw",
            "4 1 0:4 / /srvother rw - tmpfs none rw",
        )
    )
    assert checks._mounted_at(Path("/srv/paddock"), mounts) == "nfs4"
    assert checks._mounted_at(Path("/nowhere/else"), mounts) == "ext4"


def test_an_engine_that_answers_is_found_and_is_enough_where_the_machine_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, possible: None
) -> None:
    host = HostCapabilities(False, ("Nothing works.",), False, None, _no_cgroups(), None)
    monkeypatch.setattr(checks, "look", lambda *given: host)
    with FakeEngine(tmp_path, {"GET /version": (200, {"Version": "27.1", "ApiVersion": "1.46"})}) as engine:
        found = examine(tmp_path, EngineOptions(engine.host))
    assert by_name(found)["docker engine"].good
    assert f"27.1 at {tmp_path}" in by_name(found)["docker engine"].detail
    assert "near" in by_name(found)["docker engine"].detail
    assert found.runs
    assert found.report is None, "the layers are those of the local provider"
    gone = examine(tmp_path, EngineOptions(engine.host))
    assert not gone.runs
    assert "DOCKER_HOST" in by_name(gone)["docker engine"].detail


def test_it_ends_well_where_sandboxes_run(diagnosis: list[Diagnosis]) -> None:
    shown = runner.invoke(app, ["doctor"])
    assert shown.exit_code == 0
    assert "isolation level basic" in shown.stdout
    assert "do this" in shown.stdout


def test_what_is_logged_meanwhile_is_not_in_what_is_printed(
    diagnosis: list[Diagnosis], logging_as: list[Settings]
) -> None:
    """Logs go to standard error, and only errors: bombs end sandboxes."""
    json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert [settings.log_level for settings in logging_as] == ["error"]


def test_it_ends_in_1_where_they_do_not(diagnosis: list[Diagnosis]) -> None:
    diagnosis.append(BAD)
    shown = runner.invoke(app, ["doctor", "--full", "--json"])
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    assert document["sandboxes"] is False
    assert document["attempts"] == []
    assert "sudo sysctl" in document["checks"][0]["detail"]


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Verdict.REFUSED, 0), (Verdict.NOT_TRIED, 0), (Verdict.DOCUMENTED, 0), (Verdict.NOT_REFUSED, 1)],
)
def test_it_ends_in_1_when_anything_was_not_refused(
    diagnosis: list[Diagnosis], monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    outcomes = [AttemptOutcome("host-file-by-user", "user", verdict, "[red]said the sandbox\x1b[2J")]
    monkeypatch.setattr("paddock.cli.doctor._examined", lambda plan, quiet: (outcomes, []))
    shown = runner.invoke(app, ["doctor", "--full"])
    assert shown.exit_code == code
    assert f"1 {verdict.value}" in shown.stdout
    assert "\x1b[2J" not in shown.stdout
    asked = json.loads(runner.invoke(app, ["doctor", "--full", "--json"]).stdout)
    assert asked["attempts"][0]["verdict"] == verdict.value


def test_where_only_docker_runs_and_cannot_be_tried_it_says_so_and_ends_in_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, probe: None
) -> None:
    monkeypatch.setattr(
        checks, "look", lambda *given: HostCapabilities(False, ("No.",), False, None, _no_cgroups(), None)
    )
    answers = {
        "GET /version": (200, {"Version": "27.1", "ApiVersion": "1.46"}),
        "GET /info": (200, {"MemoryLimit": True, "DefaultRuntime": "runc"}),
        "GET /containers/json": (200, []),
    }
    with FakeEngine(tmp_path, answers) as fake:
        monkeypatch.setenv("DOCKER_HOST", fake.host)
        shown = runner.invoke(app, ["doctor", "--full"])
        asked = runner.invoke(app, ["doctor", "--full", "--json"])
    assert (shown.exit_code, asked.exit_code) == (3, 3)
    assert "Tried: nothing." in shown.stdout
    assert "Not tried: local (No.)" in shown.stdout
    assert "Not tried: docker (The engine has no image" in shown.stdout
    document = json.loads(asked.stdout)
    assert (document["attempts"], document["tried"]) == ([], [])
    assert {one["kind"]: one["in_use"] for one in document["left_out"]} == {"local": False, "docker": True}


def checked(*good: str, report: IsolationReport | None = GOOD.report) -> Diagnosis:
    found = tuple(Check(name, name in good, f"{name}: do this") for name in ("own kernel", "docker engine"))
    return Diagnosis(True, found, report)


@pytest.mark.parametrize(
    ("diagnosis", "chosen", "tried", "left_out"),
    [
        (checked("own kernel"), "", ["local", "local"], {"docker": False}),
        (checked(), "", ["local"], {"local, hardened": False, "docker": False}),
        (checked("docker engine"), "", ["local"], {"local, hardened": False, "docker": False}),
        (checked("docker engine"), "local,docker", ["local", "docker"], {"local, hardened": False}),
        (checked("docker engine"), "docker", ["local", "docker"], {"local, hardened": False}),
        (checked("docker engine", report=None), "", ["docker"], {"local": False}),
        (checked("docker engine", report=None), "local,docker", ["docker"], {"local": True}),
        (checked(), "docker", ["local"], {"local, hardened": False, "docker": True}),
        (checked("own kernel"), "e2b", ["local", "local"], {"docker": False, "e2b": True}),
    ],
)
def test_what_the_machine_can_do_and_the_settings_name_is_tried(
    diagnosis: Diagnosis, chosen: str, tried: list[str], left_out: dict[str, bool]
) -> None:
    found = planned(Settings(_env_file=None, SANDBOX_PROVIDERS=chosen, DOCKER_HOST=""), diagnosis)
    assert [kind.name for kind in found.kinds] == tried
    assert {one.kind: one.in_use for one in found.left_out} == left_out
    assert all(one.reason for one in found.left_out)


def test_an_operator_who_insists_on_a_level_that_cannot_be_tried_is_told() -> None:
    found = planned(Settings(_env_file=None, PADDOCK_MIN_ISOLATION="hardened"), checked())
    assert LeftOut("local, hardened", "own kernel: do this", in_use=True) in found.left_out


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt on each kind instead of hundreds."""
    monkeypatch.setattr(plan, "GROUPS", (Group("", FILES.attempts[:1]),))
    monkeypatch.setattr(plan, "file_cases", list)
    for name in ("ALLOWANCES", "BOMBS"):
        monkeypatch.setattr(plan, name, ())
    monkeypatch.setattr(plan, "SERVER_ATTACKS", {"server-oversized": SERVER_ATTACKS["server-oversized"]})


def tried_in_full(code: int) -> list[str]:
    asked = runner.invoke(app, ["doctor", "--full", "--json"])
    assert asked.exit_code == code, asked.output
    document = json.loads(asked.stdout)
    for kind in document["tried"]:
        seen = [(one["name"], one["verdict"]) for one in document["attempts"] if one["kind"] == kind]
        users = ("host-file-by-user", "host-file-by-root")
        assert seen == [*((name, "refused") for name in users), ("server-oversized", "refused")]
    return list(document["tried"])


@pytest.mark.slow
def test_every_level_that_the_machine_can_do_is_tried(monkeypatch: pytest.MonkeyPatch, little: None) -> None:
    monkeypatch.setenv("PADDOCK_RUNSC", gvisor.wanted().program)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert tried_in_full(0) == ["local, strict", "local, hardened"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["near", "far"])
def test_containers_are_tried_where_they_are_used(monkeypatch: pytest.MonkeyPatch, little: None, way: str) -> None:
    engine.address()
    monkeypatch.setattr(
        checks, "look", lambda *given: HostCapabilities(False, ("No.",), False, None, _no_cgroups(), None)
    )
    monkeypatch.setenv("PADDOCK_DOCKER_IMAGES", engine.DEBIAN)
    monkeypatch.setenv("PADDOCK_DOCKER_WAY", way)
    assert tried_in_full(0) == ["docker, standard"]


def _no_cgroups() -> Cgroups:
    return Cgroups({}, None, frozenset())
