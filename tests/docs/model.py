"""A model for the examples with agents: Anthropic's API with a script, so that an example runs as it is printed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SHELLS = ("shell_exec", "execute")
"""What a tool that runs a command is called by LangChain's toolkit and by deepagents."""


class ScriptedModel(ThreadingHTTPServer):
    """Calls the shell once, and then says what the shell has answered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.answers: list[str] = []
        """What it was told by the shell."""

    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.server_port}", "ANTHROPIC_API_KEY": "sk-ant-scripted"}


class _Conversation(BaseHTTPRequestHandler):
    server: ScriptedModel

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = [
            block
            for message in asked["messages"]
            for block in (message["content"] if isinstance(message["content"], list) else [])
            if block.get("type") == "tool_result"
        ]
        if results:
            self.server.answers.append(json.dumps(results[-1]["content"]))
            content: dict[str, Any] = {"type": "text", "text": f"It said: {self.server.answers[-1]}"}
        else:
            [shell] = [tool["name"] for tool in asked["tools"] if tool["name"] in _SHELLS]
            content = {
                "type": "tool_use",
                "id": "toolu_1",
                "name": shell,
                "input": {"command": "echo from the sandbox"},
            }
        self._answer(asked["model"], content)

    def _answer(self, model: str, content: dict[str, Any]) -> None:
        document = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [content],
            "stop_reason": "tool_use" if content["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Nothing."""


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        try:
            yield model
        finally:
            model.shutdown()
