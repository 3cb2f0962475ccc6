'use strict';
// The browser's server in a sandbox: POST /call does one action, GET / is the live view, /live its WebSocket.
// Chromium starts with the first of them, and stays.
const http = require('node:http');
const fs = require('node:fs');
const path = require('node:path');
const { Browser } = require('./browser.js');
const { ACTIONS } = require('./actions.js');
const { Failed } = require('./failure.js');
const { LiveView } = require('./live.js');
const { within } = require('./report.js');
const { accept } = require('./socket.js');

const PORT = Number(process.env.PADDOCK_BROWSER_PORT || 6080);
const MOST_BODY = 4 << 20;
const MOST_MS = 120_000;
const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

const browser = new Browser({
  playwright: process.env.PADDOCK_PLAYWRIGHT,
  chromium: process.env.PADDOCK_CHROMIUM,
  profile: path.join(process.env.HOME || '/tmp', '.paddock/browser/profile'),
  downloads: path.join(process.cwd(), 'downloads'),
});
const live = new LiveView(browser);
let turn = Promise.resolve();

const server = http.createServer((request, response) => {
  answer(request).then(
    ([status, type, body]) => {
      response.writeHead(status, {
        'Content-Type': type,
        'Cache-Control': 'no-store',
        'X-Content-Type-Options': 'nosniff',
        'Content-Security-Policy':
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob: data:; connect-src 'self' ws: wss:",
      });
      response.end(body);
    },
    (problem) => {
      response.writeHead(500, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify({ error: String((problem && problem.message) || problem) }));
    },
  );
});

server.on('upgrade', (request, socket, head) => {
  if (new URL(request.url, 'http://x').pathname !== '/live' || !isOwnPage(request)) {
    socket.end('HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n');
    return;
  }
  const viewer = accept(request, socket, head);
  if (viewer) live.join(viewer);
});

// A site that is open in the browser reaches this port as well. A tool's call says that it is one, which no page of
// another origin can; the live view comes from its own page, through the gateway or from this machine.
function isOwnPage(request) {
  const host = request.headers['x-forwarded-host'] || request.headers.host || '';
  const origin = request.headers.origin;
  const known = LOCAL.test(request.headers.host || '') || 'x-forwarded-for' in request.headers;
  return known && (!origin || originHost(origin) === host);
}

function originHost(origin) {
  try {
    return new URL(origin).host;
  } catch {
    return null;
  }
}

async function answer(request) {
  const { pathname } = new URL(request.url, 'http://x');
  if (request.method === 'GET' && pathname === '/health') {
    return [200, 'application/json', JSON.stringify({ status: 'ok', running: browser.running })];
  }
  if (request.method === 'GET' && pathname === '/') {
    return [200, 'text/html; charset=utf-8', fs.readFileSync(path.join(__dirname, 'live.html'))];
  }
  if (request.method === 'POST' && pathname === '/call') {
    if (request.headers['x-paddock-browser'] !== 'call' || !LOCAL.test(request.headers.host || '')) {
      return [403, 'application/json', JSON.stringify({ error: 'Only the tools of this sandbox may call.' })];
    }
    return [200, 'application/json', JSON.stringify(await call(JSON.parse(await read(request))))];
  }
  return [404, 'application/json', JSON.stringify({ error: 'There is nothing here.' })];
}

async function read(request) {
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > MOST_BODY) throw new Error('The call is too large.');
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

// One after the other: two calls at once would act on a page that the other one has just changed.
function call({ action, args }) {
  // Except closing, which is for when nothing else works: what waits fails then.
  if (action === 'close') return perform(action, {});
  const mine = turn.then(() => perform(action, args || {}));
  turn = mine.catch(() => undefined);
  return mine;
}

async function perform(action, args) {
  const act = Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : null;
  if (!act) return { error: `There is no action ${action}.` };
  try {
    const result = await within(act(browser, args), MOST_MS);
    live.changed();
    return { result: { ...result, notes: browser.takeNotes() } };
  } catch (problem) {
    if (!(problem instanceof Failed)) console.error(problem);
    return { error: problem instanceof Failed ? problem.message : await browser.explain(problem) };
  }
}

// Playwright may fail on behalf of a page that is gone; the others' pages live on.
process.on('unhandledRejection', (problem) => console.error('unexpected:', problem));
for (const sign of ['SIGTERM', 'SIGINT']) {
  process.on(sign, () => browser.close().finally(() => process.exit(0)));
}
server.listen(PORT, '127.0.0.1', () => console.log(`browser: listening on port ${PORT}`));
