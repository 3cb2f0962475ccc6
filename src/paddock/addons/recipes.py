"""All add-ons by name."""

from __future__ import annotations

from paddock.addons.addon_store import known
from paddock.addons.browser import Browser
from paddock.addons.code_interpreter import CodeInterpreter
from paddock.addons.java import Java
from paddock.addons.r import R
from paddock.addons.recipe import Recipe
from paddock.addons.vscode import VsCode


def recipe(name: str, *, full: bool = False) -> Recipe:
    """``full``: the browser with Chromium and Node.js, even if this machine has them."""
    made: dict[str, Recipe] = {
        each.name: each for each in (Browser(full=full), CodeInterpreter(), Java(), R(), VsCode())
    }
    return made[known(name)]
