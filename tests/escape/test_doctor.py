"""``paddock doctor``: what it finds, what it advises, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paddock.cli.app import app
from paddock.doctor import checks
from paddock.doctor.attempts import Outcome, Verdict
from paddock.doctor.checks import Check, Diagnosis, examine
from paddock.providers.base import IsolationLevel, IsolationReport, Layer
from paddock.providers.docker.probe import Asked
from paddock.providers.ground.cgroups import Cgroups
from paddock.providers.local.host import Host
from tests.docker.fake_engine import FakeEngine

runner = CliRunner()
GOOD = Diagnosis(
    True,
    (Check("kernel", True, "Linux"),),
    IsolationReport(IsolationLevel.BASIC, (Layer("freezer", False, "do this"),)),
)
BAD = Diagnosis(False, (Check("sandboxes", False, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),), None)


@pytest.fixture
def diagnosis(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """What the machine is made to look like; a test may change it."""
    wanted = [GOOD]
    monkeypatch.setattr(checks, "examine", lambda home, docker, runsc, reserve_mb: wanted[-1])
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


def test_a_write_ahead_log_that_is_not_emptied_is_told(tmp_path: Path) -> None:
    (tmp_path / "paddock.db").touch()
    with (tmp_path / "paddock.db-wal").open("wb") as log:
        log.truncate(1 << 20)
        assert by_name(examine(tmp_path))["database log"].good
        log.truncate(430 << 20)
    found = by_name(examine(tmp_path))["database log"]
    assert not found.good
    assert "451 MB" in found.detail
    assert "Restart the server" in found.detail


def test_a_machine_without_user_namespaces_says_how_to_allow_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, possible: None
) -> None:
    host = Host(False, ("Allow it: sudo sysctl -w user.max_user_namespaces=15000",), False, None, _no_cgroups(), None)
    monkeypatch.setattr(checks, "look", lambda *given: host)
    found = examine(tmp_path, Asked(f"unix://{tmp_path}/no-engine"))
    assert not found.runs
    assert found.report is None
    assert "sysctl -w" in by_name(found)["sandboxes"].detail
    assert "nftables" in by_name(found)["full egress"].detail


def test_a_missing_program_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paddock.providers.ground.programs._BIN", tmp_path)
    found = examine(tmp_path)
    assert not found.runs
    assert "compiler" in by_name(found)["native programs"].detail


@pytest.mark.parametrize(("kind", "good"), [("ext4", True), ("nfs4", False), ("tmpfs", False)])
def test_the_file_system_of_the_home_matters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, good: bool
) -> None:
    monkeypatch.setattr(checks, "_kind_of", lambda path, mounts: kind)
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
    assert checks._kind_of(Path("/srv/paddock"), mounts) == "nfs4"
    assert checks._kind_of(Path("/nowhere/else"), mounts) == "ext4"


def test_an_engine_that_answers_is_found_and_is_enough_where_the_machine_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, possible: None
) -> None:
    host = Host(False, ("Nothing works.",), False, None, _no_cgroups(), None)
    monkeypatch.setattr(checks, "look", lambda *given: host)
    with FakeEngine(tmp_path, {"GET /version": (200, {"Version": "27.1", "ApiVersion": "1.46"})}) as engine:
        found = examine(tmp_path, Asked(engine.host))
    assert by_name(found)["docker engine"].good
    assert f"27.1 at {tmp_path}" in by_name(found)["docker engine"].detail
    assert "near" in by_name(found)["docker engine"].detail
    assert found.runs
    assert found.report is None, "the layers are those of the local provider"
    gone = examine(tmp_path, Asked(engine.host))
    assert not gone.runs
    assert "DOCKER_HOST" in by_name(gone)["docker engine"].detail


def test_it_ends_well_where_sandboxes_run(diagnosis: list[Diagnosis]) -> None:
    shown = runner.invoke(app, ["doctor"])
    assert shown.exit_code == 0
    assert "isolation level basic" in shown.stdout
    assert "do this" in shown.stdout


def test_it_ends_in_1_where_they_do_not(diagnosis: list[Diagnosis]) -> None:
    diagnosis.append(BAD)
    shown = runner.invoke(app, ["doctor", "--full", "--json"])
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    assert document["sandboxes"] is False
    assert document["attempts"] == []
    assert "sudo sysctl" in document["checks"][0]["detail"]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.REFUSED, 0), (Verdict.NOT_TRIED, 0), (Verdict.NOT_REFUSED, 1)])
def test_it_ends_in_1_when_anything_was_not_refused(
    diagnosis: list[Diagnosis], monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    outcomes = [Outcome("host-file-by-user", "user", verdict, "[red]said the sandbox\x1b[2J")]
    monkeypatch.setattr("paddock.cli.doctor._examined", lambda quiet: outcomes)
    shown = runner.invoke(app, ["doctor", "--full"])
    assert shown.exit_code == code
    assert f"1 {verdict.value}" in shown.stdout
    assert "\x1b[2J" not in shown.stdout
    asked = json.loads(runner.invoke(app, ["doctor", "--full", "--json"]).stdout)
    assert asked["attempts"][0]["verdict"] == verdict.value


def _no_cgroups() -> Cgroups:
    return Cgroups({}, None, frozenset())
