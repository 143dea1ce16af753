// The official TypeScript SDK, 1.x.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { converse, options, overHTTP } from "./flow.mjs";

function transport(server) {
  if (!overHTTP(server)) return new StdioClientTransport({ command: server, args: [], stderr: "inherit" });
  const Transport = server.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Transport(new URL(server), options());
}

await converse(async (server) => {
  const client = new Client({ name: "sdk1", version: "1.0.0" });
  await client.connect(transport(server));
  return {
    list: () => client.listTools(),
    call: (params, options) => client.callTool(params, undefined, options),
    close: () => client.close(),
  };
});
