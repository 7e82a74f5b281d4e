// Called by page-check.sh: node page-check.mjs REAL_URL SLOW_URL SCREENSHOT_FOLDER TOOLS_FOLDER
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [realURL, slowURL, shots, tools] = process.argv.slice(2);
const require = createRequire(path.join(tools, 'package.json'));
const puppeteer = require('puppeteer-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const wait = 180000; // ms: only a page that hangs waits so long
const still = { name: 'prefers-reduced-motion', value: 'reduce' }; // a colour on its way to another has no contrast to check
let failed = 0;
const problems = [];

function check(ok, what, detail = '') {
  if (!ok) failed++;
  console.log(`${ok ? 'ok  ' : 'FAIL'} ${what}${ok || detail === '' ? '' : `: ${typeof detail === 'string' ? detail : JSON.stringify(detail)}`}`);
}

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb', '--hide-scrollbars'],
});

// newPage opens a page in a new browser context, without stored data.
async function newPage(url, { width = 1280, height = 860, dark = false } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(wait);
  await page.setViewport({ width, height, deviceScaleFactor: 1, hasTouch: width < 500, isMobile: width < 500 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }, still]);
  const origin = new URL(url).origin;
  page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warn') problems.push(`console: ${m.text()} ${m.location().url || ''}`); });
  page.on('pageerror', (e) => problems.push(`error: ${e.message}`));
  page.on('request', (r) => {
    if (!r.url().startsWith(`${origin}/`) && !/^(data|blob|about):/.test(r.url())) problems.push(`another origin: ${r.url()}`);
  });
  page.on('response', (r) => { if (r.status() >= 400) problems.push(`${r.status()}: ${r.url()}`); });
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await page.waitForFunction(() => document.getElementById('status').dataset.state === 'ok');
  return page;
}

const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
async function ask(page, question) {
  await page.focus('#prompt');
  await page.$eval('#prompt', (area, text) => { area.value = text; area.dispatchEvent(new Event('input')); }, question);
  await page.keyboard.press('Enter');
}
const answers = (page, n) => page.waitForFunction((k) => document.querySelectorAll('.message.assistant:not([aria-busy]) .actions').length >= k, {}, n);
const lastAnswer = (page) => page.$$eval('.message.assistant', (all) => {
  const m = all.at(-1);
  const thought = m.querySelector('.thought');
  return { text: m.querySelector('.body').textContent, foot: m.querySelector('footer').textContent, thought: thought.hidden ? '' : thought.querySelector('.thought-text').textContent,
    open: thought.open, summary: thought.querySelector('summary').textContent };
});
const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
const shot = (page, name) => page.screenshot({ path: path.join(shots, `${name}.png`) });

async function accessible(page, what) {
  const found = await page.evaluate(`${axe}; axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ')).slice(0, 4).join(', ')))`);
  check(found.length === 0, `axe finds nothing: ${what}`, found);
}

