// Called by newcomer-check.sh as the browser: node newcomer-check.mjs URL FOLDER. Writes FOLDER/answer.
import { createRequire } from 'node:module';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [url, dir] = process.argv.slice(2);
const puppeteer = createRequire(path.join(dir, 'package.json'))('puppeteer-core');
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
const began = Date.now();
let told;
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(180000);
  const problems = [];
  page.on('pageerror', (e) => problems.push(e.message));
  page.on('console', (m) => { if (m.type() === 'error') problems.push(m.text()); });
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await page.waitForFunction(() => document.getElementById('status')?.dataset.state === 'ok');
  const model = await page.$eval('#model-name', (e) => e.textContent);
  await page.type('#prompt', 'What is the capital of France?'); // the page has the focus there; nothing is read first
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.message.assistant:not([aria-busy]) .actions').length > 0);
  const answer = await page.$eval('.message.assistant .body', (e) => e.textContent.trim());
  const ok = /Paris/.test(answer) && problems.length === 0 && !/uma-tiny/.test(model);
  told = `${ok ? 'ok' : 'FAIL'}: ${model}: ${JSON.stringify(answer)}, ${((Date.now() - began) / 1000).toFixed(1)} s after the ` +
    `page was opened ${problems.join('; ')}`;
} catch (e) {
  told = `FAIL: ${e.message}`;
} finally {
  await browser.close();
}
writeFileSync(path.join(dir, 'answer'), told + '\n');
