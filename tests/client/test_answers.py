"""Answers: attributes, and a mapping too."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from paddock import models
from tests.client.script import BOX, RESULT, answer, script


def test_a_sandbox_is_an_object_and_a_mapping() -> None:
    box = script(answer(BOX)).client().create_sandbox("alice")
    assert box.sandbox_id == box["sandbox_id"] == box.get("sandbox_id") == "alice_1f2e3d4c"
    assert "mcp_url" in box
    assert "nonsense" not in box
    assert box.get("nonsense", 3) == 3
    assert issubclass(type(box), Mapping)
    assert isinstance(box, models.SandboxAnswer)
    with pytest.raises(KeyError):
        box["nonsense"]
    with pytest.raises(KeyError):
        box["model_fields"]


def test_as_a_mapping_an_answer_is_the_document_that_the_server_sent() -> None:
    box = script(answer(BOX)).client().get_status("alice_1f2e3d4c")
    assert dict(box) == BOX
    assert {**box} == BOX
    assert json.loads(json.dumps(dict(box))) == BOX
    assert set(box) == set(box.keys()) == set(BOX)
    assert len(box) == len(BOX)
    assert dict(box.items()) == BOX
    assert len(list(box.values())) == len(BOX)
    assert box["resources"]["memory_mb"] == box.resources.memory_mb == 512


def test_the_result_of_a_command_is_one_too() -> None:
    result = script(answer(RESULT)).client().run_command("alice_1f2e3d4c", "echo hi")
    assert result.stdout == result["stdout"] == "hi\n"
    assert result["status"] == "completed"
    assert dict(result) == RESULT


def test_the_sandboxes_of_a_page_are_too() -> None:
    page = script(answer({"sandboxes": [BOX], "next_cursor": None})).client().list_sandboxes()
    assert page.sandboxes[0]["sandbox_id"] == page["sandboxes"][0]["sandbox_id"] == "alice_1f2e3d4c"


def test_what_a_newer_server_adds_does_no_harm() -> None:
    box = script(answer({**BOX, "colour": "green"})).client().create_sandbox("alice")
    assert box.sandbox_id == "alice_1f2e3d4c"


def test_pages_are_followed_to_the_end() -> None:
    first = {"sandboxes": [BOX], "next_cursor": "two"}
    last = {"sandboxes": [{**BOX, "sandbox_id": "bob_00000000"}], "next_cursor": None}
    server = script(answer(first), answer(last))
    found = [box.sandbox_id for box in server.client().iter_sandboxes("alice", "running", limit=1)]
    assert found == ["alice_1f2e3d4c", "bob_00000000"]
    assert dict(server.requests[1].url.params) == {
        "user_id": "alice",
        "status": "running",
        "limit": "1",
        "cursor": "two",
    }
