"""The tool catalogue as LangChain tools. Needs the extra ``langchain``."""

from __future__ import annotations

from paddock.langchain.toolkit import SandboxToolkit
from paddock.langchain.tools import make_tool, make_tools

__all__ = ["SandboxToolkit", "make_tool", "make_tools"]
