// Called by page-check.sh: node page-check.mjs REAL_URL SLOW_URL SCREENSHOT_FOLDER TOOLS_FOLDER
import { createRequire } from 'node:module';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
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
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb', '--hide-scrollbars',
    '--use-fake-device-for-media-stream'], // a camera and a microphone; each page is asked for its permission
});

// UMA_PAGE_ASSETS=FOLDER takes the page's files from a folder instead of the built command: a change is tried without
// building.
const assets = process.env.UMA_PAGE_ASSETS || '';
const kinds = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.html': 'text/html' };

// answerOf returns what is answered in place of the server; null: the server answers.
function answerOf(request, scripted) {
  const url = new URL(request.url());
  const made = scripted && scripted(request, url);
  if (made) return made;
  const name = url.pathname === '/' && !url.search ? 'index.html' : url.pathname.replace('/page/', '');
  const file = path.join(assets, name);
  if (!assets || name.includes('/') || !existsSync(file)) return null;
  return { status: 200, contentType: kinds[path.extname(name)], body: readFileSync(file) };
}

// newPage opens a page in a new browser context, without stored data.
async function newPage(url, { width = 1280, height = 860, dark = false, scripted = null } = {}) {
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
  if (assets || scripted) {
    await page.setRequestInterception(true);
    page.on('request', (r) => {
      const made = answerOf(r, scripted);
      if (made) r.respond(made);
      else r.continue();
    });
  }
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
  await page.waitForFunction(() => /uma-tiny/.test(document.getElementById('model').getAttribute('aria-label')));
  check((await text(page, '#model-name')).includes('uma-tiny'), 'the button of the models names the model');
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

const files = mkdtempSync(path.join(os.tmpdir(), 'page-files-'));
function file(name, body) {
  const to = path.join(files, name);
  writeFileSync(to, body);
  return to;
}
async function give(page, input, ...paths) {
  const field = await page.$(input);
  await field.uploadFile(...paths);
}
const says = (page, selector, pattern) => page.waitForFunction((s, p) => new RegExp(p).test(document.querySelector(s).textContent), {}, selector, pattern);
async function alt(page, key) {
  await page.keyboard.down('Alt');
  await page.keyboard.press(key);
  await page.keyboard.up('Alt');
}

// branches, files, settings, search, export and import of chats.
async function chats() {
  let sent = null;
  const page = await newPage(realURL, { scripted: (r) => {
    if (r.method() === 'POST' && r.url().endsWith('/v1/chat/completions')) sent = JSON.parse(r.postData());
    return null;
  } });
  const questions = () => page.$$eval('.message.user .body', (all) => all.map((e) => e.textContent));
  await ask(page, 'What is 2 + 3?');
  await answers(page, 1);
  await page.click('.message.user .edit');
  await page.waitForSelector('.edit-form textarea');
  await page.$eval('.edit-form textarea', (area) => { area.value = 'What is 20 + 30?'; });
  await accessible(page, 'the editor of a message');
  await page.focus('.edit-form textarea');
  await page.keyboard.press('Enter');
  await answers(page, 1);
  check((await questions())[0] === 'What is 20 + 30?' && sent.messages.length === 1, 'an edited message is asked in place of the old one', sent.messages);
  check(/2 \/ 2/.test(await text(page, '.message.user .branches')), 'it is another branch');
  await page.click('.message.assistant .retry');
  await answers(page, 1);
  check(/2 \/ 2/.test(await text(page, '.message.assistant .branches')), 'retry keeps the earlier answer as a branch');
  await page.click('.message.user .turn');
  check((await questions())[0] === 'What is 2 + 3?' && (await page.$$('.message')).length === 2, 'the first branch is shown again', await questions());
  await page.reload();
  await page.waitForSelector('.message.user .branches');
  check((await questions())[0] === 'What is 2 + 3?' && /1 \/ 2/.test(await text(page, '.message.user .branches')), 'a reload keeps the branches');
  await alt(page, 'e');
  check(await page.$('.edit-form') !== null, 'Alt-E edits the last message');
  await page.keyboard.press('Escape');
  check(await page.$('.edit-form') === null, 'Escape leaves the editor');

  // Files.
  await give(page, '#attach-file', file('<b>notes.txt', 'The code is ```7431```.\n'), file('cat.png', 'x'), file('paper.docx', 'PK'), file('raw.dat', Buffer.from([0, 255, 1])),
    file('big.txt', 'x'.repeat(300 << 10)));
  await says(page, '#attach-problem', 'big.txt');
  const refused = await text(page, '#attach-problem');
  for (const part of ['cat.png: uma-tiny reads text alone', 'paper.docx: this page reads text files and PDF only', 'raw.dat: it is no text', 'big.txt: it has 300 KiB']) {
    check(refused.includes(part), `refused with a reason: ${part}`, refused);
  }
  check(await page.$$eval('#attached li span:first-child', (all) => all.map((e) => e.textContent).join()) === '<b>notes.txt', 'a text file is attached');
  await accessible(page, 'a message with a file');
  await ask(page, 'Read it.');
  await answers(page, 2);
  const last = sent.messages.at(-1).content;
  check(last.startsWith('Read it.\n\nFile "') && last.includes('````\nThe code is ```7431```.\n````'), 'the text of the file goes to the model between longer fences', last);
  check(await page.$('.message .files li') !== null && (await page.$$('.message .files b')).length === 0, 'the file stands at its message, its name as text');

  // Settings of a chat.
  await alt(page, 's');
  await page.type('#set-system', 'Be short.');
  await page.type('#set-topk', '7');
  await page.type('#set-minp', '9'); // not valid
  await page.keyboard.press('Escape');
  await ask(page, 'What is 1 + 1?');
  await answers(page, 3);
  check(sent.messages[0].content === 'Be short.' && sent.top_k === 7 && sent.min_p === undefined, 'the settings of the chat are sent, without the invalid one', sent);
  await alt(page, 'n');
  await ask(page, 'What is 1 + 2?');
  await answers(page, 1);
  check(sent.messages.length === 1 && sent.top_k === undefined, 'another chat has its own settings');

  // Search, export, import.
  await alt(page, 'h');
  await page.type('#chats-search', '20 + 30');
  await page.waitForFunction(() => document.querySelectorAll('#chat-list .open').length === 1);
  check(/What is 20 \+ 30/.test(await text(page, '#chat-list')), 'the search finds a message in a branch');
  await page.$eval('#chats-search', (e) => { e.value = 'zebra'; e.dispatchEvent(new Event('input')); });
  await says(page, '#chat-list', 'No chat has these words');
  const exported = await page.evaluate(async () => {
    const { write } = await import('/page/transfer.js');
    const store = await import('/page/store.js');
    return write(store.list().map((c) => store.load(c.id)));
  });
  await page.click('#chats-export');
  await says(page, '#chats-note', 'Exported: 2 chats');
  await give(page, '#chats-file', file('mine.json', exported));
  await says(page, '#chats-note', '2 are here already');
  for (const [name, body, want] of [
    ['no.json', 'no', 'the file is not JSON'], ['other.json', '{"format":"x"}', 'its format must be'],
    ['loop.json', '{"format":"uma-serve chats","version":1,"chats":[{"messages":[{"role":"user","content":"a","parent":0}]}]}', 'chats.0..messages.0..parent must be'],
    ['role.json', '{"format":"uma-serve chats","version":1,"chats":[{"messages":[{"role":"system","content":"a"}]}]}', 'role must be user or assistant'],
    ['many.json', JSON.stringify({ format: 'uma-serve chats', version: 1, chats: Array(201).fill({}) }), '201 entries; at most 200'],
    ['leaf.json', '{"format":"uma-serve chats","version":1,"chats":[{"leaf":7,"messages":[{"role":"user","content":"a"}]}]}', 'leaf must be'],
  ]) {
    await give(page, '#chats-file', file(name, body));
    await says(page, '#chats-note', `Not imported: .*${want}`);
    check(true, `import refuses ${name}`);
  }
  await accessible(page, 'the chats with a note');
  await page.evaluate(() => localStorage.clear());
  await give(page, '#chats-file', file('mine2.json', exported.replace('What is 1 + 2?', '<img src=x onerror=alert(1)>')));
  await says(page, '#chats-note', 'Imported: 2 chats');
  await page.$eval('#chats-search', (e) => { e.value = ''; e.dispatchEvent(new Event('input')); });
  await page.waitForFunction(() => document.querySelectorAll('#chat-list .open').length === 2);
  check(await page.$('#chat-list img') === null, 'an imported title is text');
  await shot(page, 'chats-1280');
  await page.close();
}

// models: the picker, with a server that is scripted: what it has to show takes hours or gigabytes otherwise.
async function models() {
  const done = { done: 300 << 20, total: 1200 << 20 }, asked = [];
  let list = [
    { id: 'uma-tiny', meta: { size: 4 << 20, n_params: 1e6, n_ctx_train: 4096 }, status: { value: 'loaded', fit: { fits: true, text: '40 MiB of 8 GiB' } } },
    { id: 'org/<b>Large</b>:Q8_0', meta: { size: 70 * 2 ** 30, n_params: 70e9, n_ctx_train: 131072 },
      status: { value: 'unloaded', fit: { fits: false, text: 'it needs 74 GiB of memory, and --memory is 8 GiB' } } },
    { id: 'org/Coder:Q4_K_M', meta: { size: 400 << 20 }, status: { value: 'unloaded' } },
  ];
  const json = (body, status = 200) => ({ status, contentType: 'application/json', body: JSON.stringify(body) });
  const scripted = (r, url) => {
    if (url.pathname === '/v1/models') return json({ object: 'list', data: list });
    if (url.pathname === '/props') return json({ modalities: { vision: false, audio: false } });
    if (url.pathname === '/models/sse') return { status: 200, contentType: 'text/event-stream', body: 'retry: 60000\n\n' };
    if (!url.pathname.startsWith('/models')) return null;
    asked.push(`${r.method()} ${url.pathname}${decodeURIComponent(url.search)} ${r.postData() || ''}`.trim());
    if (r.method() === 'POST' && url.pathname === '/models') {
      list = [...list, { id: JSON.parse(r.postData()).model, status: { value: 'downloading', progress: { 'x.gguf': done } } }];
    } else if (url.pathname === '/models/unload') list = list.filter((m) => m.status.value !== 'downloading');
    else if (r.method() === 'DELETE') list = list.filter((m) => m.id !== url.searchParams.get('model'));
    return json({ success: true });
  };
  const page = await newPage(realURL, { scripted });
  const rows = () => page.$$eval('#model-list .name', (all) => all.map((e) => e.textContent));
  const press = (name) => page.evaluate((n) => [...document.querySelectorAll('#model-list button')].find((b) => b.getAttribute('aria-label') === n).click(), name);
  await page.waitForFunction(() => document.getElementById('model-name').textContent === 'uma-tiny');
  await alt(page, 'o');
  await page.waitForSelector('#models[open] .model-row');
  check((await rows()).length === 3 && await page.$('#model-list b') === null, 'the models are listed, their names as text', await rows());
  const all = await text(page, '#model-list');
  for (const part of ['70.0 GiB', 'Does not fit: it needs 74 GiB', 'Fits: 40 MiB', 'not loaded']) check(all.includes(part), `a model says: ${part}`, all);
  await accessible(page, 'the models');
  await shot(page, 'models-1280');
  await page.type('#models-search', 'coder');
  check((await rows()).join() === 'org/Coder:Q4_K_M', 'the search finds a part of a name', await rows());
  await press('Load org/Coder:Q4_K_M');
  await says(page, '#models-note', 'is being loaded');
  await page.$eval('#models-search', (e) => { e.value = 'new/Model-GGUF:Q4_0'; e.dispatchEvent(new Event('input')); });
  await page.click('#models-get');
  await page.waitForSelector('progress');
  check(await page.$eval('progress', (p) => p.value / p.max) === 0.25 && /300 MiB of 1.2 GiB, 25 %/.test(await text(page, '.download')), 'a download has a progress bar', await text(page, '.download'));
  await accessible(page, 'a download');
  await page.setViewport({ width: 360, height: 760 });
  await page.$eval('#models-search', (e) => { e.value = ''; e.dispatchEvent(new Event('input')); });
  check(await overflow(page) <= 0 && await page.$eval('#models', (d) => d.scrollWidth <= d.clientWidth), '360 px: the models');
  await shot(page, 'models-360');
  await press('Cancel new/Model-GGUF:Q4_0');
  await says(page, '#models-note', 'is cancelled');
  page.once('dialog', (d) => d.dismiss());
  await press('Delete org/Coder:Q4_K_M');
  check(!asked.some((a) => a.startsWith('DELETE')), 'delete asks first');
  page.once('dialog', (d) => d.accept());
  await press('Delete org/Coder:Q4_K_M');
  await says(page, '#models-note', 'is deleted');
  await press('Unload uma-tiny');
  await says(page, '#models-note', 'leaves when');
  check(asked.join('|') === 'POST /models/load {"model":"org/Coder:Q4_K_M"}|POST /models {"model":"new/Model-GGUF:Q4_0"}|' +
    'POST /models/unload {"model":"new/Model-GGUF:Q4_0"}|DELETE /models?model=org/Coder:Q4_K_M|POST /models/unload {"model":"uma-tiny"}', 'the server is asked for each', asked);
  await page.type('#models-search', 'large');
  await page.keyboard.press('Enter');
  check(await text(page, '#model-name') === 'org/<b>Large</b>:Q8_0' && !(await page.$('#models[open]')), 'Enter takes the only model that matches');
  await page.close();
}

// captures: pictures of the camera and recordings of the microphone, for a model that a script says sees and hears.
async function captures() {
  let senses = { vision: false, audio: false }, sent = null;
  const json = (body) => ({ status: 200, contentType: 'application/json', body: JSON.stringify(body) });
  const page = await newPage(realURL, { scripted: (r, url) => {
    if (url.pathname === '/props') return json({ modalities: senses });
    if (r.method() === 'POST' && url.pathname === '/v1/chat/completions') sent = JSON.parse(r.postData());
    return null;
  } });
  const origin = new URL(realURL).origin, context = page.browserContext();
  const header = (await (await fetch(realURL)).headers.get('permissions-policy')) || '';
  check(/camera=\(self\), microphone=\(self\)/.test(header) && !header.includes('*'), 'the page may ask for the camera and the microphone alone', header);
  check(assets || await page.evaluate(() => !document.featurePolicy || ['geolocation', 'usb', 'midi'].every((f) => !document.featurePolicy.allowsFeature(f))), 'and for no place or device');
  const shown = () => page.$$eval('#camera, #microphone', (all) => all.filter((b) => !b.hidden).map((b) => b.id).join());
  const senseless = () => page.evaluate(async () => (await import('/page/models.js')).load());
  await page.waitForFunction(() => /uma-tiny/.test(document.getElementById('model-name').textContent));
  check(await shown() === '', 'no camera for a model that reads text alone', await shown());
  await alt(page, 'c');
  check(await page.$('#capture[open]') === null, 'nor by its key');
  senses = { vision: true, audio: false };
  await senseless();
  await page.waitForSelector('#camera:not([hidden])');
  check(await shown() === 'camera', 'a model that sees has the camera', await shown());
  senses = { vision: true, audio: true };
  await senseless();
  await page.waitForSelector('#microphone:not([hidden])');
  await page.evaluate(() => { // every track that the page gets
    window.tracks = [];
    const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (what) => {
      if (window.refusal) throw new DOMException('made up', window.refusal);
      const stream = await real(what);
      window.tracks.push(...stream.getTracks());
      return stream;
    };
  });
  const off = () => page.evaluate(() => window.tracks.length > 0 && window.tracks.every((t) => t.readyState === 'ended') && !document.getElementById('capture-view').srcObject);

  // Refused: the error says what to do, and the dialog closes.
  await context.overridePermissions(origin, []);
  await page.click('#camera');
  await says(page, '#capture-note', 'may not use the camera: allow it');
  check(await page.$eval('#capture-act', (b) => b.disabled), 'a refused camera is said, and takes nothing');
  await accessible(page, 'a refused camera');
  await page.keyboard.press('Escape');
  check(await page.$('#capture[open]') === null, 'Escape closes it');
  await context.overridePermissions(origin, ['camera', 'microphone', 'clipboard-write']);
  for (const [name, want] of [['NotFoundError', 'finds no camera'], ['NotReadableError', 'does not answer']]) {
    await page.evaluate((n) => { window.refusal = n; }, name);
    await page.click('#camera');
    await says(page, '#capture-note', want);
    await page.click('#capture-cancel');
    check(await page.$('#capture[open]') === null, `no camera: ${want}`);
  }
  await page.evaluate(() => { window.refusal = ''; });

  // A picture, with keys alone.
  await page.focus('#prompt');
  await alt(page, 'c');
  await page.waitForSelector('#capture-act:not([disabled])');
  check(await page.evaluate(() => document.activeElement.id === 'capture-act' && document.getElementById('capture-view').videoWidth > 0), 'the preview runs, and the focus is on Take');
  await accessible(page, 'the camera');
  await shot(page, 'camera-1280');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => window.tracks.every((t) => t.readyState === 'ended'));
  check(await off() && await page.$$eval('#attached li', (all) => all.length) === 0, 'cancelled: the camera is off, and nothing is attached');
  await alt(page, 'c');
  await page.waitForSelector('#capture-act:not([disabled])');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#attached li canvas');
  check(await off() && await page.$('#capture[open]') === null, 'taken: the camera is off');
  check(await page.evaluate(() => document.activeElement.id === 'prompt'), 'and the focus is on the message');
  await ask(page, 'What do you see?');
  await answers(page, 1);
  const image = Array.isArray(sent.messages[0].content) && sent.messages[0].content[0];
  check(image && image.type === 'image_url' && image.image_url.url.startsWith('data:image/jpeg;base64,') && image.image_url.url.length > 3000, 'the picture goes with the message', JSON.stringify(image).slice(0, 80));

  // The camera goes away, or the tab does.
  await page.click('#camera');
  await page.waitForSelector('#capture-act:not([disabled])');
  await page.evaluate(() => window.tracks.at(-1).dispatchEvent(new Event('ended')));
  await says(page, '#capture-note', 'The camera is gone');
  await page.click('#capture [data-close]');
  check(await off(), 'a camera that goes is off');
  await page.click('#camera');
  await page.waitForSelector('#capture-act:not([disabled])');
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
    delete document.hidden;
  });
  check(await page.$('#capture[open]') === null && await off(), 'a hidden page has the camera off');

  // A recording.
  await alt(page, 'v');
  await page.waitForSelector('#capture-act:not([disabled])');
  check(await page.$eval('#capture-view', (v) => v.hidden) && await text(page, '#capture-act') === 'Record', 'the microphone has no picture');
  await accessible(page, 'the microphone');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /^[2-9]/.test(document.getElementById('capture-time').textContent));
  check(await text(page, '#capture-act') === 'Stop and attach' && await text(page, '#capture-note') === 'Recording.', 'it says that it records');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#attached li');
  check(await off(), 'recorded: the microphone is off');
  const heard = await page.evaluate(async () => (await import('/page/attach.js')).taken());
  const wav = Buffer.from(heard[0].sound, 'base64');
  check(wav.subarray(0, 4).toString() === 'RIFF' && wav.length > 16000 && wav.subarray(44).some((b) => b !== 0), 'the sound is a WAV that is not silent', wav.length);
  await page.setViewport({ width: 360, height: 640 });
  await page.click('#camera');
  await page.waitForSelector('#capture-act:not([disabled])');
  check(await overflow(page) <= 0 && await page.$eval('#capture', (d) => d.scrollWidth <= d.clientWidth && d.getBoundingClientRect().bottom <= innerHeight), '360 px: the camera');
  await shot(page, 'camera-360');
  await page.click('#capture-cancel');
  await page.close();

  // A phone whose page has no camera for scripts, as over plain HTTP, asks for a file of its camera.
  const phone = await newPage(realURL, { width: 400, height: 800, scripted: (r, url) => (url.pathname === '/props' ? json({ modalities: senses }) : null) });
  await phone.waitForSelector('#camera:not([hidden])');
  check(await overflow(phone) <= 0, '400 px: the buttons');
  await phone.evaluate(() => {
    Object.defineProperty(navigator, 'mediaDevices', { value: undefined });
    document.getElementById('camera-file').click = () => { window.asked = true; };
  });
  await phone.evaluate(async () => (await import('/page/models.js')).load());
  await phone.waitForSelector('#microphone[hidden]');
  await phone.click('#camera');
  check(await phone.evaluate(() => window.asked && !document.getElementById('capture').open), 'a phone without one for scripts opens its own camera');
  await phone.close();
}

