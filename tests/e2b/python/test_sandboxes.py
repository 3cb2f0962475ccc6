"""Sandboxes come, are found, and go."""

import os
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from waiting import PATIENCE_S, wait_until


def everything(paginator):
    found = []
    while paginator.has_next:
        found += paginator.next_items()
    return found


def test_create_answers_with_a_sandbox_that_runs(sandbox):
    assert sandbox.sandbox_id.isalnum() and sandbox.sandbox_id == sandbox.sandbox_id.lower()
    assert sandbox.is_running() is True


def test_create_takes_metadata(create, sdk):
    made = create(metadata={"team": "a b", "mark": "50%&=ü"})
    assert made.get_info().metadata == {"team": "a b", "mark": "50%&=ü"}


def test_create_takes_variables_that_every_command_sees(create):
    made = create(envs={"COLOUR": "green"})
    assert made.commands.run("echo $COLOUR").stdout == "green\n"
    assert made.commands.run("echo $COLOUR", envs={"COLOUR": "red"}).stdout == "red\n"


def test_every_command_knows_that_it_is_in_a_sandbox(sandbox):
    words = sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID").stdout.split()
    assert words[:2] == ["true", sandbox.sandbox_id] and len(words) == 3


def test_a_sandbox_ends_with_its_block(sdk):
    with sdk.Sandbox.create(timeout=60) as made:
        assert made.is_running()
    assert not made.is_running()


def test_an_unknown_template_is_refused(sdk):
    with pytest.raises(sdk.error("SandboxException"), match="404"):
        sdk.Sandbox.create("there-is-no-such-template")


def test_an_impossible_timeout_is_refused(sdk):
    with pytest.raises(sdk.error("SandboxException"), match="400"):
        sdk.Sandbox.create(timeout=-1)


def test_a_wrong_key_is_an_authentication_error(sdk):
    with pytest.raises(sdk.error("AuthenticationException")):
        sdk.Sandbox.create(api_key="e2b_" + "0" * 40)


def test_a_sandbox_that_shall_not_be_secure_is_all_the_same(create):
    assert create(secure=False).commands.run("echo hi").stdout == "hi\n"


def test_a_create_that_is_sent_twice_makes_one_sandbox(create):
    key = str(uuid4())
    first = create(idempotency_key=key)
    assert create(idempotency_key=key).sandbox_id == first.sandbox_id


def test_a_key_that_is_used_for_another_create_is_refused(create, sdk):
    key = str(uuid4())
    create(idempotency_key=key)
    with pytest.raises(sdk.error("SandboxException"), match="409"):
        create(idempotency_key=key, metadata={"some": "thing else"})


def test_connect_finds_the_same_machine(create, sdk):
    made = create()
    made.files.write("/home/user/note", "here")
    found = sdk.Sandbox.connect(made.sandbox_id)
    assert found.sandbox_id == made.sandbox_id
    assert found.files.read("/home/user/note") == "here"


def test_connect_on_the_object_keeps_its_handle(create):
    made = create()
    assert made.connect(timeout=60).commands.run("echo hi").stdout == "hi\n"
    assert made.commands.run("echo hi").stdout == "hi\n"


def test_connect_does_not_shorten_the_time_that_is_left(create, sdk):
    made = create(timeout=300)
    before = made.get_info().end_at
    sdk.Sandbox.connect(made.sandbox_id, timeout=10)
    assert made.get_info().end_at == before


def test_connect_lengthens_the_time_that_is_left(create, sdk):
    made = create(timeout=60)
    before = made.get_info().end_at
    sdk.Sandbox.connect(made.sandbox_id, timeout=600)
    assert made.get_info().end_at - before > timedelta(seconds=500)


def test_connect_to_nobody_is_not_found(sdk):
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.connect("inosuchsandbox0000000")


