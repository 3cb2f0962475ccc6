"""What `import paddock` offers: every name is shown before it is used, and importing it costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys

_ASK = """
import json, sys
import paddock
shown = dir(paddock)
early = sorted({"httpx", "pydantic"} & set(sys.modules))
kinds = {name: callable(getattr(paddock, name)) for name in shown if name != "__version__"}
starred = {}
exec("from paddock import *", starred)
print(json.dumps([shown, early, kinds, sorted(set(shown) - set(starred))]))
"""


def test_dir_shows_every_name_before_it_is_used_and_each_is_there() -> None:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
    shown, early, kinds, missing = json.loads(asked.stdout)
    assert {"SandboxClient", "SyncSandboxClient", "SandboxSession", "create_sandbox", "__version__"} <= set(shown)
    kinds_of_sandbox = {"LocalSandbox", "DockerSandbox", "KubernetesSandbox", "E2BSandbox", "DaytonaSandbox"}
    assert kinds_of_sandbox <= set(shown), "docs/langchain.md names them"
    assert early == [], "imported before anything of it was used"
    assert all(kinds.values()) and missing == []
