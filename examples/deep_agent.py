"""A deep agent whose files and commands live in a sandbox. Needs deepagents and a Paddock server.

python examples/deep_agent.py "Write a program that prints the first ten primes, and run it."
"""

from __future__ import annotations

import sys

import models
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, ToolMessage

from paddock.deepagents import PaddockSandbox
from paddock.session import SyncSandboxSession

TASK = "Write a program that prints the first ten primes, and run it."
PROGRAM = "print(*[n for n in range(2, 30) if all(n % d for d in range(2, n))])\n"
SCRIPT = (
    models.calls("write_file", file_path="/workspace/deep/primes.py", content=PROGRAM),
    models.calls("execute", command="python3 /workspace/deep/primes.py"),
    AIMessage("The program is in /workspace/deep/primes.py and prints the first ten primes."),
)


def main(task: str) -> None:
    with SyncSandboxSession.create(session_id="example-deep-agent", at_exit="delete") as session:
        print(f"working in {session.sandbox_id}")
        agent = create_deep_agent(model=models.choose(SCRIPT), backend=PaddockSandbox.of(session))
        for message in agent.invoke({"messages": [("user", task)]})["messages"]:
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    print(f"→ {call['name']} {call['args']}")
            if isinstance(message, ToolMessage):
                print(f"← {message.text}")
        print(message.text)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or TASK)
