"""Other coding agents, run inside the sandbox: Claude Code and Codex."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.tools import running
from paddock.tools.agents import AgentAnswer, AgentRun, run_agent, said
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import excerpt
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("agents")

Prompt = Annotated[str, Field(min_length=1, max_length=500_000, description="The task, with all necessary context.")]
Where = Annotated[str, Field(description="Working directory.")]
Session = Annotated[
    str | None,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$", description="A session to continue."),
]
Model = Annotated[str | None, Field(pattern=r"^[^-\s]\S{0,99}$", description="Null: its default.")]
Seconds = Annotated[float, Field(gt=0, le=14_400, description="Seconds.")]

_CLAUDE = "npm install -g --prefix ~/.local @anthropic-ai/claude-code"
_CODEX = "npm install -g --prefix ~/.local @openai/codex"
_LOGIN = re.compile(r"log ?in|API key|credential|authenticat|401|unauthori[sz]ed", re.IGNORECASE)


class _Claude(AgentRun):
    def hear(self, event: Mapping[str, Any]) -> str | None:
        self.session_id = str(event.get("session_id") or self.session_id or "") or None
        match event.get("type"):
            case "assistant":
                return self._on_message(event.get("message"))
            case "result":
                text = str(event.get("result") or "")
                self.result = text or self.result
                if event.get("is_error") or str(event.get("subtype", "success")) != "success":
                    self.problem = text or str(event.get("subtype") or "it failed")
                cost = event.get("total_cost_usd")
                self.cost_usd = float(cost) if isinstance(cost, int | float) else None
        return None

    def _on_message(self, message: Any) -> str | None:
        news = None
        for part in message.get("content", []) if isinstance(message, dict) else []:
            if isinstance(part, dict) and part.get("type") == "tool_use":
                self.steps += 1
                news = f"uses {part.get('name')}"
            elif isinstance(part, dict) and part.get("type") == "text":
                news = " ".join(str(part.get("text", "")).split())[:200] or news
        return news


class _Codex(AgentRun):
    def hear(self, event: Mapping[str, Any]) -> str | None:
        match event.get("type"):
            case "thread.started":
                self.session_id = str(event.get("thread_id") or "") or None
            case "item.started" | "item.completed" as when:
                return self._on_item(event.get("item"), when == "item.completed")
            case "turn.failed":
                failed = event.get("error")
                self.problem = str(failed.get("message") if isinstance(failed, dict) else failed)
            case "error":
                return str(event.get("message"))[:200]
        return None

    def _on_item(self, item: Any, done: bool) -> str | None:
        if not isinstance(item, dict):
            return None
        match item.get("type"):
            case "agent_message" if done:
                self.result = str(item.get("text") or "")
                return " ".join(self.result.split())[:200]
            case "command_execution" | "file_change" | "mcp_tool_call" | "web_search" as kind:
                self.steps += done
                return f"{kind}: {str(item.get('command') or '')[:150]}".rstrip(": ")
        return None


@kit.tool("claude_code", "Ask Claude Code", destructive=True, open_world=True)
async def claude_code(
    ctx: ToolContext,
    prompt: Prompt,
    cwd: Where = ".",
    session_id: Session = None,
    model: Model = None,
    permission_mode: Annotated[
        Literal["plan", "default", "acceptEdits", "bypassPermissions"] | None,
        Field(description="What it may do without asking. Null: everything in a sandbox, else edits."),
    ] = None,
    timeout: Seconds = 1800,
) -> ToolReply[AgentAnswer]:
    """Have Claude Code do a piece of work inside the sandbox on its own: write code, run it, fix it.

    It does not see this conversation. Answers with its last message and a session_id to go on with. It needs
    ANTHROPIC_API_KEY or a login.
    """
    mode = permission_mode or ("bypassPermissions" if ctx.confined else "acceptEdits")
    argv = ["claude", "--print", "--output-format", "stream-json", "--verbose", "--permission-mode", mode]
    argv += ["--resume", session_id] if session_id else []
    argv += ["--model", model] if model else []
    heard = _Claude()
    info = await run_agent(ctx, heard, argv, prompt=prompt, cwd=ctx.path(cwd), seconds=timeout)
    if info.exit_code == running.NOT_FOUND and not heard.result:
        raise ToolFailed(f"Claude Code is not installed in this sandbox. Install it with run_command: {_CLAUDE}")
    if info.exit_code or heard.problem:
        why = heard.problem or await said(ctx, info)
        login = (
            " Give it a key: env_set ANTHROPIC_API_KEY, or create the sandbox with it in its environment."
            if _LOGIN.search(why)
            else ""
        )
        raise ToolFailed(f"Claude Code could not do it: {why}{login}{_again(heard)}")
    return await _answer(ctx, heard, "claude")


@kit.tool("codex", "Ask Codex", destructive=True, open_world=True)
async def codex(
    ctx: ToolContext,
    prompt: Prompt,
    cwd: Where = ".",
    session_id: Session = None,
    model: Model = None,
    access: Annotated[
        Literal["read-only", "workspace-write", "danger-full-access"] | None,
        Field(description="What it may do. Null: everything in a sandbox, else writing to cwd."),
    ] = None,
    timeout: Seconds = 1800,
) -> ToolReply[AgentAnswer]:
    """Have OpenAI's Codex do a piece of work inside the sandbox on its own: write code, run it, fix it.

    It does not see this conversation. Answers with its last message and a session_id to go on with. It needs
    OPENAI_API_KEY or a login.
    """
    rights = access or ("danger-full-access" if ctx.confined else "workspace-write")
    argv = ["codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", rights]
    argv += ["--model", model] if model else []
    argv += ["resume", session_id, "-"] if session_id else ["-"]
    # Without credentials it retries for minutes; with its own provider in its settings it may need none.
    before = (
        'c="${CODEX_HOME:-$HOME/.codex}"; export CODEX_API_KEY="${CODEX_API_KEY:-$OPENAI_API_KEY}"; '
        '[ -n "$CODEX_API_KEY" ] || unset CODEX_API_KEY; '
        '[ -n "$CODEX_API_KEY" ] || [ -s "$c/auth.json" ] || grep -qs model_provider "$c/config.toml" || exit 77; '
    )
    heard = _Codex()
    info = await run_agent(ctx, heard, argv, prompt=prompt, cwd=ctx.path(cwd), seconds=timeout, before=before)
    if info.exit_code == running.NOT_FOUND and not heard.result:
        raise ToolFailed(f"Codex is not installed in this sandbox. Install it with run_command: {_CODEX}")
    if info.exit_code == 77 and not heard.session_id:
        raise ToolFailed("Codex has no credentials. Give it a key: env_set OPENAI_API_KEY, or run `codex login`.")
    if info.exit_code or heard.problem:
        why = heard.problem or await said(ctx, info)
        raise ToolFailed(f"Codex could not do it: {why}{_again(heard)}")
    return await _answer(ctx, heard, "codex")


async def _answer(ctx: ToolContext, heard: AgentRun, name: str) -> ToolReply[AgentAnswer]:
    cut = await excerpt(ctx, heard.result, name)
    data = AgentAnswer(
        result=cut.text,
        session_id=heard.session_id,
        steps=heard.steps,
        cost_usd=heard.cost_usd,
        result_file=cut.file,
    )
    return ToolReply(f"{cut.text or '(it said nothing)'}{_again(heard)}", data)


def _again(heard: AgentRun) -> str:
    return f"\n[session_id {heard.session_id}]" if heard.session_id else ""
