from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paddock.store.database import Store


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    await store.open()
    yield store
    await store.close()