def test_info_tells_what_a_sandbox_is(create):
    before = datetime.now(UTC)
    info = create(timeout=100, metadata={"a": "b"}).get_info()
    assert info.state.value == "running"
    assert info.metadata == {"a": "b"}
    assert before - timedelta(seconds=5) < info.started_at < datetime.now(UTC) + timedelta(seconds=1)
    assert timedelta(seconds=95) < info.end_at - info.started_at < timedelta(seconds=105)
    assert info.cpu_count >= 1 and info.memory_mb >= 16 and info.template_id and info.envd_version


def test_info_works_by_id(sandbox, sdk):
    assert sdk.Sandbox.get_info(sandbox.sandbox_id).sandbox_id == sandbox.sandbox_id


def test_info_of_nobody_is_not_found(sdk):
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.get_info("inosuchsandbox0000000")


def test_kill_tells_whether_there_was_one(create, sdk):
    made = create()
    assert made.kill() is True
    assert made.kill() is False
    assert sdk.Sandbox.kill(made.sandbox_id) is False


def test_a_killed_sandbox_is_gone_at_once(create, sdk):
    mark = str(uuid4())
    made = create(metadata={"mark": mark})
    made.kill()
    assert made.is_running() is False
    assert everything(sdk.Sandbox.list(query=sdk.SandboxQuery(metadata={"mark": mark}))) == []
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        made.get_info()


def test_a_command_in_a_killed_sandbox_says_so(create, sdk):
    made = create()
    made.kill()
    with pytest.raises(sdk.error("TimeoutException"), match="not found"):
        made.commands.run("true")


def test_a_file_of_a_killed_sandbox_says_so(create, sdk):
    made = create()
    made.kill()
    with pytest.raises(sdk.error("TimeoutException"), match="not found"):
        made.files.read("/etc/hostname")


def test_set_timeout_lengthens_and_shortens(create):
    made = create(timeout=60)
    for timeout in (600, 30):
        made.set_timeout(timeout)
        left = made.get_info().end_at - datetime.now(UTC)
        assert timedelta(seconds=timeout - 5) < left <= timedelta(seconds=timeout + 1)


def test_set_timeout_works_by_id(create, sdk):
    made = create(timeout=60)
    sdk.Sandbox.set_timeout(made.sandbox_id, 600)
    assert made.get_info().end_at - datetime.now(UTC) > timedelta(seconds=500)


def test_set_timeout_of_nobody_is_not_found(sdk):
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.set_timeout("inosuchsandbox0000000", 60)


def test_use_does_not_lengthen_the_time_that_is_left(create):
    made = create(timeout=60)
    before = made.get_info().end_at
    made.commands.run("true")
    assert made.get_info().end_at == before


def test_a_sandbox_whose_time_is_over_is_gone(create, sdk):
    made = create(timeout=1)
    wait_until(lambda: not made.is_running())
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        made.get_info()


def test_list_finds_by_metadata_with_any_characters(create, sdk):
    mark = f"{uuid4()} +%&=/ü"
    made = create(metadata={"mark mark": mark, "other": "1"})
    create(metadata={"mark mark": str(uuid4())})
    found = everything(sdk.Sandbox.list(query=sdk.SandboxQuery(metadata={"mark mark": mark})))
    assert [each.sandbox_id for each in found] == [made.sandbox_id]
    assert found[0].metadata["other"] == "1"


def test_list_finds_by_state(create, sdk):
    mark = {"mark": str(uuid4())}
    runs, rests = create(metadata=mark), create(metadata=mark)
    rests.beta_pause()
    for states, expected in (
        ([sdk.SandboxState.RUNNING], {runs.sandbox_id}),
        ([sdk.SandboxState.PAUSED], {rests.sandbox_id}),
        ([sdk.SandboxState.RUNNING, sdk.SandboxState.PAUSED], {runs.sandbox_id, rests.sandbox_id}),
    ):
        found = everything(sdk.Sandbox.list(query=sdk.SandboxQuery(metadata=mark, state=states)))
        assert {each.sandbox_id for each in found} == expected


