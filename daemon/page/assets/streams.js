// The live requests: each one's ITL against its target.

import { $, h, ms, number, setText, svg } from './dom.js';

const samples = 90; // of each stream
const names = { queued: 'waiting', prefill: 'prompt', think: 'thinking', output: 'answering', parked: 'parked' };

let rows = new Map(); // by number
let me = { uid: -1, operator: false };

export function viewer(hello) { me = hello; rows = new Map(); $('streams').replaceChildren(); }

export function take(state, openWhy) {
  const seen = new Set();
  for (const s of state.streams) {
    seen.add(s.number);
    let row = rows.get(s.number);
    if (!row) rows.set(s.number, row = newRow(s, openWhy));
    show(row, s);
  }
  for (const [number, row] of rows) {
    if (!seen.has(number)) { row.root.remove(); rows.delete(number); }
  }
  const own = state.streams.length + state.more, all = state.load.queued + state.load.prefill + state.load.think + state.load.output;
  const note = [];
  if (state.more) note.push(`${number(state.more)} more not shown`);
  if (all > own) note.push(`${number(all - own)} of other users`);
  setText($('streams-note'), note.join(' · '));
  if (!rows.size && !$('streams').querySelector('.empty')) $('streams').replaceChildren(h('li', { class: 'empty' }, 'No request runs'));
}

const short = (id) => (id.length > 20 ? `${id.slice(0, 14)}…` : id);

function newRow(s, openWhy) {
  const target = svg('line', { class: 'limit', x1: 0, x2: samples, y1: 0, y2: 0 });
  const peak = svg('polyline', { class: 'peak', points: '' }), mean = svg('polyline', { class: 'mean', points: '' });
  const row = {
    history: [], target, peak, mean,
    chip: h('span', { class: 'chip' }), figure: h('span', { class: 'figure' }), itl: h('span', { class: 'itl' }),
    bar: h('i'),
  };
  row.meter = h('span', { class: 'meter', 'aria-hidden': 'true' }, row.bar);
  row.graph = svg('svg', { viewBox: `0 0 ${samples} 30`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, target, peak, mean);
  const who = me.operator && s.uid !== me.uid ? ` · uid ${s.uid}` : '';
  row.root = h('li', null, h('button', { class: 'stream', title: `${s.request}: why?`, onclick: () => openWhy(`#${s.number}`) },
    row.chip, h('span', { class: 'name' }, `#${s.number} ${short(s.request)}${who}`), row.figure,
    h('span', { class: 'graph' }, row.graph, row.meter), row.itl));
  const empty = $('streams').querySelector('.empty');
  if (empty) empty.remove();
  $('streams').append(row.root);
  return row;
}

function show(row, s) {
  row.root.dataset.state = s.state;
  setText(row.chip, names[s.state] || s.state);
  const reading = s.state === 'prefill' || s.state === 'queued' || s.state === 'parked';
  row.meter.hidden = !reading;
  row.graph.style.display = reading ? 'none' : '';
  if (reading) {
    row.bar.style.width = `${Math.min(s.computed / Math.max(s.prompt, 1), 1) * 100}%`;
    setText(row.figure, `${number(s.computed)} of ${number(s.prompt)} tokens`);
    setText(row.itl, s.state === 'prefill' ? '' : s.reason.replaceAll('_', ' '));
    return;
  }
  setText(row.figure, `${number(s.tokens)} tokens${s.think ? `, ${number(s.think)} thought` : ''}`);
  if (s.gaps) {
    row.history.push({ mean: s.itl_mean_ms, max: s.itl_max_ms, late: s.late });
    if (row.history.length > samples) row.history.shift();
    setText(row.itl, `${ms(s.itl_mean_ms)} of ${ms(s.target_ms)}`);
    row.itl.classList.toggle('late', s.late > 0);
  }
  const highest = Math.max(...row.history.map((p) => p.max), 0.001);
  // The target is on the graph when the times come near it; otherwise it would press them flat.
  const scale = highest > s.target_ms / 4 ? Math.max(highest, s.target_ms) * 1.1 : highest * 1.3;
  const y = (v) => (29 - v / scale * 28).toFixed(1);
  const x0 = samples - row.history.length;
  const line = (key) => row.history.map((p, i) => `${x0 + i + 0.5},${y(p[key])}`).join(' ');
  row.peak.setAttribute('points', line('max'));
  row.mean.setAttribute('points', line('mean'));
  const ty = s.target_ms <= scale ? y(s.target_ms) : -5;
  row.target.setAttribute('y1', ty);
  row.target.setAttribute('y2', ty);
}