async function realDaemon() {
  const page = await newPage(realURL);
  check(!page.url().includes('key='), 'the key leaves the address bar', page.url());
  check((await text(page, '#model option')).length > 1, 'the model picker names the model');
  await accessible(page, 'an empty chat');
  await ask(page, 'What is 4821 + 977?');
  await answers(page, 1);
  const a = await lastAnswer(page);
  check(a.text.includes('5798'), 'the answer of the built-in model', a.text);
  check(a.thought.length > 10 && !a.open && a.summary.startsWith('Thought for'), 'the thought is folded', a);
  await page.click('.message.assistant summary');
  check((await lastAnswer(page)).open, 'the thought unfolds');
  await page.click('.message.assistant summary');
  await ask(page, 'Sort 31, 7, 240, 18.');
  await answers(page, 2);
  await page.reload();
  await page.waitForSelector('.message.assistant .actions');
  check((await page.$$('.message')).length === 4 && (await text(page, '#log')).includes('5798'), 'a reload keeps the conversation');
  check((await text(page, '#title')).includes('4821'), 'and its title');
  await page.waitForFunction(() => document.querySelectorAll('#recent button').length >= 2);
  await page.waitForFunction(() => /cached prefix/.test(document.getElementById('pool-legend').textContent));
  check(true, 'the panels show what ended and what is cached');
  await page.evaluate(() => [...document.querySelectorAll('.message.assistant .actions button')].at(-1).click());
  await page.waitForSelector('#why[open] .timeline li');
  check(/arrived/.test(await text(page, '#why-body')) && !(await page.$('#why .error')), 'why shows a timeline');
  await accessible(page, 'the timeline');
  await shot(page, 'why-1280');
  await page.keyboard.press('Escape');
  // The parser of Markdown: whatever comes, it ends soon, throws nothing and makes nothing but plain elements.
  const fuzzed = await page.evaluate(async () => {
    const { render } = await import('/page/markdown.js');
    const marks = ['*', '**', '_', '~~', '`', '```', '[', '](', ')', '!', '<', '>', '\n', '\n\n', '- ', '1. ', '  ', '|', '|-|', '#', '\\', 'a', ' ', 'http://x.y', 'javascript:', '<b>'];
    let seed = 1;
    const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % n; };
    const texts = marks.map((m) => m.repeat(20000)).concat(['*a '.repeat(20000), '[a]('.repeat(20000), '> '.repeat(5000) + 'x', '- \n'.repeat(9000)]);
    for (let i = 0; i < 2000; i++) texts.push(Array.from({ length: random(60) }, () => marks[random(marks.length)]).join(''));
    const names = new Set();
    let slowest = 0;
    for (const text of texts) {
      const began = performance.now();
      const box = document.createElement('div');
      box.append(...render(text));
      slowest = Math.max(slowest, performance.now() - began);
      for (const e of box.querySelectorAll('*')) names.add(e.localName);
      if ([...box.querySelectorAll('a')].some((a) => !/^(https?|mailto):/.test(a.href))) names.add('bad link');
    }
    return { slowest, names: [...names].sort() };
  });
  const plain = 'a blockquote br button code del div em figcaption figure h3 h4 h5 h6 hr input li ol p pre span strong table tbody td th thead tr ul'.split(' ');
  check(fuzzed.names.every((n) => plain.includes(n)), 'fuzzed Markdown makes plain elements', fuzzed.names);
  check(fuzzed.slowest < 10000, 'no Markdown is slow', fuzzed.slowest);
  for (const by of ['owner', 'use', 'tier']) await page.click(`[data-by="${by}"]`);
  await page.evaluate(() => [...document.querySelectorAll('.retry')].at(-1).click());
  await page.waitForSelector('.message[aria-busy]').catch(() => {});
  await answers(page, 2);
  check((await page.$$('.message')).length === 4 && (await lastAnswer(page)).text.length > 0, 'retry answers again');
  await page.click('#new');
  check((await page.$$('.message')).length === 0, 'a new chat is empty');
  await page.click('#chats-open');
  await page.waitForSelector('#chat-list .open');
  await accessible(page, 'the list of chats');
  await page.click('#chat-list .open');
  check((await page.$$('.message')).length === 4, 'a stored chat opens');
  await page.close();
}

