"""In the place of a model: answers Claude Code's and Codex's requests in their makers' words, always with the same.

It prints the tools that it was offered.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAID = "The model was reached."


def openai():
    item = {
        "type": "message",
        "id": "m_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": SAID, "annotations": []}],
    }
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "r_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "r_1", "usage": usage}}


def anthropic(model):
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        print("offered:", json.dumps(asked.get("tools", [])), flush=True)
        if path == "/v1/responses":
            self.stream(openai())
        elif path == "/v1/messages":
            self.stream(anthropic(asked.get("model", "")))
        else:
            self.nothing()

    def do_GET(self):
        self.nothing()

    def stream(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def nothing(self):
        self.send_response(404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, form, *words):
        print(form % words, flush=True)


server = ThreadingHTTPServer(("127.0.0.1", 3300), Model)
print("listening", flush=True)
server.serve_forever()
