"""LangChain's own suite for sandboxes of deepagents, on a sandbox of Paddock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests
from paddock.client import SyncSandboxClient
from paddock.deepagents import PaddockSandbox


class TestPaddock(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[PaddockSandbox]:
        with SyncSandboxClient() as client:
            box = client.create_sandbox("deepagents")
            try:
                with PaddockSandbox(box.sandbox_id) as backend:
                    yield backend
            finally:
                client.delete_sandbox(box.sandbox_id)
