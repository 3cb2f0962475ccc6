'use strict';
// What there is to say about a page: where it is, which tabs there are, what it looks like.

const SETTLE_MS = 3000;
const TITLE_MS = 2000; // a page that is busy for ever does not even tell its title
const MOST_PIXELS = 8000;

// Where it is now, and a picture if one is wanted.
async function report(browser, page, args = {}, more = {}) {
  await settle(browser.current && !browser.current.isClosed() ? browser.current : page);
  const now = browser.current && !browser.current.isClosed() ? browser.current : page;
  const answer = { url: now.url(), title: await within(now.title(), TITLE_MS).catch(() => ''), ...more };
  if (args.screenshot) answer.picture = await picture(now, {});
  return answer;
}

// Long enough for what an action sets off, without waiting for pages that never come to rest.
async function settle(page) {
  if (page.isClosed()) return;
  await page.waitForLoadState('load', { timeout: SETTLE_MS }).catch(() => undefined);
  const drawn = page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await within(drawn, 1000).catch(() => undefined);
}

async function picture(page, { full, locator }) {
  const options = { type: 'png', timeout: 15_000, animations: 'disabled', caret: 'initial' };
  let taken;
  if (locator) taken = await locator.screenshot(options);
  else if (full) {
    const size = await page.evaluate(() => [
      document.documentElement.scrollWidth,
      document.documentElement.scrollHeight,
    ]);
    const clip = { x: 0, y: 0, width: Math.min(size[0], MOST_PIXELS), height: Math.min(size[1], MOST_PIXELS) };
    taken = await page.screenshot({ ...options, fullPage: true, clip });
  } else taken = await page.screenshot(options);
  return taken.toString('base64');
}

function within(promise, ms) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error('late')), ms)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function list(browser) {
  return Promise.all(
    browser.pages.map(async (page, index) => ({
      index,
      url: page.url(),
      title: await within(page.title(), TITLE_MS).catch(() => ''),
      current: page === browser.current,
    })),
  );
}

module.exports = { list, picture, report, settle, within };
