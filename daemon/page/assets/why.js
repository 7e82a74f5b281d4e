// Why a request was treated as it was: its decisions on a timeline.

import { $, h, ms, number } from './dom.js';
import { problem } from './sse.js';
import { ask } from './key.js';

const again = 1000; // ms, while the request runs

let timer = 0;
let shown = '';

// open shows a request by its id or as "#17".
export function open(request) {
  shown = request;
  $('why-title').textContent = `Why: ${request}`;
  $('why-body').replaceChildren(h('p', { class: 'hint' }, 'Asking…'));
  if (!$('why').open) $('why').showModal();
  $('why').addEventListener('close', () => clearTimeout(timer), { once: true });
  load(request);
}

async function load(request) {
  clearTimeout(timer);
  let body;
  try {
    const r = await ask(`why?request=${encodeURIComponent(request)}`);
    if (!r.ok) throw new Error(await problem(r));
    body = (await r.json()).requests[0];
    if (!body) throw new Error('The server remembers running requests and the 64 that ended last; this one is not among them.');
  } catch (e) {
    $('why-body').replaceChildren(h('p', { class: 'error' }, e instanceof TypeError ? 'The server cannot be reached.' : e.message));
    return;
  }
  if (shown !== request || !$('why').open) return;
  $('why-body').replaceChildren(...render(body));
  if (body.state !== 'done') timer = setTimeout(() => load(request), again);
}

function render(r) {
  const total = Math.max(r.took_ms || r.age_ms, ...r.decisions.map((d) => d.last_ms), 1);
  const u = r.usage;
  const facts = [
    ['State', r.state === 'done' ? `ended: ${r.ended}` : r.state],
    [r.took_ms ? 'Took' : 'Runs for', ms(r.took_ms || r.age_ms)],
    ['First token', r.ttft_ms ? ms(r.ttft_ms) : '–'],
    ['Prompt', `${number(u.prompt_tokens)} tokens, ${number(u.cached_tokens)} cached${u.cached_tokens ? ` (${u.cache_tier})` : ''}`],
    ['Answer', `${number(u.completion_tokens)} tokens, ${number(u.think_tokens)} of them thought`],
    ['Class', `${r.class}, uid ${r.uid}`],
  ];
  if (u.cache_miss) facts.push(['Not cached', u.cache_miss]);
  const place = (el, at, width) => {
    el.style.left = `min(${at / total * 100}%, 100% - 3px)`;
    el.style.width = `max(3px, ${width / total * 100}%)`;
    return el;
  };
  const rows = r.decisions.map((d) => h('li', { class: kind(d.reason) },
    h('span', { class: 'at' }, ms(d.at_ms)),
    h('span', { class: 'track', 'aria-hidden': 'true' }, place(h('i'), d.at_ms, d.last_ms - d.at_ms)),
    h('span', { class: 'text' }, d.text, ' ', h('span', { class: 'figure' }, [
      d.times > 1 ? `${number(d.times)} times until ${ms(d.last_ms)}` : '', d.tokens ? `${number(d.tokens)} tokens` : '',
    ].filter(Boolean).join(', ')))));
  return [
    h('dl', { class: 'facts' }, ...facts.map(([k, v]) => h('div', null, h('dt', null, k), h('dd', null, v)))),
    r.dropped_decisions ? h('p', { class: 'hint' }, `${number(r.dropped_decisions)} older decisions are not remembered.`) : '',
    h('div', { class: 'axis', 'aria-hidden': 'true' }, h('span', null, '0'), h('span', null, ms(total / 2)), h('span', null, ms(total))),
    h('ol', { class: 'timeline' }, ...rows),
  ];
}

// kind is the colour of a decision: what it was for.
function kind(reason) {
  if (reason.startsWith('prefill')) return 'prompt';
  if (reason.startsWith('think') || reason.startsWith('forced') || reason.startsWith('probe')) return 'think';
  if (reason.startsWith('decode')) return 'answer';
  if (reason.startsWith('wait') || reason === 'joining' || reason === 'restoring') return 'waits';
  if (reason.startsWith('preempt') || ['failed', 'cancelled', 'kv_full', 'displaced', 'queue_full'].includes(reason)) return 'bad';
  return 'plain';
}