// pdf is a file of one page with a line of text.
function pdf(line) {
  const stream = `BT /F1 12 Tf 40 700 Td (${line}) Tj ET`;
  const objects = ['<< /Type /Catalog /Pages 2 0 R >>', '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`, '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>'];
  let body = '%PDF-1.4\n';
  const at = objects.map((o, i) => { const n = body.length; body += `${i + 1} 0 obj\n${o}\nendobj\n`; return n; });
  const xref = body.length;
  body += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${at.map((n) => `${String(n).padStart(10, '0')} 00000 n \n`).join('')}`;
  return `${body}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
}

// toolServers: a PDF, which the daemon reads, and the tools of a scripted server.
async function toolServers() {
  let asked = [];
  const call = { server_label: 'notes', name: 'docs/search', arguments: '{"q":"<b>boiler</b>"}' };
  const line = (type, more) => `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  const words = (id, text) => line('response.created', { response: { id } }) + line('response.output_item.added', { item: { type: 'message', id: 'm' } }) +
    line('response.output_text.delta', { delta: text });
  const end = (id) => line('response.completed', { response: { id, error: null, usage: { input_tokens: 9, output_tokens: 5, input_tokens_details: { cached_tokens: 0 },
    output_tokens_details: { reasoning_tokens: 0 } } } });
  const item = (type, it) => line(`response.output_item.${type}`, { item: it });
  const scripted = (r, url) => {
    if (url.pathname === '/mcp/servers') return { status: 200, contentType: 'application/json', body: '{"servers":[{"name":"notes"},{"name":"web"}]}' };
    if (url.pathname !== '/v1/responses') return null;
    const body = JSON.parse(r.postData());
    asked.push(body);
    const answered = Array.isArray(body.input) && body.input[0].type === 'mcp_approval_response' && body.input[0];
    let out;
    if (!answered) out = words('r1', 'I look it up.') + item('done', { type: 'mcp_approval_request', id: `mcpr_${asked.length}`, ...call }) + end('r1');
    else if (!answered.approve) out = words('r3', 'Then I do not know.') + end('r3');
    else {
      const ran = { type: 'mcp_call', id: 'c1', approval_request_id: answered.approval_request_id, ...call };
      out = line('response.created', { response: { id: 'r2' } }) + item('added', { ...ran, output: null, error: null }) + item('done', { ...ran, output: '<i>Sunday</i>', error: null }) +
        words('r2', 'On Sunday.') + end('r2');
    }
    return { status: 200, contentType: 'text/event-stream', body: out };
  };
  const page = await newPage(realURL, { scripted });
  await give(page, '#attach-file', file('paper.pdf', pdf('The code is 7431.')));
  await page.waitForSelector('#attached li');
  const read = await page.evaluate(async () => (await import('/page/attach.js')).taken());
  check(read.length === 1 && read[0].text.includes('The code is 7431.'), 'the daemon reads a PDF', read);
  await page.click('#settings-open');
  await page.waitForSelector('#settings[open] #tool-notes');
  await accessible(page, 'the settings with tools');
  await page.click('#tool-notes');
  await page.keyboard.press('Escape');
  await ask(page, 'When was the boiler checked?');
  await page.waitForSelector('.consent button');
  check(asked.length === 1 && asked[0].tools.length === 1 && asked[0].tools[0].server_label === 'notes' &&
    asked[0].tools[0].require_approval.never.tool_names.length === 0 && asked[0].input[0].content === 'When was the boiler checked?', 'the chat asks with its server alone', asked);
  check(/notes · docs\/search: waits for you/.test(await text(page, '.consent')) && await page.$('.consent b') === null, 'the call and its arguments are shown, as text');
  await accessible(page, 'a call that waits');
  await shot(page, 'consent-1280');
  const press = (name) => page.evaluate((n) => [...document.querySelectorAll('.consent button')].find((b) => b.textContent === n).click(), name);
  await press('Allow once');
  await page.waitForFunction(() => /On Sunday/.test(document.querySelector('.message.assistant .body').textContent));
  check(asked[1].previous_response_id === 'r1' && asked[1].input[0].approve === true && asked[1].input[0].approval_request_id === 'mcpr_1', 'consent continues the answer', asked[1]);
  check((await page.$$('.message.assistant')).length === 1 && /docs\/search: done/.test(await text(page, '.calls')) && await page.$('.calls i') === null, 'the result is there, as text', await text(page, '.calls'));
  await ask(page, 'And last year?');
  await page.waitForSelector('.consent button');
  check(asked[2].tools[0].require_approval.never.tool_names.length === 0, 'allowed once is not allowed again');
  await press('Deny');
  await page.waitForFunction(() => /Then I do not know/.test([...document.querySelectorAll('.message.assistant .body')].at(-1).textContent));
  check(asked[3].input[0].approve === false && /docs\/search: denied/.test(await text(page, '.message.assistant:last-of-type .calls')), 'a call that is denied does not run');
  await ask(page, 'Please');
  await page.waitForSelector('.consent button');
  await press('Allow in this chat');
  await page.waitForFunction(() => document.querySelectorAll('.consent').length === 0 && !document.querySelector('[aria-busy]'));
  await page.evaluate(() => [...document.querySelectorAll('.retry')].at(-1).click());
  await page.waitForFunction(() => !document.querySelector('[aria-busy]'));
  check(asked.at(-1).tools[0].require_approval.never.tool_names.join() === 'docs/search', 'allowed in this chat is allowed again', asked.at(-1).tools);
  await page.reload();
  await page.waitForSelector('.message.assistant .calls');
  check(/docs\/search: done/.test(await text(page, '.calls')), 'a reload keeps the calls');
  asked = [];
  await page.setViewport({ width: 360, height: 760 });
  check(await overflow(page) <= 0, '360 px: calls');
  await page.click('#new');
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
  const page = await newPage(slowURL, { width: 360, height: 780 });
  check(await overflow(page) <= 0, '360 px: no horizontal scroll when empty', await overflow(page));
  await page.setViewport({ width: 400, height: 800, deviceScaleFactor: 1, hasTouch: true, isMobile: true });
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

// keyedDaemon: a server with --api-keys shows its page, asks for the key, says that a wrong one is wrong, and keeps the
// right one over a reload.
async function keyedDaemon() {
  const url = process.env.KEYED_URL;
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(wait);
  page.on('pageerror', (e) => problems.push(`error: ${e.message}`));
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await page.waitForSelector('#key[open]');
  await accessible(page, 'the question for a key');
  await shot(page, 'key');
  await page.type('#key-value', 'a wrong key');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('key-note').textContent.includes('does not know this key'));
  check(true, 'a wrong key is said to be wrong');
  await page.waitForSelector('#key[open]');
  await page.type('#key-value', 'page-check-key-0123456789abcdef');
  await page.keyboard.press('Enter');
  const ok = () => page.waitForFunction(() => document.getElementById('status').dataset.state === 'ok');
  await ok();
  await ask(page, 'Hello');
  await answers(page, 1);
  check((await lastAnswer(page)).text !== '', 'with the key the chat is answered');
  await page.reload({ waitUntil: 'domcontentloaded' });
  await ok();
  check(await page.$('#key[open]') === null, 'the key is kept over a reload');
  await page.close();
}

try {
  await realDaemon();
  await keyedDaemon();
  await chats();
  await captures();
  await models();
  await toolServers();
  await slowDaemon();
} catch (e) {
  check(false, 'the check came to its end', e.stack || String(e));
  const pages = (await Promise.all(browser.browserContexts().map((c) => c.pages()))).flat();
  for (const [i, page] of pages.entries()) await shot(page, `failed-${i}`).catch(() => {});
}
await browser.close();
rmSync(files, { recursive: true, force: true });
check(problems.length === 0, 'no console error, no failed request, no other origin', problems.slice(0, 10));
console.log(failed ? `page-check: ${failed} FAILED` : 'page-check: passed');
process.exit(failed ? 1 : 0);
