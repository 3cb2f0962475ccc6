"""A tour of every tool of the browser, on a page that is served in the sandbox."""

from __future__ import annotations

from tests.mcp.calls import Call

PORT = 3200
URL = f"http://localhost:{PORT}"
PAGE = """<!doctype html><title>Tour</title><style>body { margin: 0; height: 3000px }</style>
<div id="box" draggable="true" style="width: 80px; height: 40px" onmouseover="seen.textContent = 'pointed at'">Box</div>
<div id="bin" style="width: 80px; height: 40px" ondragover="event.preventDefault()"
  ondrop="seen.textContent = 'dropped'">Bin</div>
<label>Name <input id="name" onkeydown="if (event.key == 'Enter') seen.textContent = 'hello ' + this.value"></label>
<select id="colour"><option value="r">Red</option><option value="g">Green</option></select>
<button onclick="seen.textContent = 'clicked'; console.error('it broke'); fetch('/missing').then(() => {
  asked.textContent = 'was answered' })">Click me</button>
<p id="seen"></p><p id="asked"></p>"""
SERVER = f"""
import http.server, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Type", "text/html"); self.end_headers()
        self.wfile.write(pathlib.Path("page.html").read_bytes())
server = http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), Handler)
print("listening", flush=True)
server.serve_forever()
"""


def shows(text: str) -> Call:
    return Call("browser_wait", {"text": text, "seconds": 60}, "Waited", {"title": "Tour"})


GLANCE = [
    Call("browser_navigate", {"url": URL}, "Tour", {"title": "Tour", "status": 200}, pictures=1),
    Call("browser_click", {"text": "Click me"}, "Clicked", {"url": f"{URL}/"}),
    Call("browser_evaluate", {"expression": "seen.textContent"}, "clicked", {"value": "clicked"}),
]
"""Enough to see that a client can use the browser."""
TOUR = [
    *GLANCE,
    shows("was answered"),
    Call("browser_network", {"errors_only": True}, f"404 GET {URL}/missing", {"entries": [{"status": 404}]}),
    Call("browser_console", {"errors_only": True}, "it broke", {"entries": [{"type": "error"}]}),
    Call("browser_snapshot", {}, 'button "Click me"', {"title": "Tour"}),
    Call("browser_hover", {"selector": "#box"}, "The mouse is there"),
    shows("pointed at"),
    Call("browser_drag", {"source": {"selector": "#box"}, "target": {"selector": "#bin"}}, "Dragged"),
    shows("dropped"),
    Call("browser_select", {"selector": "#colour", "values": ["Green"]}, "Green", {"selected": ["g"]}),
    Call("browser_type", {"label": "Name", "text": "Ada"}, "3 characters"),
    Call("browser_press", {"key": "Enter"}, "Pressed Enter"),
    shows("hello Ada"),
    Call("browser_scroll", {"amount": 500}, "At 500", {"y": 500}),
    Call("browser_screenshot", {"full_page": True}, "Tour", pictures=1),
    Call("browser_navigate", {"url": f"{URL}/?second", "screenshot": False}, "?second"),
    Call("browser_back", {}, data={"url": f"{URL}/"}),
    Call("browser_forward", {}, data={"url": f"{URL}/?second"}),
    Call("browser_tabs", {"action": "new", "url": URL}, "1: Tour", {"tabs": [{"index": 1, "current": True}]}),
    Call("browser_pdf", {"path": "tour.pdf"}, "/workspace/tour.pdf", {"path": "/workspace/tour.pdf"}),
    Call("run_command", {"command": "head -c 5 tour.pdf"}, "%PDF-"),
    Call("browser_live_view", {}, "6080"),
    Call("browser_close", {}, "closed"),
]
