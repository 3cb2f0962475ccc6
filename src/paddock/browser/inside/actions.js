'use strict';
// What the tools do. Each action gets the browser and its arguments, and answers with what there is to say.
const fs = require('node:fs');
const path = require('node:path');
const { Failed } = require('./failure.js');
const { ACTION_MS, NAVIGATION_MS, firstLine } = require('./browser.js');
const { list, picture, report, settle, within } = require('./report.js');
const { describe, withElement } = require('./targets.js');

const POPUP_MS = 200;
const EVALUATE_MS = 30_000;
const MAX_CUT_OFFS = 3;
const ARRIVAL_MS = 1000;

function hasPoint({ x, y }) {
  return x !== undefined && x !== null && y !== undefined && y !== null;
}

async function navigate(browser, args) {
  const page = await browser.page({ fresh: true });
  const url = /^(https?|file|data|about|blob|view-source):/i.test(args.url)
    ? args.url
    : `${/^(localhost|127\.|\[::1\]|0\.0\.0\.0)/.test(args.url) ? 'http' : 'https'}://${args.url}`;
  let response;
  try {
    response = await page.goto(url, { waitUntil: args.wait_until || 'load', timeout: NAVIGATION_MS });
  } catch (problem) {
    const said = firstLine(problem);
    // Another document came first: the error page of a page that could not be had, or this one as asked for before.
    // Playwright gives up then; Chromium goes on loading ours. Let it arrive, or it comes in the middle of the next try.
    const cutOff = said.includes('is interrupted by another navigation') && (args.again || 0) < MAX_CUT_OFFS;
    if (cutOff || (page.isClosed() && !args.again)) {
      if (cutOff) await page.waitForEvent('framenavigated', { timeout: ARRIVAL_MS }).catch(() => undefined);
      return navigate(browser, { ...args, again: (args.again || 0) + 1 });
    }
    if (/Timeout/.test(said))
      browser.note(`The page had not finished loading after ${NAVIGATION_MS / 1000} s; what there is can be used.`);
    else if (/Download is starting/.test(said)) await settle(page);
    else throw new Failed(`${url} could not be opened: ${said.replace(/^page\.goto: /, '')}. ${advice(said)}`);
  }
  return report(browser, page, args, { status: response ? response.status() : null });
}

function advice(said) {
  if (/CONNECTION_REFUSED/.test(said)) return 'Nothing listens there: start the server first, and wait until it does.';
  if (/NAME_NOT_RESOLVED|TUNNEL_CONNECTION_FAILED|PROXY|ADDRESS_UNREACHABLE|INTERNET_DISCONNECTED/.test(said)) {
    return 'Check the address; the sandbox may also not be allowed to go there (its egress rules).';
  }
  return 'Check the address.';
}

async function step(browser, direction, args) {
  const page = await browser.page();
  const before = page.url();
  await (direction === 'back' ? page.goBack() : page.goForward()).catch(() => null);
  if (page.url() === before) browser.note(`There is no page to go ${direction} to.`);
  return report(browser, page, args);
}

async function click(browser, args) {
  const page = await browser.page();
  const options = { button: args.button || 'left', clickCount: args.double ? 2 : 1 };
  const opened = page
    .context()
    .waitForEvent('page', { timeout: POPUP_MS + ACTION_MS })
    .catch(() => null);
  if (hasPoint(args)) await page.mouse.click(args.x, args.y, options);
  else await withElement(page, args, (element) => element.click(options));
  await within(opened, POPUP_MS).catch(() => null); // a tab that it opens is what is reported then
  return report(browser, page, args);
}

async function type(browser, args) {
  const page = await browser.page();
  if (args.ref || args.selector || args.label) {
    const target = { ...args, text: args.label };
    await withElement(page, target, (element) =>
      args.slowly ? element.pressSequentially(args.text) : element.fill(args.text),
    );
    if (args.submit) await withElement(page, target, (element) => element.press('Enter'));
  } else {
    await page.keyboard.type(args.text);
    if (args.submit) await page.keyboard.press('Enter');
  }
  return report(browser, page, args);
}

