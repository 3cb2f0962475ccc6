"""LangChain's own tests, on a sandbox that its package for Daytona is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona
from langchain_daytona import DaytonaSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestOnPaddock(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[DaytonaSandbox]:
        made = Daytona().create(CreateSandboxFromSnapshotParams(auto_stop_interval=0))
        yield DaytonaSandbox(sandbox=made)
        made.delete()
