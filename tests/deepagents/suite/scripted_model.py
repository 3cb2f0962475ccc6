"""In the place of Anthropic's models: calls tools by a script, then says that it is done. Keeps what tools answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_USAGE = {"input_tokens": 1, "output_tokens": 1}
Step = tuple[str, dict[str, Any]]


class Model:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.results: list[str] = []

    def events(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        blocks = [block for each in asked["messages"] if isinstance(each["content"], list) for block in each["content"]]
        self.results = [json.dumps(block["content"]) for block in blocks if block.get("type") == "tool_result"]
        done = len(self.results)
        yield {"type": "message_start", "message": _message(asked, f"m_{done}")}
        if done < len(self.steps):
            name, arguments = self.steps[done]
            block = {"type": "tool_use", "id": f"call_{done}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "All done."}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": _USAGE}
        yield {"type": "message_stop"}


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path.startswith("/v1/messages") else 404)
            if asked.get("stream"):
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for event in model.events(asked):
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            else:
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                whole = {"content": [{"type": "text", "text": "All done."}], "stop_reason": "end_turn"}
                self.wfile.write(json.dumps({**_message(asked, "m"), **whole}).encode())

        def log_message(self, *words: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _message(asked: dict[str, Any], name: str) -> dict[str, Any]:
    base = {"id": name, "type": "message", "role": "assistant", "model": asked.get("model"), "content": []}
    return {**base, "stop_reason": None, "stop_sequence": None, "usage": _USAGE}