async function press(browser, args) {
  const page = await browser.page();
  try {
    await page.keyboard.press(args.key);
  } catch (problem) {
    throw new Failed(
      `${firstLine(problem)}. Keys are named like Enter, Tab, Escape, ArrowDown, PageDown, a, Control+A.`,
    );
  }
  return report(browser, page, args);
}

async function scroll(browser, args) {
  const page = await browser.page();
  if (args.ref || args.selector || args.text)
    await withElement(page, args, (element) => element.scrollIntoViewIfNeeded());
  else {
    const far = args.amount || 600;
    const [dx, dy] = { down: [0, far], up: [0, -far], right: [far, 0], left: [-far, 0] }[args.direction || 'down'];
    if (hasPoint(args)) {
      await page.mouse.move(args.x, args.y);
      await page.mouse.wheel(dx, dy);
    } else await page.evaluate(([x, y]) => window.scrollBy({ left: x, top: y, behavior: 'instant' }), [dx, dy]);
  }
  const position = await page.evaluate(() => [
    Math.round(scrollX),
    Math.round(scrollY),
    document.documentElement.scrollHeight,
    innerHeight,
  ]);
  return report(browser, page, args, {
    scroll: { x: position[0], y: position[1], height: position[2], view: position[3] },
  });
}

async function select(browser, args) {
  const page = await browser.page();
  const chosen = await withElement(page, args, async (element) => {
    const options = await element.evaluate((node) =>
      node.options ? [...node.options].map((one) => [one.value, one.label]) : null,
    );
    if (options === null)
      throw new Failed(`The element with ${describe(args)} is no list of options. Click it, and then what it opens.`);
    const missing = args.values.filter((value) => !options.some((one) => one.includes(value)));
    if (missing.length)
      throw new Failed(
        `There is no option ${missing.map((one) => JSON.stringify(one)).join(', ')}. There are: ${options
          .map(([, label]) => JSON.stringify(label))
          .join(', ')
          .slice(0, 1500)}.`,
      );
    return element.selectOption(
      args.values.map((value) => (options.some(([given]) => given === value) ? { value } : { label: value })),
    );
  });
  return report(browser, page, args, { selected: chosen });
}

async function hover(browser, args) {
  const page = await browser.page();
  if (hasPoint(args)) await page.mouse.move(args.x, args.y);
  else await withElement(page, args, (element) => element.hover());
  return report(browser, page, args);
}

async function drag(browser, args) {
  const page = await browser.page();
  const from = await point(page, args.from);
  const to = await point(page, args.to);
  await page.mouse.move(from.x, from.y);
  await page.mouse.down();
  await page.mouse.move((from.x + to.x) / 2, (from.y + to.y) / 2, { steps: 4 });
  await page.mouse.move(to.x, to.y, { steps: 4 });
  await page.mouse.up();
  return report(browser, page, args);
}

async function point(page, target) {
  if (hasPoint(target)) return target;
  return withElement(page, target, async (element) => {
    await element.scrollIntoViewIfNeeded();
    const box = await element.boundingBox();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  });
}

async function wait(browser, args) {
  const page = await browser.page();
  const timeout = (args.seconds || 10) * 1000;
  const wanted = args.text
    ? page.getByText(args.text).first()
    : args.selector
      ? page.locator(args.selector).first()
      : null;
  if (wanted) {
    const state = args.gone ? 'hidden' : 'visible';
    await wanted.waitFor({ state, timeout }).catch((problem) => {
      if (/Timeout/.test(firstLine(problem)))
        throw new Failed(
          `${JSON.stringify(args.text || args.selector)} was not ${args.gone ? 'gone' : 'there'} after ${timeout / 1000} s. browser_snapshot shows what is.`,
        );
      throw new Failed(firstLine(problem));
    });
  } else await page.waitForTimeout(timeout);
  return report(browser, page, args);
}

