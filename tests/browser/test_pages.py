"""A real Chromium in a real sandbox, used by its tools."""

from __future__ import annotations

import pytest

from tests.browser.conftest import URL, Visitor
from tests.docs.examples import examples
from tests.gateway.bed import Bed, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first test waits for the install

# Not every machine has ps and pkill.
NAMES = """python3 - <<'END'
import pathlib
print([path.read_text().strip() for path in pathlib.Path("/proc").glob("[0-9]*/comm")])
END"""
KILL = """python3 - <<'END'
import contextlib, os, pathlib, signal, time
def chromiums():
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, name, state = path.read_text().replace("(", " ").replace(")", " ").split()[:3]
        except OSError:
            continue
        if name == "chromium" and state not in "ZX":
            yield int(pid)
while found := list(chromiums()):
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.05)
END"""


def test_navigating_answers_with_a_picture_of_the_page(visitor: Visitor) -> None:
    answer = visitor.do("browser_navigate", url="localhost:3000")
    assert (answer.data["title"], answer.data["url"], answer.data["status"]) == ("First", f"{URL}/", 200)
    (picture,) = answer.pictures
    assert (picture.format, picture.size) == ("PNG", (1280, 800))
    assert picture.convert("RGB").getpixel((600, 100)) == (255, 0, 0)
    assert picture.convert("RGB").getpixel((50, 50)) == (0, 0, 255)


def test_a_form_is_filled_by_labels_and_sent_by_its_button(visitor: Visitor) -> None:
    visitor.do("browser_type", text="Ada", label="Your name")
    assert visitor.do("browser_select", values=["Green"], selector="#colour").data["selected"] == ["g"]
    visitor.do("browser_click", text="Send")
    assert visitor.value("document.querySelector('#said').textContent") == "Ada likes g"


def test_an_element_of_the_snapshot_is_clicked_by_its_ref(visitor: Visitor) -> None:
    lines = visitor.do("browser_snapshot").data["snapshot"].splitlines()
    (link,) = [line for line in lines if 'link "Second page"' in line]
    answer = visitor.do("browser_click", ref=link.partition("[ref=")[2].partition("]")[0])
    assert answer.data["title"] == "Second"
    assert visitor.do("browser_back").data["title"] == "First"
    assert visitor.do("browser_forward").data["title"] == "Second"


def test_a_point_is_clicked_by_its_place_in_the_picture(visitor: Visitor) -> None:
    answer = visitor.do("browser_click", x=50, y=50, screenshot=True)
    assert answer.pictures[0].convert("RGB").getpixel((50, 50)) == (0, 128, 0)


def test_one_element_and_the_whole_page_can_be_pictured(visitor: Visitor) -> None:
    assert visitor.do("browser_screenshot", selector="#corner").pictures[0].size == (100, 100)
    visitor.do("browser_navigate", url=f"{URL}/second", screenshot=False)
    assert visitor.do("browser_screenshot", full_page=True).pictures[0].size[1] > 3000
    assert visitor.do("browser_scroll", amount=500).data["y"] == 500


def test_an_element_that_is_not_there_is_answered_with_what_is(visitor: Visitor) -> None:
    answer = visitor.tool("browser_click", text="Buy now")
    assert answer.failed
    assert "There is no element" in answer.text
    assert 'button "Send"' in answer.text


def test_a_selector_of_several_elements_is_answered_with_the_choice(visitor: Visitor) -> None:
    answer = visitor.tool("browser_click", selector="button")
    assert answer.failed
    assert "several elements" in answer.text
    assert "Warn" in answer.text


def test_a_server_that_does_not_run_yet_is_said_to_be_so(visitor: Visitor) -> None:
    answer = visitor.tool("browser_navigate", url="http://localhost:3999")
    assert answer.failed
    assert "Nothing listens there" in answer.text


def test_a_tab_that_a_page_opens_is_current_and_can_be_left(visitor: Visitor) -> None:
    visitor.do("browser_click", text="Another tab")
    visitor.do("browser_wait", text="The second page", seconds=30)
    tabs = visitor.do("browser_tabs").data["tabs"]
    assert [(tab["title"], tab["current"]) for tab in tabs] == [("First", False), ("Second", True)]
    assert visitor.do("browser_tabs", action="switch", index=0).data["title"] == "First"
    assert len(visitor.do("browser_tabs", action="close", index=1).data["tabs"]) == 1
    visitor.do("browser_tabs", action="new", url=f"{URL}/second")
    assert visitor.value("document.title") == "Second"


def test_the_console_the_network_and_dialogs_are_told(visitor: Visitor) -> None:
    visitor.do("browser_click", text="Break")
    visitor.do("browser_wait", seconds=0.5)
    assert "it broke" in visitor.do("browser_console", errors_only=True).text
    assert "404 GET http://localhost:3000/missing" in visitor.do("browser_network", errors_only=True).text
    noted = visitor.do("browser_click", text="Warn").data["notes"]
    assert any("careful" in note for note in [*noted, *visitor.do("browser_tabs").data["notes"]])


