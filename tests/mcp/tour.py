"""A tour of every tool that needs nothing but a sandbox: files, commands, shells, Python, git, HTTP, other agents."""

from __future__ import annotations

from tests.mcp.calls import Call

PATCH = """*** Begin Patch
*** Add File: calls/patched.txt
+by a patch
*** Update File: calls/a.txt
@@
-three
+five
*** End Patch
"""

FILES = [
    Call("write_file", {"path": "calls/a.txt", "content": "one\ntwo\n"}, "a.txt", {"size": 8}),
    Call("read_file", {"path": "calls/a.txt"}, "two"),
    Call("read_file", {"path": "/nowhere"}, "list_directory", fails=True),
    Call("edit_file", {"path": "calls/a.txt", "old_string": "one", "new_string": "three"}),
    Call("multi_edit", {"path": "calls/a.txt", "edits": [{"old_string": "two", "new_string": "four"}]}),
    Call("list_directory", {"path": "calls"}, "a.txt"),
    Call("glob_files", {"pattern": "calls/*.txt"}, "calls/a.txt"),
    Call("grep_files", {"pattern": "^thr.e$"}, "three"),
    Call("search_files", {"query": "THREE"}, "calls/a.txt"),
    Call("apply_patch", {"patch": PATCH}, "patched.txt"),
    Call("move_file", {"source": "calls/patched.txt", "destination": "calls/b.txt"}, "b.txt"),
    Call("read_file", {"path": "calls/b.txt"}, "by a patch"),
    Call("delete_file", {"path": "calls/b.txt"}),
]
PLANS = [
    Call("todo_write", {"todos": [{"content": "look around", "status": "in_progress"}]}, "look around"),
    Call("todo_read", {}, "[>] look around", {"todos": [{"content": "look around"}]}),
]

# It says each line back in capitals, until there are no more.
ECHO = 'while read -r line; do echo "${line^^}"; done'
COMMANDS = [
    Call("run_command", {"command": "echo hello; exit 3"}, "hello", {"stdout": "hello\n", "exit_code": 3}),
    Call("env_set", {"name": "A_NAME", "value": "a value"}, "A_NAME", {"value": "a value"}),
    Call("env_get", {"name": "A_NAME"}, "a value", {"variables": {"A_NAME": "a value"}}),
    Call("run_command", {"command": ECHO, "background": True, "keep_input_open": True}, keep="task_id"),
    Call("task_list", {"running_only": True}, "while read", {"tasks": [{"status": "running"}]}),
    Call("process_list", {}, "COMMAND"),
    Call("task_input", {"task_id": "@task_id", "text": "quiet", "wait": 60}, "QUIET"),
    Call("task_output", {"task_id": "@task_id", "stdout_offset": 0}, "QUIET", {"stdout": "QUIET\n"}),
    Call("task_stop", {"task_id": "@task_id", "grace": 30}, data={"forced": False}),
]
SHELLS = [
    Call("shell_open", {"shell": "tour", "cwd": "/tmp"}, "tour", {"busy": False, "cwd": "/tmp"}),
    Call("shell_run", {"shell": "tour", "command": "X=kept; cd /"}, data={"exit_code": 0, "cwd": "/"}),
    Call("shell_send", {"shell": "tour", "text": 'echo "<$X>"', "wait": 60}, "<kept>", {"status": "completed"}),
    Call("shell_view", {"shell": "tour", "wait": 60}, "<kept>"),
    Call("shell_list", {}, "tour: free, in /", {"shells": [{"shell": "tour"}]}),
    Call("shell_close", {"shell": "tour"}, "Closed", {"shell": "tour"}),
    Call("shell_view", {"shell": "tour"}, "shell_run opens it", fails=True),
]

SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(418); self.end_headers(); self.wfile.write(b"a teapot at " + self.path.encode())
server = http.server.ThreadingHTTPServer(("127.0.0.1", 3100), Handler)
print("listening", flush=True)
server.serve_forever()
"""
NETWORK = [
    Call("write_file", {"path": "server.py", "content": SERVER}),
    Call("run_command", {"command": "python3 server.py", "background": True}, keep="task_id"),
    Call("task_output", {"task_id": "@task_id", "stdout_offset": 0, "wait": 60}, "listening"),
    Call(
        "http_request", {"url": "http://localhost:3100/x"}, "a teapot at /x", {"status": 418, "body": "a teapot at /x"}
    ),
    Call("port_list", {}, "3100", {"ports": [{"port": 3100}]}),
    Call("expose_port", {"port": 3100}, "3100", {"listening": True}),
    Call("task_stop", {"task_id": "@task_id", "signal": "KILL"}),
]

WHO = {"author_name": "Ada", "author_email": "ada@example.org"}
GIT = [
    Call("run_command", {"command": "git init --quiet --bare /tmp/origin.git"}, data={"exit_code": 0}),
    Call("git_clone", {"url": "/tmp/origin.git", "path": "clone"}, "empty", {"path": "/workspace/clone"}),
    Call("write_file", {"path": "clone/a.txt", "content": "first\n"}),
    Call("git_status", {"path": "clone"}, "a.txt", {"untracked": ["a.txt"], "clean": False}),
    Call("git_add", {"path": "clone"}, "A a.txt", {"staged": [{"path": "a.txt", "change": "A"}]}),
    Call("git_diff", {"path": "clone", "staged": True}, "+first", {"files": [{"path": "a.txt", "added": 1}]}),
    Call("git_commit", {"path": "clone", "message": "The beginning", **WHO}, "The beginning"),
    Call("git_branch", {"path": "clone", "action": "create", "name": "side"}, "* side", {"current": "side"}),
    Call("git_push", {"path": "clone"}, "side"),
    Call("git_pull", {"path": "clone"}, "up to date"),
    Call("git_log", {"path": "clone"}, "Ada: The beginning", {"commits": [{"subject": "The beginning"}]}),
]

WHEEL = """
import zipfile
at, meta = "/tmp/tiny_thing-1.0-py3-none-any.whl", "tiny_thing-1.0.dist-info"
with zipfile.ZipFile(at, "w") as wheel:
    wheel.writestr("tiny_thing.py", "answer = 42")
    wheel.writestr(meta + "/METADATA", "Metadata-Version: 2.1\\nName: tiny-thing\\nVersion: 1.0\\n")
    wheel.writestr(meta + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(meta + "/RECORD", "")
at
"""
PACKAGES = ["/tmp/tiny_thing-1.0-py3-none-any.whl"]


def python(has_pip: bool) -> list[Call]:
    """Not every machine's Python has pip."""
    if not has_pip:
        return [
            Call("run_python", {"code": WHEEL}, "tiny_thing"),
            Call("pip_install", {"packages": PACKAGES}, "ensurepip", fails=True),
        ]
    return [
        Call("run_python", {"code": WHEEL}, "tiny_thing", {"error": None}),
        Call("pip_install", {"packages": PACKAGES}, "tiny-thing-1.0", {"packages": ["tiny-thing-1.0"]}),
        Call("run_python", {"code": "import tiny_thing; tiny_thing.answer"}, "42", {"result": "42"}),
    ]


# They speak as the real ones do.
CLAUDE = r"""#!/bin/sh
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
printf '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"done: %s"}' "$(cat)"
"""
CODEX = r"""#!/bin/sh
echo '{"type":"thread.started","thread_id":"t-1"}'
printf '{"type":"item.completed","item":{"type":"agent_message","text":"done: %s"}}\n' "$(cat)"
echo '{"type":"turn.completed","usage":{}}'
"""
AGENTS = [
    Call("claude_code", {"prompt": "the work"}, "@anthropic-ai/claude-code", fails=True),
    Call("codex", {"prompt": "the work"}, "@openai/codex", fails=True),
    Call("write_file", {"path": "~/.local/bin/claude", "content": CLAUDE}),
    Call("write_file", {"path": "~/.local/bin/codex", "content": CODEX}),
    Call("run_command", {"command": "chmod +x ~/.local/bin/*"}, data={"exit_code": 0}),
    Call("env_set", {"name": "OPENAI_API_KEY", "value": "a key"}),
    Call("claude_code", {"prompt": "the work"}, "done: the work", {"result": "done: the work", "session_id": "s-1"}),
    Call("codex", {"prompt": "the work"}, "done: the work", {"result": "done: the work", "session_id": "t-1"}),
]


def tour(has_pip: bool) -> list[Call]:
    return [*FILES, *PLANS, *COMMANDS, *SHELLS, *NETWORK, *GIT, *python(has_pip), *AGENTS]
