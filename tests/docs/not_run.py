"""What no example is run for, and why: a piece of the command (with its prompt) or of the code, and the reason.

Each must be found in an example that is not run for it: an entry that fits nothing any more fails the tests.
"""

from __future__ import annotations

NOT_RUN = {
    # It would end or remove what the other examples need
    "paddock down": "stops the server: tests/cli/test_going_away.py",
    "paddock destroy": "removes the server's home: tests/cli/test_going_away.py",
    "pip uninstall": "removes Paddock",
    # It would be installed, built or measured
    "$ make ": "sets up a checkout, starts a server or runs the tests, this one among them",
    "paddock addon install": "downloads hundreds of megabytes: tests/browser and tests/addons keep them",
    "/addons/r/install": "downloads a hundred megabytes: tests/addons/test_api.py installs another one so",
    "paddock addon remove": "nothing is installed in this home: tests/addons/test_sandboxes.py",
    "pip install": "needs an index: tests/mcp/test_package_index.py in a sandbox; tests/docs/sdks.py plays the others",
    "uv tool": "needs an index: tests/packaging, with the wheels of a release",
    "pipx install": "needs an index: tests/packaging, with the wheels of a release",
    "paddock image ": "needs a registry: tests/images has its own",
    "--template python:3.12": "needs an image from a registry: tests/images/test_sandboxes.py",
    "npm install": "needs a registry: tests/mcp/test_agent_clis.py",
    "python -m benchmarks.": "measures for minutes",
    "pytest tests/chaos": "runs for minutes, and is run as itself",
    "python -m tests.": "drives whole SDKs for minutes, and is run as itself",
    "paddock doctor --full": "tries to break out for a minute or two: tests/escape makes the same attempts",
    # It needs what is not here
    "uvx": "needs an index inside a sandbox: tests/mcp/test_package_index.py types it",
    "--isolation strict": "needs Paddock as root on a machine that gives that level",
    "SANDBOX_PROVIDER=": "needs an account at a vendor: tests/vendor plays one",
    "PADDOCK_DOCKER_IMAGES=": "needs a Docker engine: tests/docker, where there is one",
    "--template node:22": "needs a Docker engine: tests/docker, where there is one",
    "browser_navigate": "needs the add-on: tests/browser has it",
    "dcode ": "needs deepagents' command line: tests/deepagents",
    "claude mcp add": "needs Claude Code: tests/mcp/test_agent_clis.py",
    "codex mcp add": "needs Codex: tests/mcp/test_agent_clis.py",
    "map $http_upgrade": "needs nginx",
    # It goes on until it is stopped
    "paddock up": "a server runs already",
    "python -m paddock.mcp": "serves until it is stopped: tests/mcp/test_alone.py",
}


def reason(text: str, used: set[str]) -> str | None:
    """Why this is not run. Notes in ``used`` what the reason was found for."""
    found = [piece for piece in NOT_RUN if piece in text]
    used.update(found)
    return NOT_RUN[found[0]] if found else None
