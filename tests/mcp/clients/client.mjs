// The official JavaScript SDK: told by arguments where to go, tells what came of it.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" });
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
const listed = (await client.listTools()).tools.map((tool) => tool.name);
const heard = [];
const ran = await client.callTool(
  { name: "run_command", arguments: { command: "echo from $((6 * 7))" } },
  undefined,
  { onprogress: (progress) => heard.push(progress), timeout: 60000 },
);
const failed = await client.callTool({ name: "read_file", arguments: { path: "/nowhere" } });
const relayed = await client.callTool({ name: "mcp_plain_echo", arguments: { text: "relayed" } });
console.log(JSON.stringify({ listed, ran, failed, relayed }));
await client.close();