def test_a_page_is_printed_to_a_file(visitor: Visitor) -> None:
    visitor.do("browser_pdf", path="out/page.pdf")
    assert visitor.box.run("head -c 5 /workspace/out/page.pdf") == "%PDF-"


def test_a_chromium_that_died_is_started_anew(visitor: Visitor) -> None:
    visitor.box.run(KILL, timeout=60)
    answer = visitor.tool("browser_click", text="Send")
    assert answer.failed
    assert "browser_navigate" in answer.text
    assert visitor.do("browser_navigate", url=URL).data["title"] == "First"


def test_cookies_outlive_the_browser(visitor: Visitor) -> None:
    visitor.value("document.cookie = 'seen=yes; max-age=3600'")
    visitor.do("browser_close")
    visitor.do("browser_navigate", url=URL, screenshot=False)
    assert "seen=yes" in visitor.value("document.cookie")


def test_a_page_cannot_use_the_tools_itself(visitor: Visitor) -> None:
    asked = "fetch('http://localhost:6080/call', {method: 'POST', body: '{\"action\": \"close\"}', %s})"
    plain = visitor.value("(%s).then((answer) => answer.type)" % (asked % "mode: 'no-cors'"))
    assert plain == "opaque"  # it was answered with a refusal that the page cannot even read:
    assert visitor.value("document.title") == "First"
    named = visitor.value("(%s).catch(() => 'refused')" % (asked % "headers: {'X-Paddock-Browser': 'call'}"))
    assert named == "refused"
    socket = "new Promise((done) => { const one = new WebSocket('ws://localhost:6080/live'); "
    socket += "one.onopen = () => done('open'); one.onerror = () => done('refused') })"
    assert visitor.value(socket) == "refused"


def test_before_its_first_use_nothing_of_it_runs(browser_bed: Bed) -> None:
    box = browser_bed.create()
    assert "node" not in box.run(NAMES)
    box.delete()


def test_without_the_addon_the_answer_says_how_to_get_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("bare"), "local") as bed:
        answer = Visitor(bed.create()).tool("browser_navigate", url=URL)
    assert answer.failed
    assert "paddock addon install browser" in answer.text


def test_the_example_of_the_documentation_prints_the_title(
    browser_bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_URL", browser_bed.url)
    monkeypatch.setenv("PADDOCK_API_KEY", browser_bed.key)
    (example,) = (each for each in examples("docs/browser.md") if each.language == "python")
    exec(example.text)
    assert "Hello" in capsys.readouterr().out


def test_a_page_that_is_refused_does_not_refuse_the_next(visitor: Visitor) -> None:
    for _ in range(3):
        assert visitor.tool("browser_navigate", url="https://10.9.8.7/", screenshot=False).failed
        assert visitor.do("browser_navigate", url=URL, screenshot=False).data["title"] == "First"


# Where Chromium's own requests are sent instead of to Google: when both have come, the time for them is over.
HOME = """
import http.server, pathlib
seen = pathlib.Path("/tmp/seen")
class Nobody(http.server.BaseHTTPRequestHandler):
    def answer(self):
        with seen.open("a") as file: file.write(f"{self.command} {self.path}\\n")
        self.send_error(404)
    do_GET = do_POST = answer
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 6079), Nobody).serve_forever()
"""
LISTENING = (
    "python3 -c 'import socket, time\nwhile socket.socket().connect_ex((\"127.0.0.1\", 6079)): time.sleep(0.05)'"
)
BOTH = "until grep -q ^POST /tmp/seen && grep -q v1/pages /tmp/seen; do sleep 0.1; done"


def test_a_browser_that_nobody_uses_asks_nobody_anything(browser_bed: Bed, visitor: Visitor) -> None:
    box = visitor.box

    def connections() -> int:
        with browser_bed.api() as api:
            report = api.get(f"/sandboxes/{box.sandbox_id}/egress").raise_for_status().json()
        return int(report["totals"]["connections"])

    before = connections()
    box.run(f"exec python3 -c '{HOME}'", background=True)
    box.run(LISTENING, timeout=60)
    visitor.do("browser_close")
    box.run("rm -r ~/.paddock/browser")  # with what it knows already
    visitor.do("browser_navigate", url=URL, screenshot=False)  # a page with a form, about which it would ask
    box.run(f"timeout 50 sh -c '{BOTH}'", timeout=55)
    assert "POST" in box.run("cat /tmp/seen")
    assert connections() == before


DISTINCT = """(() => {
  const pens = "漢字かな한국😀🚀".match(/./gu).map((character) => {
    const canvas = document.createElement('canvas');
    const pen = canvas.getContext('2d');
    pen.font = '40px sans-serif';
    pen.fillText(character, 10, 60);
    return canvas.toDataURL();
  });
  return new Set(pens).size;
})()"""


def test_every_script_and_emoji_can_be_read(visitor: Visitor) -> None:
    """Where there is no font for them all look the same: a box."""
    assert visitor.value(DISTINCT) == 8
