'use strict';
// One Chromium with its tabs. It starts when it is needed, and again after it has ended, however that came.
const fs = require('node:fs');
const path = require('node:path');
const { Failed } = require('./failure.js');

const VIEWPORT = { width: 1280, height: 800 };
const KEPT = 300;
// Beside Playwright's own, which leave some of Chromium's calls home: for updates of its parts at the start and every
// minute, for what it knows of each form that it meets. (--disable-features cannot be given again: Chromium takes the
// last, and Playwright gives one.) Nothing listens at this address, and it is never asked by proxy.
const NOWHERE = 'http://127.0.0.1:6079/'; // no program's usual port
const QUIET = [
  `--component-updater=url-source=${NOWHERE}`,
  `--autofill-server-url=${NOWHERE}`,
  `--variations-server-url=${NOWHERE}`,
  `--optimization-guide-service-get-hints-url=${NOWHERE}`,
  `--optimization-guide-service-get-models-url=${NOWHERE}`,
  '--disable-domain-reliability',
  '--disable-client-side-phishing-detection',
  '--no-pings',
];
const LAUNCH_MS = 60_000;
const ACTION_MS = 10_000;
const NAVIGATION_MS = 30_000;

class Browser {
  constructor({ playwright, chromium, profile, downloads }) {
    Object.assign(this, { playwright, chromium, profile, downloads });
    this.context = null;
    this.starting = null;
    this.current = null;
    this.lost = null; // where the current tab was when Chromium ended by itself
    this.notes = [];
    this.records = new WeakMap();
    this.onChange = () => undefined;
  }

  get running() {
    return this.context !== null;
  }

  get pages() {
    return this.context ? this.context.pages() : [];
  }

  note(text) {
    this.notes.push(text);
  }

  takeNotes() {
    return this.notes.splice(0);
  }

  // The current tab. `fresh`: whoever asks will open another page anyway, so a lost one does not matter.
  async page({ fresh = false } = {}) {
    const lost = this.lost;
    await this.start();
    if (lost !== null) {
      this.lost = null;
      const where = lost && lost !== 'about:blank' ? ` It was at ${lost}.` : '';
      if (!fresh)
        throw new Failed(
          `The browser had ended and was started anew.${where} Open the page again with browser_navigate.`,
        );
      this.note('The browser had ended and was started anew.');
    }
    if (!this.current || this.current.isClosed()) {
      this.current = this.pages.at(-1) || (await this.newPage());
    }
    return this.current;
  }

  // Word of Chromium's end may still be on its way to us: then this is where it shows.
  async newPage() {
    try {
      return await this.context.newPage();
    } catch (problem) {
      if (this.context) this.ended(this.context);
      await this.start();
      this.lost = null;
      return this.current;
    }
  }

  async start() {
    if (this.context) return;
    this.starting ??= this.launch().finally(() => (this.starting = null));
    await this.starting;
  }

  async launch() {
    const { chromium } = require(this.playwright);
    fs.mkdirSync(this.profile, { recursive: true });
    // What a Chromium that was killed leaves behind; nobody else uses this profile.
    for (const name of ['SingletonLock', 'SingletonSocket', 'SingletonCookie']) {
      fs.rmSync(path.join(this.profile, name), { force: true });
    }
    const context = await chromium.launchPersistentContext(this.profile, {
      executablePath: this.chromium,
      headless: true,
      chromiumSandbox: false, // the sandbox around us gives no namespaces to build a second one of
      viewport: VIEWPORT,
      acceptDownloads: true,
      ignoreDefaultArgs: ['--enable-automation'],
      args: [
        '--disable-gpu',
        '--disable-dev-shm-usage',
        '--no-first-run',
        '--hide-crash-restore-bubble',
        ...QUIET,
        ...proxy(),
      ],
      timeout: LAUNCH_MS,
    });
    context.setDefaultTimeout(ACTION_MS);
    context.setDefaultNavigationTimeout(NAVIGATION_MS);
    context.on('page', (page) => this.adopt(page, true));
    context.on('close', () => this.ended(context));
    this.context = context;
    for (const page of context.pages()) this.adopt(page, false);
    this.current = context.pages()[0] || (await context.newPage());
    this.onChange();
  }

