// The map of the KV pool: squares, each a share of its cells, coloured by tier, owner or sharing. Cells that several
// sequences hold are hatched.

import { $, canvas2d, colors, h, number } from './dom.js';

const square = 9, gap = 2, rows = 9;

const tierNames = { prefix: 'prompt', cached: 'cached prefix', think_active: 'thinking', think_complete: 'thought', output_critical: 'answer' };
const useNames = { own: 'one request', shared: 'shared', cached: 'cached, evictable', pinned: 'pinned' };
const tierColors = { prefix: 'prompt', cached: 'prefix', think_active: 'think', think_complete: 'thought', output_critical: 'answer' };
const useColors = { own: 'answer', shared: 'prompt', cached: 'prefix', pinned: 'late' };

let pool = { total: 0, free: 0, parts: [] };
let by = 'tier';
let me = { uid: -1 };
let owners = []; // uids in the order in which they were first seen, for stable colours
let legend = '';

export function viewer(hello) { me = hello; }

export function start() {
  const buttons = [...document.querySelectorAll('.segments [data-by]')];
  const choose = (button) => {
    by = button.dataset.by;
    for (const b of buttons) { b.setAttribute('aria-checked', String(b === button)); b.tabIndex = b === button ? 0 : -1; }
    draw();
  };
  buttons.forEach((button, i) => {
    button.addEventListener('click', () => choose(button));
    button.addEventListener('keydown', (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step) return;
      const next = buttons[(i + step + buttons.length) % buttons.length];
      next.focus();
      choose(next);
    });
  });
}

export function take(next) {
  pool = next;
  for (const p of pool.parts) if (p.uid >= 0 && !owners.includes(p.uid)) owners.push(p.uid);
  draw();
}

// tierOf tells a running request's prompt from a prefix that only the cache holds.
const tierOf = (p) => (p.tier === 'prefix' && p.use !== 'own' && p.use !== 'shared' ? 'cached' : p.tier);

// group is what a part is coloured by: {key, name, color}.
function group(p) {
  if (by === 'use') return { key: p.use, name: useNames[p.use], color: useColors[p.use] };
  if (by === 'owner') {
    if (p.uid < 0) return { key: 'others', name: 'other users', color: 'faint' };
    return { key: p.uid, name: p.uid === me.uid ? 'you' : `uid ${p.uid}`, color: `owner-${owners.indexOf(p.uid) % 6}` };
  }
  const tier = tierOf(p);
  return { key: tier, name: tierNames[tier] || tier, color: tierColors[tier] || 'prefix' };
}

const hatched = (p) => p.use === 'shared' || p.holders > 1;

export function draw() {
  const canvas = $('pool');
  if (!canvas.clientWidth) return;
  const columns = Math.max(Math.floor((canvas.clientWidth + gap) / (square + gap)), 1);
  const height = rows * (square + gap);
  canvas.style.height = `${height}px`;
  const { c } = canvas2d(canvas, height);
  const [empty, ink] = colors('empty', 'surface');
  const total = columns * rows;
  const shade = new Map();
  const color = (name) => shade.get(name) || shade.set(name, colors(name)[0]).get(name);
  let next = 0;
  const paint = (fill, hatch) => {
    // Columns first: what belongs together is a block, not a line.
    const x = Math.floor(next / rows) * (square + gap), y = next % rows * (square + gap);
    next++;
    c.fillStyle = fill;
    c.beginPath();
    c.roundRect(x, y, square, square, 2);
    c.fill();
    if (!hatch) return;
    c.strokeStyle = ink;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(x + 1, y + square - 1);
    c.lineTo(x + square - 1, y + 1);
    c.stroke();
  };
  for (const p of order()) {
    const n = Math.max(Math.round(p.cells / Math.max(pool.total, 1) * total), 1); // what is small is seen, too
    for (let i = 0; i < n && next < total; i++) paint(color(group(p).color), hatched(p));
  }
  while (next < total) paint(empty, false);
  legends(color);
}

// order puts running requests first, oldest first, then what is cached.
function order() {
  const running = (p) => p.use === 'own' || p.use === 'shared';
  const rank = { prefix: 0, think_complete: 1, think_active: 2, output_critical: 3 };
  return [...pool.parts].sort((a, b) => running(b) - running(a) || (a.number || 0) - (b.number || 0) || a.uid - b.uid || rank[a.tier] - rank[b.tier]);
}

function legends() {
  const sums = new Map();
  let shared = 0;
  for (const p of pool.parts) {
    const g = group(p);
    const sum = sums.get(g.key) || { ...g, cells: 0 };
    sum.cells += p.cells;
    sums.set(g.key, sum);
    if (hatched(p)) shared += p.cells;
  }
  const items = [...sums.values()].map((g) => [g.color, g.name, g.cells]);
  if (by !== 'use' && shared) items.push(['hatch', 'of these shared', shared]);
  items.push(['empty', 'free', pool.free]);
  const text = items.map(([, name, cells]) => `${name} ${number(cells)}`).join(', ');
  if (text === legend) return;
  legend = text;
  $('pool-legend').replaceChildren(...items.map(([color, name, cells]) => h('li', { class: color }, `${name} `, h('b', null, number(cells)))));
  $('pool').setAttribute('aria-label', `KV pool of ${number(pool.total)} cells: ${text}`);
}
