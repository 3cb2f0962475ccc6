"""Which port of which sandbox a request is for."""

from __future__ import annotations

import pytest

from paddock import errors
from paddock.gateway.address import AddressForm, Destination, find_destination

KEY = "i0123456789abcdefghij"


def find(host: str = "localhost", path: str = "/", **headers: str) -> Destination | None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return find_destination(host, given.get, path)


@pytest.mark.parametrize(
    "host",
    [
        f"3000-{KEY}.localhost:8080",
        f"3000-{KEY}.example.org",
        f"3000-{KEY.upper()}.Example.Org",
        f"3000-{KEY}-client.example.org:443",
        f"03000-{KEY}.a.b.c",
    ],
)
def test_the_host_form(host: str) -> None:
    assert find(host) == Destination(KEY, 3000)


@pytest.mark.parametrize(
    "host", ["localhost", "3000.example.org", "", "10-0-0-5.nip.example", "x-1.example.org", f"3000-{KEY}", "[::1]"]
)
def test_hosts_of_the_api(host: str) -> None:
    assert find(host) is None


@pytest.mark.parametrize("host", ["0-abc.x", "70000-abc.x", "3000-.x", "3000-a_b.x", "3000--abc.x"])
def test_hosts_that_cannot_be(host: str) -> None:
    with pytest.raises(errors.MalformedRequest):
        find(host)


def test_the_header_form_and_what_it_ignores() -> None:
    found = find(e2b_sandbox_id=f"{KEY}-6532622b", e2b_sandbox_port="49983", path="/p/other/1/")
    assert found == Destination(KEY, 49983, AddressForm.HEADER)


def test_envd_s_headers_do_not_keep_a_request_from_the_control_plane() -> None:
    """Older SDKs of E2B send them with a connect request."""
    path = f"/e2b/sandboxes/{KEY}/connect"
    assert find(e2b_sandbox_id=KEY, e2b_sandbox_port="49983", path=path) is None
    assert find(e2b_sandbox_id=KEY, e2b_sandbox_port="3000", path=path) == Destination(KEY, 3000, AddressForm.HEADER)
    assert find(f"49983-{KEY}.x", path=path) == Destination(KEY, 49983)


def test_the_host_wins_over_headers() -> None:
    assert find(f"1-{KEY}.x", e2b_sandbox_id="other", e2b_sandbox_port="2") == Destination(KEY, 1)


@pytest.mark.parametrize(
    ("path", "key", "prefix"),
    [
        (f"/p/{KEY}/3000/a/b", KEY, f"/p/{KEY}/3000"),
        (f"/p/{KEY}/3000", KEY, f"/p/{KEY}/3000"),
        ("/p/alice_1f2e3d4c/3000/", "alice_1f2e3d4c", "/p/alice_1f2e3d4c/3000"),
        ("/p/a-b_c_1f2e3d4c/3000/", "a-b_c_1f2e3d4c", "/p/a-b_c_1f2e3d4c/3000"),
    ],
)
def test_the_path_form(path: str, key: str, prefix: str) -> None:
    found = find(path=path)
    assert found == Destination(key, 3000, AddressForm.PATH, prefix)
    assert found is not None and found.by_id is (key != KEY)


@pytest.mark.parametrize("path", ["/", "/p", "/p/", "/p/x", "/pp/x/1/", "/a/p/x/1/"])
def test_paths_of_the_api(path: str) -> None:
    assert find(path=path) is None


@pytest.mark.parametrize("path", ["/p/x/y/", "/p//1/", "/p/x/0/", "/p/../1/"])
def test_paths_that_cannot_be(path: str) -> None:
    with pytest.raises(errors.MalformedRequest):
        find(path=path)
