"""The tool catalogue as LangChain tools. Needs the extra ``langchain``."""

from __future__ import annotations

from paddock.langchain.tools import SandboxToolkit, make_tool, make_tools

__all__ = ["SandboxToolkit", "make_tool", "make_tools"]
