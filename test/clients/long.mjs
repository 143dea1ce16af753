// A call of four minutes by the TypeScript SDK, which gives up after 60 s without
// news. What came of it is printed as one JSON object.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { options } from "./flow.mjs";

const server = process.argv[2];
const Transport = server.endsWith("/sse") ? SSEClientTransport : StreamableHTTPClientTransport;
const client = new Client({ name: "long", version: "1.0.0" });
await client.connect(new Transport(new URL(server), options()));
const begun = Date.now();
let pieces = 0;
const call = { name: "execute_python", arguments: { code: "import time\ntime.sleep(240)\n'done'", timeout_s: 300 } };
const limits = { timeout: 60_000, resetTimeoutOnProgress: true, onprogress: () => pieces++ };
const { structuredContent: result } = await client.callTool(call, undefined, limits);
console.log(JSON.stringify({ result, pieces, ms: Date.now() - begun }));
await client.close();
