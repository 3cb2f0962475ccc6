"""The error tree: one place, one code each, and back from the wire as the same kind."""

from __future__ import annotations

import pytest

from paddock.errors import NotFound, PaddockError, error_for, every_error


def test_every_kind_has_a_code_of_its_own() -> None:
    import paddock.client.errors
    import paddock.lifecycle.git_clone  # noqa: F401

    kinds = list(every_error())
    codes = [kind.code for kind in kinds if "code" in vars(kind)]
    assert len(codes) == len(set(codes))
    assert all(400 <= kind.status < 600 for kind in kinds)


@pytest.mark.parametrize("kind", list(every_error()), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_from_the_wire_as_itself(kind: type[PaddockError]) -> None:
    again = error_for(kind.code, kind.status, "why", {"a": 1}, 2.0)
    assert isinstance(again, kind) or again.code == kind.code
    assert (again.message, again.details, again.retry_after) == ("why", {"a": 1}, 2.0)


def test_a_code_from_a_newer_server_is_known_by_its_status() -> None:
    assert type(error_for("brand_new", 404, "x")) is NotFound