async function slowDaemon() {
  const page = await newPage(slowURL);
  const count = async () => (await page.$$('.message.assistant')).length;
  await ask(page, 'How long?');
  await answers(page, 1);
  await ask(page, 'Think long');
  await page.waitForSelector('#end-think:not([hidden])');
  check((await text(page, '#send')) === 'Stop', 'send is stop while an answer comes');
  await page.waitForFunction(() => /thinking/.test(document.querySelector('#streams .stream')?.textContent));
  check((await lastAnswer(page)).summary.startsWith('Thinking:'), 'the last line of a thought is shown');
  await page.keyboard.down('Control');
  await page.keyboard.press('\\');
  await page.keyboard.up('Control');
  await answers(page, 2);
  let a = await lastAnswer(page);
  check(a.text.includes('The answer is 42') && a.thought.length < 4000, 'ending the thought brings the answer', a);
  const tags = await page.$eval('.message.assistant:last-of-type .markdown', (e) => ({
    names: [...new Set([...e.querySelectorAll('*')].map((x) => x.localName))].sort(), links: [...e.querySelectorAll('a')].map((x) => x.href), text: e.textContent,
  }));
  for (const tag of ['h3', 'strong', 'em', 'ul', 'ol', 'table', 'pre', 'blockquote', 'a', 'code']) check(tags.names.includes(tag), `Markdown: ${tag}`, tags.names);
  check(!tags.names.some((n) => ['img', 'script', 'iframe', 'svg', 'style'].includes(n)) && tags.text.includes('<img src=x onerror=alert(1)>'), 'the model\'s HTML is text', tags.names);
  check(tags.links.every((l) => l.startsWith('https://example.com/')), 'a javascript: link is none', tags.links);
  await ask(page, 'Say it plain');
  await page.waitForFunction(() => document.querySelectorAll('.message.assistant')[2]?.querySelector('.body').textContent.length > 60);
  await page.keyboard.press('Escape');
  await answers(page, 3);
  a = await lastAnswer(page);
  check(a.foot.includes('stopped') && a.text.length > 60 && a.text.length < 9000, 'Escape stops the answer and keeps it', a.foot);
  await page.waitForFunction(() => document.querySelectorAll('#streams .stream').length === 0);
  check(true, 'the server stops too');
  // A reload in the middle of an answer keeps what has come.
  await ask(page, 'Once more plain');
  await page.waitForFunction(() => document.querySelectorAll('.message.assistant')[3]?.querySelector('.body').textContent.length > 100);
  await page.reload();
  await page.waitForSelector('.message.assistant .actions');
  a = await lastAnswer(page);
  check(await count() === 4 && a.text.length > 60 && a.foot.includes('interrupted'), 'a reload keeps a part of an answer', a);
  // Several streams at once, for the panels.
  const others = await Promise.all([1, 2, 3, 4].map(() => newPage(slowURL, { width: 700 })));
  await Promise.all(others.map((o, i) => ask(o, i % 2 ? `${'word '.repeat(200 * i)} plain` : `${'text '.repeat(60 * i)} long`)));
  await page.bringToFront();
  await ask(page, 'And you plain');
  await page.waitForFunction(() => document.querySelectorAll('#streams .stream').length >= 5);
  await page.waitForFunction(() => [...document.querySelectorAll('#streams polyline.mean')].filter((l) => l.getAttribute('points').split(' ').length > 6).length >= 5);
  check(true, 'every stream has its ITL graph');
  check(/tokens\/s/.test(await text(page, '#steps-rate')) && /think/.test(await page.$eval('#ribbon', (c) => c.getAttribute('aria-label'))), 'the ribbon has figures and a description');
  await page.focus('#ribbon');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  check(/step/.test(await text(page, '#ribbon-tip')), 'arrow keys name a step', await text(page, '#ribbon-tip'));
  const painted = (id) => page.$eval(id, (c) => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size);
  check(await painted('#ribbon') > 4 && await painted('#pool') > 4, 'the canvases are painted');
  await page.$eval('#ribbon', (c) => c.blur());
  await accessible(page, 'a busy machine');
  await shot(page, 'busy-1280');
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }, still]);
  await page.waitForFunction(() => getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 27)');
  check(true, 'dark mode follows the system');
  await accessible(page, 'dark');
  await new Promise((done) => setTimeout(done, 600)); // one more event is drawn in these colours
  await shot(page, 'busy-1280-dark');
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }, still]);
  await page.click('#theme');
  await page.click('#theme');
  check(await page.evaluate(() => getComputedStyle(document.body).backgroundColor) === 'rgb(15, 20, 27)', 'the button makes it dark');
  await page.click('#theme');
  await narrow();
  for (const o of others) await o.close();
  await page.close();
}

async function narrow() {
  const page = await newPage(slowURL, { width: 400, height: 800 });
  check(await overflow(page) <= 0, '400 px: no horizontal scroll when empty', await overflow(page));
  await ask(page, 'Hello');
  await answers(page, 1);
  check(await overflow(page) <= 0, '400 px: no horizontal scroll in the chat', await overflow(page));
  await accessible(page, 'the chat at 400 px');
  await shot(page, 'chat-400');
  for (const dialog of ['settings', 'chats']) {
    await page.click(`#${dialog}-open`);
    await page.waitForSelector(`#${dialog}[open]`);
    check(await overflow(page) <= 0, `400 px: ${dialog}`);
    if (dialog === 'settings') { await accessible(page, 'the settings'); await shot(page, 'settings-400'); }
    await page.keyboard.press('Escape');
  }
  await page.click('#view-machine');
  await page.waitForFunction(() => document.querySelectorAll('#streams .stream').length >= 4);
  await new Promise((done) => setTimeout(done, 1500)); // some events
  check(await overflow(page) <= 0, '400 px: no horizontal scroll in the machine', await overflow(page));
  await accessible(page, 'the machine at 400 px');
  await shot(page, 'machine-400');
  await page.evaluate(() => document.querySelector('#pool').scrollIntoView());
  await shot(page, 'machine-400-below');
  await page.evaluate(() => document.querySelector('#streams .stream').click());
  await page.waitForSelector('#why[open] .timeline li');
  check(await overflow(page) <= 0, '400 px: why', await overflow(page));
  await shot(page, 'why-400');
  await page.close();
}

try {
  await realDaemon();
  await slowDaemon();
} catch (e) {
  check(false, 'the check came to its end', e.stack || String(e));
  const pages = (await Promise.all(browser.browserContexts().map((c) => c.pages()))).flat();
  for (const [i, page] of pages.entries()) await shot(page, `failed-${i}`).catch(() => {});
}
await browser.close();
check(problems.length === 0, 'no console error, no failed request, no other origin', problems.slice(0, 10));
console.log(failed ? `page-check: ${failed} FAILED` : 'page-check: passed');
process.exit(failed ? 1 : 0);
