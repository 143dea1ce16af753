"""The official Python client, 2.x, in the mode given: legacy, auto or a revision."""

import asyncio
import sys
import time

import mcp
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from flow import converse, headers, over_http, report


class Client:
    busy_timeout_s = 60

    def __init__(self, client, handles):
        self.client = client
        self.handles = handles

    async def list(self):
        return [tool.model_dump(mode="json", by_alias=True) for tool in (await self.client.list_tools()).tools]

    async def call(self, arguments, progress=None, timeout=None, tool="execute_python"):
        result = await self.client.call_tool(
            tool, arguments, read_timeout_seconds=timeout, progress_callback=progress
        )
        return result.structured_content

    async def abort(self, arguments, after):
        await asyncio.wait_for(self.call(arguments), after)


def transport(server):
    if not over_http(server):
        return mcp.StdioServerParameters(command=server)
    if server.endswith("/sse"):
        return sse_client(server, headers=headers())
    return streamable_http_client(server, http_client=create_mcp_http_client(headers=headers()))


async def main(server, mark, mode):
    async with mcp.Client(transport(server), mode=mode) as client:
        seen = await converse(Client(client, mode != "legacy" and server.endswith("/mcp")), mark)
        closing = time.monotonic()
    report(seen, closing)


asyncio.run(main(*sys.argv[1:4]))
