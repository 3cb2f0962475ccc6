"""Add-ons: programs too large for every template, installed once per server and mounted read-only in every local
sandbox.

``PADDOCK_HOME/addons/<name>/<version>`` contains one version, and the link ``current`` beside it names the one in use.
Sandboxes mount the directory of all add-ons, so a new one is visible to running sandboxes at once.
"""

NAMES = ("browser", "code-interpreter", "java", "r", "vscode")
FOLDER = "/opt/paddock"
"""Mount point in sandboxes: an add-on is at ``<FOLDER>/<name>``."""
INSIDE = f"{FOLDER}/addons"
CURRENT = "current"
