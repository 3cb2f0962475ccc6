"""LangChain's own suite for sandboxes of deepagents, on a sandbox of Paddock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from paddock.deepagents import PaddockSandbox
from paddock.session import SyncSandboxSession


class TestPaddock(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[PaddockSandbox]:
        with SyncSandboxSession.create(user_id="deepagents") as session:
            yield PaddockSandbox.of(session)
