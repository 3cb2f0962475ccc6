'use strict';
// The live view: Chromium's own screencast of the current tab to everybody who watches, and their hands on it.
const { ACTIONS } = require('./actions.js');
const { VIEWPORT } = require('./browser.js');
const { list } = require('./report.js');

const FRAME_MS = 80;
const BEHIND = 1 << 20; // bytes that a slow viewer may be behind before it misses frames
const MOST_TEXT = 10_000; // characters at a time
const BUTTONS = ['left', 'middle', 'right'];

class LiveView {
  constructor(browser) {
    this.browser = browser;
    this.viewers = new Set();
    this.cast = null; // { page, session }
    this.frame = null;
    this.working = Promise.resolve();
    this.hands = Promise.resolve(); // mouse and keys, each when the one before is done
    browser.onChange = () => this.changed();
  }

  join(viewer) {
    this.viewers.add(viewer);
    viewer.onEnd = () => {
      this.viewers.delete(viewer);
      this.changed();
    };
    viewer.onText = (text) => this.hear(text);
    if (this.frame) viewer.send(this.frame);
    this.browser.page({ fresh: true }).then(
      () => this.changed(),
      (problem) => viewer.send({ type: 'problem', text: String(problem.message || problem).split('\n')[0] }),
    );
  }

  // Something may be another than before: the tabs, the current one, who watches.
  changed() {
    this.working = this.working.then(() => this.follow()).catch((problem) => console.error('live view:', problem));
  }

  async follow() {
    const page = this.viewers.size && this.browser.running ? this.browser.current : null;
    if (this.cast && this.cast.page !== page) {
      const { session } = this.cast;
      this.cast = this.frame = null; // whoever comes later sees the page as it is then
      await session.detach().catch(() => undefined);
    }
    if (page && !page.isClosed() && !this.cast) {
      const session = await page.context().newCDPSession(page);
      this.cast = { page, session };
      session.on('Page.screencastFrame', (frame) => this.show(session, frame));
      await page.bringToFront().catch(() => undefined);
      await session.send('Page.startScreencast', {
        format: 'jpeg',
        quality: 70,
        maxWidth: VIEWPORT.width,
        maxHeight: VIEWPORT.height,
      });
    }
    if (this.viewers.size) await this.tellTabs();
  }

  show(session, { data, sessionId }) {
    if (!this.cast || this.cast.session !== session) return;
    this.frame = Buffer.from(data, 'base64');
    for (const viewer of this.viewers) if (viewer.behind < BEHIND) viewer.send(this.frame);
    setTimeout(() => session.send('Page.screencastFrameAck', { sessionId }).catch(() => undefined), FRAME_MS);
  }

  async tellTabs() {
    const tabs = await list(this.browser);
    for (const viewer of this.viewers)
      viewer.send({ type: 'tabs', running: this.browser.running, tabs, size: VIEWPORT });
  }

  async hear(text) {
    try {
      const wish = JSON.parse(text);
      if (wish.type === 'mouse' || wish.type === 'key') {
        const done = this.hands.then(() => this.act(wish));
        this.hands = done.catch(() => undefined);
        await done;
      } else await this.act(wish);
    } catch (problem) {
      for (const viewer of this.viewers)
        viewer.send({ type: 'problem', text: String((problem && problem.message) || problem).split('\n')[0] });
    }
  }

  async act(wish) {
    const page = await this.browser.page({ fresh: true });
    switch (wish.type) {
      case 'navigate':
        await ACTIONS.navigate(this.browser, { url: String(wish.url) });
        break;
      case 'back':
      case 'forward':
        await ACTIONS[wish.type](this.browser, {});
        break;
      case 'reload':
        await page.reload();
        break;
      case 'tab':
        await ACTIONS.tabs(this.browser, { action: String(wish.action), index: wish.index });
        break;
      case 'mouse':
        return this.move(page, wish);
      case 'key':
        return this.press(page, wish);
      default:
        return undefined;
    }
    return this.changed();
  }

  async move(page, { kind, x, y, button, clicks, dx, dy }) {
    const at = [Number(x) || 0, Number(y) || 0];
    if (kind === 'wheel') {
      await page.mouse.move(...at);
      return page.mouse.wheel(Number(dx) || 0, Number(dy) || 0);
    }
    await page.mouse.move(...at);
    const options = { button: BUTTONS[button] || 'left', clickCount: Math.min(Math.max(Number(clicks) || 1, 1), 3) };
    if (kind === 'down') return page.mouse.down(options);
    if (kind === 'up') return page.mouse.up(options);
    return undefined;
  }

  async press(page, { kind, key }) {
    const name = String(key);
    if (kind === 'text') return page.keyboard.insertText(name.slice(0, MOST_TEXT));
    try {
      await (kind === 'down' ? page.keyboard.down(name) : page.keyboard.up(name));
    } catch (problem) {
      // Playwright knows the keys of an American keyboard. A character of another is typed as text.
      if (!/Unknown key/.test(String(problem && problem.message))) throw problem;
      if (kind === 'down' && [...name].length === 1) await page.keyboard.insertText(name);
    }
    return undefined;
  }
}

module.exports = { LiveView };
