// The official TypeScript client, 2.x, in the era given: legacy, or a pinned
// revision such as 2026-07-28.
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { converse, options, overHTTP } from "./flow.mjs";

function transport(server) {
  if (!overHTTP(server)) return new StdioClientTransport({ command: server, args: [], stderr: "inherit" });
  const Transport = server.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
  return new Transport(new URL(server), options());
}

const era = process.argv[4];
await converse(async (server) => {
  const mode = era === "legacy" ? era : { pin: era };
  const client = new Client({ name: "sdk2", version: "1.0.0" }, { versionNegotiation: { mode } });
  await client.connect(transport(server));
  return {
    handles: era !== "legacy" && overHTTP(server),
    list: () => client.listTools(),
    call: (params, options) => client.callTool(params, options),
    close: () => client.close(),
  };
});
