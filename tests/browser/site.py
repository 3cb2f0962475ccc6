"""A site to visit, served inside the sandbox."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIRST = """<!doctype html><title>First</title>
<style>body { margin: 0; background: rgb(255, 0, 0) } main { background: white; padding: 20px; margin: 300px 0 0 }
#corner { position: absolute; left: 0; top: 0; width: 100px; height: 100px; background: rgb(0, 0, 255) }</style>
<div id="corner" onclick="this.style.background = 'rgb(0, 128, 0)'"></div>
<main>
  <form onsubmit="event.preventDefault(); said.textContent = `${who.value} likes ${colour.value}`">
    <label>Your name <input id="who"></label>
    <label>Colour <select id="colour"><option value="r">Red</option><option value="g">Green</option></select></label>
    <button>Send</button>
  </form>
  <p id="said"></p>
  <a href="/second">Second page</a> <a href="/second" target="_blank">Another tab</a>
  <button onclick="alert('careful')">Warn</button>
  <button onclick="console.error('it broke'); fetch('/missing')">Break</button>
</main>"""
SECOND = "<!doctype html><title>Second</title><h1>The second page</h1><div style='height: 3000px'></div>"


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/": FIRST, "/second": SECOND}
        body = pages.get(self.path, "nothing").encode()
        self.send_response(200 if self.path in pages else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 3000), Site).serve_forever()
