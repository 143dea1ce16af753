"""The official Python client, 1.x."""

import asyncio
import sys
import time
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from flow import converse, headers, over_http, report


class Client:
    # 1.x tells the server nothing when its own time-out is over, so the code
    # runs on to its limit, and the next call waits for that.
    busy_timeout_s = 3
    handles = False

    def __init__(self, session):
        self.session = session

    async def list(self):
        return [tool.model_dump(mode="json") for tool in (await self.session.list_tools()).tools]

    async def call(self, arguments, progress=None, timeout=None, tool="execute_python"):
        limit = timedelta(seconds=timeout) if timeout else None
        result = await self.session.call_tool(tool, arguments, limit, progress)
        return result.structuredContent

    async def abort(self, arguments, after):
        # 1.x has no abort of its own: an application sends the notification.
        number = self.session._request_id
        call = asyncio.create_task(self.call(arguments))
        await asyncio.sleep(after)
        params = types.CancelledNotificationParams(requestId=number, reason="enough")
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notification))
        done, _ = await asyncio.wait([call], timeout=0.5)
        if done:
            return call.result()
        call.cancel()
        raise RuntimeError("aborted")


def transport(server):
    if not over_http(server):
        return stdio_client(StdioServerParameters(command=server))
    if server.endswith("/sse"):
        return sse_client(server, headers=headers())
    return streamablehttp_client(server, headers=headers())


async def main(server, mark):
    async with transport(server) as streams:
        async with ClientSession(*streams[:2]) as session:
            await session.initialize()
            seen = await converse(Client(session), mark)
            closing = time.monotonic()
    report(seen, closing)


asyncio.run(main(*sys.argv[1:3]))