async function evaluate(browser, args) {
  const page = await browser.page();
  try {
    const value = await within(page.evaluate(args.expression), EVALUATE_MS);
    return report(browser, page, args, { value: value === undefined ? null : value });
  } catch (problem) {
    if (problem.message === 'late')
      throw new Failed(
        `The script did not end within ${EVALUATE_MS / 1000} s. If the page hangs, use browser_close and open it again.`,
      );
    throw new Failed(
      String(problem.message || problem)
        .replace(/^page\.evaluate: /, '')
        .split('\n    at eval')[0]
        .slice(0, 2000),
    );
  }
}

async function tabs(browser, args) {
  const page = await browser.page({ fresh: args.action === 'new' });
  const pages = browser.pages;
  if (args.index !== undefined && args.index !== null && !pages[args.index])
    throw new Failed(`There is no tab ${args.index}; there are 0 to ${pages.length - 1}.`);
  if (args.action === 'new') {
    browser.opening = true;
    browser.current = await browser.context.newPage().finally(() => (browser.opening = false));
    if (args.url) return { ...(await navigate(browser, args)), tabs: await list(browser) };
  } else if (args.action === 'switch') {
    if (args.index === undefined || args.index === null) throw new Failed('Say which tab, by its index.');
    browser.current = pages[args.index];
    await browser.current.bringToFront();
  } else if (args.action === 'close') {
    const gone = pages[args.index ?? pages.indexOf(page)];
    await gone.close();
    if (gone === browser.current) browser.current = null;
    await browser.page();
  }
  return report(browser, browser.current, args, { tabs: await list(browser) });
}

async function screenshot(browser, args) {
  const page = await browser.page();
  const named = args.ref || args.selector || args.text;
  const taken = named
    ? await withElement(page, args, (locator) => picture(page, { locator }))
    : await picture(page, { full: args.full_page });
  return { ...(await report(browser, page)), picture: taken };
}

async function snapshot(browser, args) {
  const page = await browser.page();
  await settle(page);
  const tree = args.selector
    ? await withElement(page, args, (element) => element.ariaSnapshot({ mode: 'ai' }))
    : await page.ariaSnapshot({ mode: 'ai' });
  return report(browser, page, args, { snapshot: tree });
}

async function log(browser, args, kind, isTrouble) {
  const page = await browser.page();
  const record = browser.record(page);
  const found = args.errors_only ? record[kind].filter(isTrouble) : [...record[kind]];
  if (args.clear) record[kind].length = 0;
  return report(browser, page, {}, { entries: found.slice(-(args.limit || 100)), total: found.length });
}

async function pdf(browser, args) {
  const page = await browser.page();
  fs.mkdirSync(path.dirname(args.path), { recursive: true });
  const made = await page.pdf({
    path: args.path,
    format: args.format || 'A4',
    landscape: Boolean(args.landscape),
    printBackground: true,
  });
  return report(browser, page, {}, { path: args.path, size: made.length });
}

async function close(browser) {
  await browser.close();
  return { url: '', title: '' };
}

async function status(browser) {
  return {
    url: browser.current ? browser.current.url() : '',
    title: '',
    running: browser.running,
    tabs: await list(browser),
  };
}

const ACTIONS = {
  navigate,
  click,
  type,
  press,
  scroll,
  select,
  hover,
  drag,
  wait,
  evaluate,
  tabs,
  screenshot,
  snapshot,
  pdf,
  close,
  status,
  back: (browser, args) => step(browser, 'back', args),
  forward: (browser, args) => step(browser, 'forward', args),
  console: (browser, args) =>
    log(browser, args, 'console', (one) => ['error', 'exception', 'warning'].includes(one.type)),
  network: (browser, args) =>
    log(browser, args, 'network', (one) => one.failed || one.status === null || one.status >= 400),
};

module.exports = { ACTIONS };
