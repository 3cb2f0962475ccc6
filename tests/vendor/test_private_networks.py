"""Private networks cannot be opened for a machine at a vendor: there they would be the vendor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddock.egress.policy import EgressPolicy
from paddock.errors import Unsupported
from paddock.providers.daytona.network import settings_of as daytona
from paddock.providers.e2b.network import settings_of as e2b


@pytest.mark.parametrize("settings_of", [e2b, daytona])
@pytest.mark.parametrize(
    "policy",
    [
        EgressPolicy(private=("10.0.0.0/8",)),
        EgressPolicy(private=("db.corp.test",)),
        EgressPolicy(allow=("10.1.2.3",)),
        EgressPolicy(allow=("169.254.169.254", "8.8.8.8")),
    ],
)
def test_they_are_refused(settings_of: Callable[[EgressPolicy], dict[str, Any]], policy: EgressPolicy) -> None:
    with pytest.raises(Unsupported, match="vendor"):
        settings_of(policy)


@pytest.mark.parametrize("settings_of", [e2b, daytona])
def test_everything_public_is_not(settings_of: Callable[[EgressPolicy], dict[str, Any]]) -> None:
    settings_of(EgressPolicy(allow=("0.0.0.0/0",)))
    settings_of(EgressPolicy(allow=("*",)))
