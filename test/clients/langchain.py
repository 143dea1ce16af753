"""An agent framework's adapter, as its users take it: over one session, and with
its default, a session of the protocol for each call.

What it saw is printed as one JSON object, which webclients_test.go judges.
"""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from flow import headers

SHOWN = "import sys\nprint('printed')\nprint('warned', file=sys.stderr)\n'shown'"


class Agent:
    def __init__(self, tools):
        self.tools = {tool.name: tool for tool in tools}

    async def call(self, name, **args):
        """What a model's call gives: the report, and what the model reads."""
        call = {"type": "tool_call", "id": "1", "name": name, "args": args}
        message = await self.tools[name].ainvoke(call)
        report = (message.artifact or {}).get("structured_content")
        text = "\n".join(block["text"] for block in message.content if block["type"] == "text")
        return {"report": report, "text": text, "status": message.status}


async def main(server):
    transport = "sse" if server.endswith("/sse") else "streamable_http"
    connection = {"transport": transport, "url": server, "headers": headers()}
    client = MultiServerMCPClient({"box": connection})
    seen = {}

    async with client.session("box") as session:
        agent = Agent(await load_mcp_tools(session))
        seen["tools"] = sorted(agent.tools)
        seen["first"] = await agent.call("execute_python", code="x = 41")
        seen["second"] = await agent.call("execute_python", code="x + 1")
        seen["failed"] = await agent.call("execute_python", code="1 / 0")
        seen["shown"] = await agent.call("execute_python", code=SHOWN)
        await agent.call("execute_python", code="_ = open('n.txt', 'w').write('3\\n1\\n2\\n')")
        seen["command"] = await agent.call("execute_cli", command="sort n.txt | head -2")

    agent = Agent(await client.get_tools())
    # The end of a connection ends its own session, but none that was asked for.
    opened = await agent.call("execute_python", code="y = 1", session_id="new")
    seen["other"] = await agent.call("execute_python", code="'y' in globals()")
    seen["named"] = await agent.call("execute_python", code="y + 1", session_id=opened["report"]["session_id"])
    together = [agent.call("execute_python", code=f"import time\ntime.sleep(0.5)\n{i}") for i in range(4)]
    seen["together"] = await asyncio.gather(*together)
    json.dump(seen, sys.stdout)


asyncio.run(main(sys.argv[1]))