def test_list_comes_in_pages_newest_first(create, sdk):
    mark = {"mark": str(uuid4())}
    made = [create(metadata=mark).sandbox_id for _ in range(3)]
    pages = sdk.Sandbox.list(query=sdk.SandboxQuery(metadata=mark), limit=2)
    first = pages.next_items()
    assert len(first) == 2 and pages.has_next and pages.next_token
    second = pages.next_items()
    assert len(second) == 1 and not pages.has_next
    assert [each.sandbox_id for each in first + second] == made[::-1]


def test_list_mixes_those_that_run_and_those_that_rest(create, sdk):
    mark = {"mark": str(uuid4())}
    made = [create(metadata=mark) for _ in range(3)]
    made[1].beta_pause()
    ids = [each.sandbox_id for each in made]
    query = sdk.SandboxQuery(metadata=mark)
    assert [each.sandbox_id for each in everything(sdk.Sandbox.list(query=query))] == ids[::-1]
    assert [each.sandbox_id for each in everything(sdk.Sandbox.list(query=query, limit=1, order="asc"))] == ids


def test_list_finds_by_start_and_template(create, sdk):
    mark = {"mark": str(uuid4())}
    first, second = create(metadata=mark), create(metadata=mark)
    try:
        since = sdk.SandboxQuery(metadata=mark, started_after=second.get_info().started_at)
        of = sdk.SandboxQuery(metadata=mark, template=first.get_info().template_id)
        none = sdk.SandboxQuery(template="there-is-no-such-template")
    except TypeError:
        pytest.skip("this version does not filter by these")
    assert [each.sandbox_id for each in everything(sdk.Sandbox.list(query=since))] == [second.sandbox_id]
    assert len(everything(sdk.Sandbox.list(query=of))) == 2
    assert everything(sdk.Sandbox.list(query=none)) == []


def test_a_list_that_is_over_says_so(sdk):
    pages = sdk.Sandbox.list(query=sdk.SandboxQuery(metadata={"mark": str(uuid4())}))
    assert pages.next_items() == []
    with pytest.raises(Exception, match="No more items"):
        pages.next_items()


def test_list_goes_on_from_a_token(create, sdk):
    mark = {"mark": str(uuid4())}
    made = [create(metadata=mark).sandbox_id for _ in range(2)]
    query = sdk.SandboxQuery(metadata=mark)
    pages = sdk.Sandbox.list(query=query, limit=1)
    pages.next_items()
    rest = everything(sdk.Sandbox.list(query=query, limit=1, next_token=pages.next_token))
    assert [each.sandbox_id for each in rest] == [made[0]]


def test_list_with_a_bad_token_is_refused(sdk):
    with pytest.raises(sdk.error("SandboxException"), match="400"):
        sdk.Sandbox.list(next_token="nonsense").next_items()


def test_a_port_has_a_host_name_of_its_own(sandbox):
    host = sandbox.get_host(3000)
    assert host.startswith(f"3000-{sandbox.sandbox_id}.")


def test_a_port_is_reached_by_its_host_name(sandbox):
    """Without DNS: the name goes into the Host header of a request to the server."""
    sandbox.commands.run("mkdir -p /tmp/www && echo hello > /tmp/www/index.html")
    server = sandbox.commands.run("python3 -m http.server 3000 -d /tmp/www", background=True, timeout=0)
    try:
        assert ask(sandbox, 3000) == (200, b"hello\n")
    finally:
        server.kill()


def test_a_closed_port_is_said_to_be_closed(sandbox):
    status, body = ask(sandbox, 3999, wait=False)
    assert status == 502 and b"port is not open" in body


def test_an_mcp_gateway_is_found_by_host_name_and_token(sandbox):
    assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
    sandbox.files.write("/etc/mcp-gateway/.token", "of the gateway", user="root")
    assert sandbox.get_mcp_token() == "of the gateway"


def ask(sandbox, port, wait=True):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"], headers={"Host": sandbox.get_host(port)})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            if not wait or time.monotonic() > deadline:
                return error.code, error.read()
            time.sleep(0.05)
