"""The official SDK before 2.0, and LangChain's adapters over it: told what to do on standard input, tells what came."""

import asyncio
import json
import sys
from datetime import timedelta

from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

PATIENCE = timedelta(seconds=300)


def filled(arguments, kept):
    return {name: kept.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}


async def tour(calls, call):
    """Every call in turn, by this way of calling."""
    kept, answers = {}, []
    for each in calls:
        answer = await call(each["tool"], filled(each["arguments"], kept))
        if each["keep"]:
            kept[f"@{each['keep']}"] = answer["data"][each["keep"]]
        answers.append({"tool": each["tool"], **answer})
    return answers


async def by_the_sdk(url, headers, calls):
    async with (
        streamablehttp_client(url, headers=headers, timeout=PATIENCE) as (read, write, _),
        ClientSession(read, write) as session,
    ):

        async def call(name, arguments):
            result = await session.call_tool(name, arguments, read_timeout_seconds=PATIENCE)
            return {
                "failed": bool(result.isError),
                "text": "".join(block.text for block in result.content if block.type == "text"),
                "data": result.structuredContent,
                "pictures": sum(block.type == "image" for block in result.content),
            }

        begun = await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        return {"version": begun.protocolVersion, "listed": listed, "answers": await tour(calls, call)}


async def by_langchain(url, headers, calls):
    connection = {"transport": "streamable_http", "url": url, "headers": headers, "timeout": PATIENCE}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"sandbox": connection}).get_tools()}

    async def call(name, arguments):
        asked = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
        message = await tools[name].ainvoke(asked)
        blocks = [message.content] if isinstance(message.content, str) else message.content
        return {
            "failed": message.status == "error",
            "text": "".join(block if isinstance(block, str) else block.get("text", "") for block in blocks),
            "data": (message.artifact or {}).get("structured_content"),
            "pictures": sum(not isinstance(block, str) and block["type"] == "image" for block in blocks),
        }

    return {"listed": sorted(tools), "answers": await tour(calls, call)}


async def main():
    given = json.load(sys.stdin)
    way = {"sdk": by_the_sdk, "langchain": by_langchain}[sys.argv[1]]
    print(json.dumps(await way(given["url"], {"Authorization": f"Bearer {given['token']}"}, given["calls"])))


asyncio.run(main())
