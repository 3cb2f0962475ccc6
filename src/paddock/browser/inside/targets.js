'use strict';
// Which element is meant: by its ref in the last snapshot, by a selector, or by the text that it shows.
const { Failed } = require('./failure.js');
const { ACTION_MS, firstLine } = require('./browser.js');

const SHOWN = 3000;
const THERE_MS = 4000;

function describe({ ref, selector, text }) {
  if (ref) return `ref ${ref}`;
  if (selector) return `selector ${JSON.stringify(selector)}`;
  return `text ${JSON.stringify(text)}`;
}

function locate(page, target) {
  const { ref, selector, text } = target;
  if (ref) {
    if (!/^(f\d+)?e\d+$/.test(ref))
      throw new Failed(
        `${JSON.stringify(ref)} is no ref of a snapshot; those look like e12. browser_snapshot shows them.`,
      );
    return page.locator(`aria-ref=${ref}`);
  }
  if (selector) return page.locator(selector);
  if (text)
    return page
      .getByRole('button', { name: text })
      .or(page.getByRole('link', { name: text }))
      .or(page.getByLabel(text))
      .or(page.getByText(text))
      .first();
  throw new Failed('Say which element: by ref (from browser_snapshot), selector or text.');
}

// Does `act` with the element, or says what is there instead.
async function withElement(page, target, act) {
  const locator = locate(page, target);
  try {
    await locator.first().waitFor({ state: 'attached', timeout: THERE_MS }); // what is not there soon will not come
    return await act(locator);
  } catch (problem) {
    throw problem instanceof Failed ? problem : new Failed(await tell(page, target, locator, problem));
  }
}

async function tell(page, target, locator, problem) {
  const said = String(problem.message || problem).replace(/\x1b\[\d+m/g, '');
  if (page.isClosed())
    return 'The tab was closed meanwhile, or the browser ended. browser_tabs lists what is open; browser_navigate opens the page again.';
  if (/strict mode violation/.test(said)) {
    const found = said
      .split('\n')
      .filter((line) => /^\s+\d+\)/.test(line))
      .map((line) => line.trim().slice(0, 200));
    return `${describe(target)} matches several elements. Use the ref of one of them from browser_snapshot, or a narrower selector:\n${found.join('\n')}`;
  }
  if (/Unexpected token|not a valid selector|Unsupported token|Unknown engine|Malformed/.test(said)) {
    return `${describe(target)} is not a selector: ${firstLine(problem)} Use CSS, or the ref of an element from browser_snapshot.`;
  }
  const count = await locator.count().catch(() => 0);
  if (count === 0) {
    const stale = target.ref ? ' Refs are those of the latest snapshot; the page may have changed since.' : '';
    return `There is no element with ${describe(target)} on this page.${stale}\n${await whatIsThere(page)}`;
  }
  const reasons = said
    .split('\n')
    .map((line) => line.replace(/^[\s-]+/, ''))
    .filter((line) =>
      /not visible|not enabled|not stable|intercepts pointer|outside of the viewport|not editable|did not find/.test(
        line,
      ),
    );
  const why = [...new Set(reasons)].slice(0, 3).join('; ') || firstLine(problem);
  return `The element with ${describe(target)} is there, but could not be used within ${ACTION_MS / 1000} s: ${why}. Look at browser_snapshot or a screenshot; something may cover it, or it must be scrolled or opened first.`;
}

async function whatIsThere(page) {
  const title = await page.title().catch(() => '');
  const tree = await page.ariaSnapshot({ mode: 'ai', timeout: 5000 }).catch(() => '');
  const shown = tree.length > SHOWN ? `${tree.slice(0, SHOWN)}\n… (browser_snapshot shows all)` : tree;
  return `The page is ${JSON.stringify(title)} at ${page.url()}. On it:\n${shown || '(nothing)'}`;
}

module.exports = { withElement, whatIsThere, describe };