  ended(context) {
    if (this.context !== context) return;
    this.lost = this.current ? this.current.url() : '';
    this.context = this.current = null;
    this.onChange();
  }

  async close() {
    const context = this.context;
    this.context = this.current = this.lost = null;
    if (context) await context.close();
    this.onChange();
  }

  adopt(page, opened) {
    if (this.records.has(page)) return;
    const record = { console: [], network: [] };
    this.records.set(page, record);
    if (opened && this.current && this.current !== page && !this.opening) {
      this.note('A new tab was opened, and is the current one now.');
    }
    this.current = page;
    page.on('console', (message) =>
      keep(record.console, {
        type: message.type(),
        text: message.text().slice(0, 2000),
        at: where(message.location()),
      }),
    );
    page.on('pageerror', (error) =>
      keep(record.console, { type: 'exception', text: String(error.stack || error).slice(0, 2000), at: '' }),
    );
    page.on('requestfinished', async (request) =>
      keep(record.network, entry(request, await request.response().catch(() => null))),
    );
    page.on('requestfailed', (request) =>
      keep(record.network, { ...entry(request, null), failed: (request.failure() || {}).errorText || 'failed' }),
    );
    page.on('dialog', (dialog) => this.answerDialog(dialog));
    page.on('download', (download) => this.save(download));
    page.on('crash', () => this.crashed(page));
    page.on('close', () => this.onChange());
    page.on('framenavigated', () => this.onChange());
    this.onChange();
  }

  async answerDialog(dialog) {
    const stays = dialog.type() === 'alert' || dialog.type() === 'beforeunload';
    this.note(
      `The page showed a ${dialog.type()}: ${JSON.stringify(dialog.message().slice(0, 500))}. It was ${stays ? 'accepted' : 'dismissed'}.`,
    );
    await (stays ? dialog.accept() : dialog.dismiss()).catch(() => undefined);
  }

  async save(download) {
    const name = path.basename(download.suggestedFilename()) || 'download';
    const target = path.join(this.downloads, name);
    try {
      await download.saveAs(target);
      this.note(`Downloaded ${target}.`);
    } catch (problem) {
      this.note(`The download of ${name} failed: ${firstLine(problem)}`);
    }
  }

  crashed(page) {
    this.note(`The tab at ${page.url()} had crashed, and was closed.`);
    page.close().catch(() => undefined);
  }

  record(page) {
    return this.records.get(page) || { console: [], network: [] };
  }

  // A failure that no action expected, in words.
  async explain(problem) {
    const said = firstLine(problem);
    if (said === 'late') return 'The page did not answer in time; it may be busy for ever. browser_close ends it.';
    if (!this.context)
      return `The browser ended: ${said}. The next call starts it anew; open the page again with browser_navigate.`;
    if (/Executable doesn't exist|Failed to launch/.test(said))
      return `Chromium did not start: ${String(problem.message).slice(0, 1500)}`;
    return said;
  }
}

function proxy() {
  const server = process.env.HTTPS_PROXY || process.env.https_proxy || process.env.HTTP_PROXY || process.env.http_proxy;
  if (!server) return [];
  const direct = (process.env.NO_PROXY || process.env.no_proxy || 'localhost,127.0.0.1')
    .split(',')
    .map((name) => name.trim());
  const names = direct
    .filter(Boolean)
    .map((name) => (name.startsWith('.') ? `*${name}` : name.includes('::') ? `[${name}]` : name));
  return [`--proxy-server=${server}`, `--proxy-bypass-list=${names.join(';')}`];
}

function keep(list, item) {
  list.push(item);
  if (list.length > KEPT) list.shift();
}

function where({ url, lineNumber }) {
  return url ? `${url}:${(lineNumber || 0) + 1}` : '';
}

function entry(request, response) {
  return {
    method: request.method(),
    url: request.url().slice(0, 2000),
    type: request.resourceType(),
    status: response ? response.status() : null,
  };
}

function firstLine(problem) {
  return String((problem && problem.message) || problem)
    .replace(/\x1b\[\d+m/g, '')
    .split('\n')[0]
    .slice(0, 500);
}

module.exports = { Browser, VIEWPORT, ACTION_MS, NAVIGATION_MS, firstLine };
