"""Add-ons: programs too large for every template, installed once per server and seen read-only in every local sandbox.

``PADDOCK_HOME/addons/<name>/<version>`` holds one, and ``current`` beside it says which version counts. A sandbox sees
the folder of them all, so that one which is installed later is there at once.
"""

NAMES = ("browser", "code-interpreter", "java", "r", "vscode")
FOLDER = "/opt/paddock"
"""In a sandbox, ``<FOLDER>/<name>`` is the add-on."""
INSIDE = f"{FOLDER}/addons"
CURRENT = "current"
