"""Wheels, and who installs them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.packaging import wheels as found
from tests.packaging.installed import ORDINARY_UID, Person, a_person
from tests.packaging.wheels import Wheels


@pytest.fixture(scope="session")
def wheels() -> Wheels:
    return found.find()


@pytest.fixture
def person() -> Iterator[Person]:
    with a_person() as one:
        yield one


@pytest.fixture(params=["root", "ordinary user"])
def anybody(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Root, where the tests are run by root; and an ordinary user."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("the tests are not run by root")
    with a_person(ORDINARY_UID if request.param != "root" and os.geteuid() == 0 else os.geteuid()) as one:
        yield one
