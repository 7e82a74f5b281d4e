// What the machine is doing: the panels beside the chat, fed by the live events.

import { $, bytes, h, ms, number, setText } from './dom.js';
import * as pool from './pool.js';
import * as ribbon from './ribbon.js';
import * as streams from './streams.js';
import { ask } from './key.js';

const recentEvery = 5000; // ms, between two questions about requests that ended
const recentShown = 8;

let state = null;
let live = new Set(); // numbers of the streams of the last state
let asked = 0, due = 0;
let openWhy = () => {};

export function onWhy(f) { openWhy = f; }

export function start() {
  ribbon.start();
  pool.start();
  new ResizeObserver(repaint).observe($('machine'));
}

// hello begins a connection: times start anew where the server is another one.
export function hello(event) {
  ribbon.clear();
  streams.viewer(event);
  pool.viewer(event);
  recent();
}

export function take(event) {
  ribbon.take(event);
  if (!event.state) return;
  state = event.state;
  ribbon.cost(state);
  load();
  streams.take(state, openWhy);
  pool.take(state.pool);
  tiers();
  const now = new Set(state.streams.map((s) => s.number));
  if ([...live].some((n) => !now.has(n))) recent();
  live = now;
}

// repaint draws the canvases again: another theme, size or view.
export function repaint() {
  ribbon.draw();
  pool.draw();
}

const loads = [
  ['queued', 'waiting', 'Waiting for a sequence'], ['prefill', 'prompt', 'Their prompt is being computed'],
  ['think', 'thinking', 'Thinking'], ['output', 'answering', 'Writing an answer'], ['parked', 'parked', 'Of the waiting: preempted'],
  ['paused', 'paused', 'Their client does not read'],
];

function load() {
  const l = state.load, list = $('load');
  if (!list.children.length) {
    list.append(...loads.map(([key, label, title]) => h('div', { class: key, title }, h('dt', null, label), h('dd', null, '0'))));
  }
  loads.forEach(([key], i) => {
    setText(list.children[i].lastChild, number(l[key]));
    list.children[i].classList.toggle('some', l[key] > 0);
  });
  const facts = [`${number(l.users)} user${l.users === 1 ? '' : 's'}`, `${number(l.sessions)} connection${l.sessions === 1 ? '' : 's'}`];
  if (l.waiting) facts.unshift(l.waiting.replaceAll('_', ' '));
  if (l.prefill && state.guard !== 'open') facts.unshift(`prompts: ${state.guard === 'hold' ? 'held' : 'trimmed'} for the ITL target`);
  setText($('load-why'), facts.join(' · '));
}

function tiers() {
  const names = { host: 'Memory', disk: 'Disk', fabric: 'Fabric' };
  $('tiers').replaceChildren(...state.tiers.map((t) => {
    const full = t.cap_bytes ? t.bytes / t.cap_bytes : 0;
    const fill = h('i');
    fill.style.width = `${Math.min(full * 100, 100)}%`;
    const text = t.off ? 'off' : `${bytes(t.bytes)}${t.cap_bytes ? ` of ${bytes(t.cap_bytes)}` : ''}, ${number(t.entries)} parts`;
    return h('div', { class: t.off ? 'tier off' : 'tier', title: t.off || null }, h('span', null, names[t.tier] || t.tier),
      h('span', { class: 'meter', 'aria-hidden': 'true' }, fill), h('span', { class: 'figure' }, text));
  }));
}

// recent lists requests that ended, at most once every recentEvery.
function recent() {
  if (due) return;
  due = setTimeout(async () => {
    due = 0;
    asked = Date.now();
    let report;
    try {
      const r = await ask('why?last=24');
      if (!r.ok) return;
      report = await r.json();
    } catch {
      return;
    }
    const ended = report.requests.filter((r) => r.state === 'done').slice(0, recentShown);
    $('recent').replaceChildren(...ended.length ? ended.map(recentRow) : [h('li', { class: 'empty' }, 'None yet')]);
  }, Math.max(asked + recentEvery - Date.now(), 0));
}

function recentRow(r) {
  const u = r.usage;
  return h('li', null, h('button', { class: 'row', title: r.request, onclick: () => openWhy(`#${r.number}`) },
    h('span', { class: 'name' }, `#${r.number}`),
    h('span', { class: `ended ${r.ended === 'stop' || r.ended === 'length' ? '' : 'odd'}` }, r.ended.replace(/^E_/, '').replaceAll('_', ' ').toLowerCase()),
    h('span', { class: 'figure' }, `${number(u.prompt_tokens)} → ${number(u.completion_tokens)} tokens`),
    h('span', { class: 'figure' }, ms(r.took_ms))));
}
