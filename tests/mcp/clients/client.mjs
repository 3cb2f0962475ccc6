// The official JavaScript SDK: told what to do on standard input, tells what came of it.
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { url, token, calls } = JSON.parse(readFileSync(0, "utf8"));
const client = new Client({ name: "test", version: "1" });
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
const listed = (await client.listTools()).tools.map((tool) => tool.name);
const heard = [];
const options = { onprogress: (progress) => heard.push(progress), timeout: 300_000 };

const kept = {};
const answers = [];
for (const { tool, arguments: given, keep } of calls) {
  const filled = Object.entries(given).map(([name, value]) => [name, kept[value] ?? value]);
  const result = await client.callTool({ name: tool, arguments: Object.fromEntries(filled) }, undefined, options);
  if (keep) kept[`@${keep}`] = result.structuredContent[keep];
  const texts = result.content.filter((block) => block.type === "text").map((block) => block.text);
  const pictures = result.content.filter((block) => block.type === "image").length;
  const data = result.structuredContent ?? null;
  answers.push({ tool, failed: Boolean(result.isError), text: texts.join(""), data, pictures });
}
console.log(JSON.stringify({ listed, answers }));
await client.close();
