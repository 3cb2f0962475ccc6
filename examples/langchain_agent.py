"""An agent of thirty lines: a model, the tools of a sandbox, and a loop. Needs langchain-core and a Paddock server.

python examples/langchain_agent.py "Write a program that prints the first ten primes, and run it."
"""

from __future__ import annotations

import asyncio
import sys

import models
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool

from paddock.session import SandboxSession

TASK = "Write a program that prints the first ten primes, and run it."
RULES = (
    "You work in a sandbox. Your files are in /workspace. Use the tools, and at last say in one sentence what came out."
)
PROGRAM = "print(*[n for n in range(2, 30) if all(n % d for d in range(2, n))])\n"
SCRIPT = (
    models.calls("file_write", path="primes.py", content=PROGRAM),
    models.calls("shell_exec", command="python3 primes.py"),
    AIMessage("The program is in /workspace/primes.py and prints the first ten primes."),
)


async def work(model: BaseChatModel, tools: list[BaseTool], task: str) -> str:
    """Call the model and run its tool calls until it makes none."""
    by_name = {tool.name: tool for tool in tools}
    thinking = model.bind_tools(tools)
    said: list[AnyMessage] = [SystemMessage(RULES), HumanMessage(task)]
    while True:
        answer = await thinking.ainvoke(said)
        said.append(answer)
        if not answer.tool_calls:
            return str(answer.text)
        for call in answer.tool_calls:
            print(f"→ {call['name']} {call['args']}")
            result = await by_name[call["name"]].ainvoke(call)
            print(f"← {result.text}")
            said.append(result)


async def main(task: str) -> None:
    async with await SandboxSession.create(session_id="example-langchain") as session:
        print(f"working in {session.sandbox_id}")
        print(await work(models.choose(SCRIPT), session.get_tools(), task))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or TASK))
