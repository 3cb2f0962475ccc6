"""The life of a sandbox, as the SDK sees it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import daytona
import pytest
from daytona import ListSandboxesQuery, SandboxState


def test_a_sandbox_is_made_found_listed_and_deleted(client: Any, create: Callable[..., Any]) -> None:
    made = create(name="whole-life", labels={"kind": "life"}, env_vars={"A": "1"}, public=True)
    assert made.state == SandboxState.STARTED
    assert client.get("whole-life").id == made.id == client.get(made.id).id
    listed = list(client.list(ListSandboxesQuery(labels={"kind": "life"}, states=[SandboxState.STARTED])))
    assert [each.name for each in listed] == ["whole-life"]
    made.delete(wait=True)
    with pytest.raises(daytona.DaytonaNotFoundError):
        client.get("whole-life")


def test_pages_of_a_list_are_followed(client: Any, create: Callable[..., Any]) -> None:
    for number in range(3):
        create(name=f"page-{number}", labels={"kind": "page"})
    query = ListSandboxesQuery(limit=1, labels={"kind": "page"})
    assert sorted(each.name for each in client.list(query)) == ["page-0", "page-1", "page-2"]


def test_a_name_that_is_taken_is_a_conflict(create: Callable[..., Any]) -> None:
    create(name="taken")
    with pytest.raises(daytona.DaytonaConflictError):
        create(name="taken")


def test_stop_start_pause_and_archive(client: Any, create: Callable[..., Any]) -> None:
    made = create()
    made.fs.upload_file(b"kept", "kept.txt")
    made.stop()
    assert made.state == SandboxState.STOPPED
    made.wait_for_sandbox_stop()
    with pytest.raises(daytona.DaytonaBadRequestError):
        made.process.exec("true")
    made.archive()
    assert made.state == SandboxState.ARCHIVED
    client.start(made)
    assert made.state == SandboxState.STARTED
    made.wait_for_sandbox_start()
    assert made.fs.download_file("kept.txt") == b"kept"
    made.pause()
    assert made.state == SandboxState.PAUSED
    assert made.process.exec("echo woken").result == "woken\n"
    client.stop(made)
    made.refresh_data()
    assert made.state == SandboxState.STOPPED
    client.delete(made)


def test_an_ephemeral_sandbox_is_destroyed_by_its_stop(create: Callable[..., Any]) -> None:
    made = create(ephemeral=True)
    made.stop()
    assert made.state == SandboxState.DESTROYED


def test_settings_of_a_sandbox(create: Callable[..., Any]) -> None:
    made = create()
    assert made.set_labels({"new": "label"}) == {"new": "label"}
    made.set_autostop_interval(0)
    made.set_auto_pause_interval(30)
    made.set_auto_archive_interval(60)
    made.set_auto_delete_interval(120)
    made.set_public(True)
    made.set_ttl(600)
    made.refresh_activity()
    made.update_network_settings(domain_allow_list="example.org")
    made.update_env({"LATER": "yes"}, unset=["NEVER_SET"])
    made.refresh_data()
    assert (made.auto_stop_interval, made.auto_pause_interval) == (0, 30)
    assert (made.auto_archive_interval, made.auto_delete_interval) == (60, 120)
    assert made.public
    assert made.auto_destroy_at
    assert made.domain_allow_list == "example.org"
    assert made.process.exec("echo $LATER").result == "yes\n"


def test_what_there_is_to_know(sandbox: Any) -> None:
    assert sandbox.get_work_dir() == "/workspace"
    assert sandbox.get_user_home_dir() == sandbox.get_user_root_dir() == "/home/user"
    assert sandbox.get_metrics_latest().mem_total > 0
    assert isinstance(sandbox.get_metrics(), list)


def test_previews_lead_to_the_port(sandbox: Any) -> None:
    sandbox.process.exec("mkdir -p /tmp/site && echo hello > /tmp/site/index.html")
    sandbox.process.exec("cd /tmp/site && nohup python3 -m http.server 8123 >/dev/null 2>&1 &")
    sandbox.process.exec("until (exec 3<>/dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.1; done", timeout=100)
    link = sandbox.get_preview_link(8123)
    host = link.url.removeprefix("http://")
    port = host.rpartition(":")[2]
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": host})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(asked, timeout=60)
    asked.add_header("X-Daytona-Preview-Token", link.token)
    assert urllib.request.urlopen(asked, timeout=60).read() == b"hello\n"
    signed = sandbox.create_signed_preview_url(8123, 600)
    path = signed.url.partition(host)[2]
    by_link = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    assert urllib.request.urlopen(by_link, timeout=60).read() == b"hello\n"
    sandbox.expire_signed_preview_url(8123, signed.token)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(by_link, timeout=60)


def test_signed_urls_of_files(sandbox: Any, folder: str) -> None:
    sandbox.fs.upload_file(b"by url", f"{folder}/f")
    assert urllib.request.urlopen(sandbox.download_url(f"{folder}/f"), timeout=60).read() == b"by url"
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="g"\r\n\r\nsent\r\n--x--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    asked = urllib.request.Request(sandbox.upload_url(f"{folder}/g"), data=body, headers=headers)
    urllib.request.urlopen(asked, timeout=60).close()
    assert sandbox.fs.download_file(f"{folder}/g") == b"sent"
    old = sandbox.download_url(f"{folder}/f")
    sandbox.rotate_signing_key()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(old, timeout=60)


def test_a_wrong_key_is_an_authentication_error(client: Any, voice: Any) -> None:
    from voice import Spoken

    config = daytona.DaytonaConfig(api_key="e2b_" + "0" * 40)
    made = daytona.AsyncDaytona if voice.is_async else daytona.Daytona
    stranger = Spoken(voice, voice.perform(lambda: made(config)))
    with pytest.raises(daytona.DaytonaAuthenticationError):
        stranger.get("shared")
    if voice.is_async:
        stranger.close()


def test_the_server_is_killed_between_create_and_use(
    client: Any, create: Callable[..., Any], restart_server: Callable[[], None]
) -> None:
    made = create(name="survivor", labels={"kept": "yes"}, auto_stop_interval=33)
    made.process.create_session("before")
    request = daytona.SessionExecuteRequest(command="X=remembered")
    made.process.execute_session_command("before", request)
    restart_server()
    again = client.get("survivor")
    assert (again.id, again.labels["kept"], again.auto_stop_interval) == (made.id, "yes", 33)
    request = daytona.SessionExecuteRequest(command="echo $X")
    assert again.process.execute_session_command("before", request).stdout == "remembered\n"
    assert made.process.exec("echo here").result == "here\n"
