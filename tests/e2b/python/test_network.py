"""Who may come in, and where a sandbox may go."""

import json
import os
import urllib.error
import urllib.request

import pytest
from waiting import wait_until


def ask(sandbox, port, headers=None, path="/"):
    """Through the server, by the headers that the SDK uses itself."""
    routing = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + path, headers=routing | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def serve(sandbox, port, script):
    sandbox.files.write("/tmp/serve.py", script)
    sandbox.commands.run(f"python3 /tmp/serve.py {port}", background=True, timeout=0)
    look = f"(echo > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || true"
    wait_until(lambda: "open" in sandbox.commands.run(look).stdout)


ECHO_HOST = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_ports_are_open_to_all_by_default(create):
    made = create()
    assert made.traffic_access_token is None
    serve(made, 3000, ECHO_HOST)
    assert ask(made, 3000)[0] == 200


def test_ports_may_ask_for_a_token(create):
    made = create(network={"allow_public_traffic": False})
    assert made.traffic_access_token
    serve(made, 3000, ECHO_HOST)
    assert ask(made, 3000)[0] == 403
    assert ask(made, 3000, {"e2b-traffic-access-token": "wrong"})[0] == 403
    assert ask(made, 3000, {"e2b-traffic-access-token": made.traffic_access_token})[0] == 200


def test_a_sandbox_may_be_told_another_host_name(create):
    made = create(network={"mask_request_host": "${PORT}.example.test"})
    serve(made, 3000, ECHO_HOST)
    assert ask(made, 3000) == (200, b"3000.example.test")


def test_a_closed_port_answers_as_the_sdk_expects(sandbox):
    status, body = ask(sandbox, 3999)
    document = json.loads(body)
    assert status == document["code"] == 502
    assert document["sandboxId"] == sandbox.sandbox_id and document["port"] == 3999
    assert document["message"] == "The sandbox is running but port is not open"


def test_a_sandbox_that_is_not_there_answers_as_the_sdk_expects(create):
    made = create()
    made.kill()
    status, body = ask(made, 3000)
    document = json.loads(body)
    assert status == document["code"] == 502
    assert document["message"] == "The sandbox was not found"


def test_envd_asks_for_the_token_of_its_sandbox(sandbox):
    for headers in ({}, {"X-Access-Token": "wrong"}):
        status, body = ask(sandbox, 49983, headers, "/envs")
        assert (status, json.loads(body)) == (
            401,
            {
                "code": 401,
                "message": "unauthorized access, please provide a valid access token or method signing if supported",
            },
        )


def test_health_needs_no_token(sandbox):
    assert ask(sandbox, 49983, path="/health") == (204, b"")


def test_half_an_address_is_refused(sandbox):
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"], headers={"E2b-Sandbox-Id": sandbox.sandbox_id})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    assert raised.value.code == 400


def reaches(sandbox):
    """Whether a site outside answers. Its address is a loopback one, hence the proxy by name."""
    script = (
        "import os, urllib.request as u; opener = u.build_opener(u.ProxyHandler({'http': os.environ['HTTP_PROXY']})); "
        f"print(opener.open('{os.environ['PADDOCK_TEST_SITE']}', timeout=10).read().decode())"
    )
    return sandbox.commands.run(f'python3 -c "{script}" || true').stdout == "hello\n"


SITE = os.environ["PADDOCK_TEST_SITE"].removeprefix("http://").partition(":")[0]


def test_a_sandbox_has_a_way_out(create):
    assert reaches(create())


def test_a_sandbox_may_have_no_way_out(create):
    made = create(allow_internet_access=False)
    assert not reaches(made)
    assert made.get_info().allow_internet_access is False


def test_only_what_is_allowed_is_reached(create):
    assert reaches(create(network={"deny_out": ["0.0.0.0/0"], "allow_out": [SITE]}))
    assert not reaches(create(network={"deny_out": ["0.0.0.0/0"], "allow_out": ["198.51.100.7"]}))
    assert not reaches(create(network={"deny_out": [f"{SITE}/32"]}))


def test_a_change_of_the_ways_out_counts_at_once(create):
    made = create()
    made.update_network({"deny_out": [SITE]})
    assert not reaches(made)
    made.update_network({})
    assert reaches(made)


def test_ways_out_are_told(create):
    made = create(network={"deny_out": ["0.0.0.0/0"], "allow_out": ["198.51.100.0/24", "example.org"]})
    network = made.get_info().network
    assert set(network["allow_out"]) == {"198.51.100.0/24", "example.org"}
    assert network["deny_out"] == ["0.0.0.0/0"]


def test_ways_out_are_changed_while_it_runs(create, sdk):
    made = create()
    made.update_network({"deny_out": ["203.0.113.7/32"]})
    assert made.get_info().network["deny_out"] == ["203.0.113.7/32"]
    sdk.Sandbox.update_network(made.sandbox_id, {"allow_internet_access": False})
    assert made.get_info().network.get("allow_out", []) == []


def test_a_name_without_a_closed_door_is_refused(create, sdk):
    with pytest.raises(sdk.error("SandboxException"), match="400"):
        create().update_network({"allow_out": ["example.org"]})


def test_ways_out_of_nobody_are_not_found(sdk):
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.update_network("inosuchsandbox0000000", {})
