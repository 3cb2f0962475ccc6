"""The official SDK before 2.0, and LangChain's adapters over it: told what to do on standard input, tells what came."""

import asyncio
import json
import sys
from datetime import timedelta

from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def by_the_sdk(url, headers, calls):
    async with (
        streamablehttp_client(url, headers=headers, timeout=timedelta(seconds=60)) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        begun = await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        results = {}
        for name, arguments in calls:
            result = await session.call_tool(name, arguments, read_timeout_seconds=timedelta(seconds=60))
            text = "".join(block.text for block in result.content if block.type == "text")
            results[name] = {"failed": bool(result.isError), "text": text[:2000]}
    return {"version": begun.protocolVersion, "listed": listed, "results": results}


async def by_langchain(url, headers):
    client = MultiServerMCPClient({"sandbox": {"transport": "streamable_http", "url": url, "headers": headers}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    await tools["write_file"].ainvoke({"path": "langchain.txt", "content": "by an adapter"})
    read = await tools["read_file"].ainvoke({"path": "langchain.txt"})
    return {"listed": sorted(tools), "read": json.dumps(read)}


async def main():
    given = json.load(sys.stdin)
    headers = {"Authorization": f"Bearer {given['token']}"}
    found = await by_the_sdk(given["url"], headers, given["calls"])
    print(json.dumps({"sdk": found, "langchain": await by_langchain(given["url"], headers)}))


asyncio.run(main())
