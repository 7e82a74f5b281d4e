// The ribbon of steps. Each bar is a decode step: its width and height are its duration, its colours the shares of
// prompt, thinking and answers in it, by the server's cost model. It is drawn when an event comes, not on every frame: the
// browser shares its processors with the engine.

import { $, canvas2d, colors, ms, number, setText } from './dom.js';

const span = 15000;     // ms, from left to right
const height = 96, top = 14, bottom = 14;
const rateOver = 3000;  // ms, of the figures above the ribbon

let steps = [];         // {end, took, n, prompt, think, answer, probe}
let clock = { at: 0, seen: 0 };
let model = { b: 1, c: 4, target: 0 };
let cursor = -1;        // index of the step that is looked at
let timer = 0;

export function start() {
  const canvas = $('ribbon');
  canvas.addEventListener('pointermove', (e) => look(at(e.offsetX)));
  canvas.addEventListener('pointerleave', () => look(-1));
  canvas.addEventListener('blur', () => look(-1));
  canvas.addEventListener('keydown', (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!by || !steps.length) return;
    e.preventDefault();
    look(cursor < 0 ? steps.length - 1 : Math.min(Math.max(cursor + by, 0), steps.length - 1));
  });
  draw();
}

export function clear() {
  steps = [];
  look(-1);
}

export function cost(state) {
  model = { b: state.cost.b || 1, c: state.cost.c || 4, target: state.itl_target_ms };
}

export function take(event) {
  clock = { at: event.at_ms, seen: performance.now() };
  for (const [end, took, n, prompt, think, answer, probe] of event.steps || []) steps.push({ end, took, n, prompt, think, answer, probe });
  const old = steps.findIndex((s) => s.end > clock.at - span);
  if (old > 0) {
    steps.splice(0, old);
    if (cursor >= 0) cursor = Math.max(cursor - old, 0);
  } else if (old < 0) clear();
  draw();
}

const now = () => clock.at + Math.min(performance.now() - clock.seen, span);

function at(x) {
  const width = $('ribbon').clientWidth;
  const t = now() - span + x / width * span;
  let best = -1, distance = span / width * 6;
  steps.forEach((s, i) => {
    const d = Math.max(s.end - s.took - t, t - s.end, 0);
    if (d < distance) [best, distance] = [i, d];
  });
  return best;
}

function look(i) {
  const tip = $('ribbon-tip');
  cursor = i;
  tip.hidden = i < 0;
  if (i >= 0) {
    const s = steps[i];
    const kinds = [[s.prompt, 'prompt'], [s.think, 'thinking'], [s.answer, 'answer'], [s.probe, 'probe']];
    const parts = kinds.filter(([n]) => n).map(([n, kind]) => `${number(n)} ${kind}`);
    setText(tip, `${s.n > 1 ? `${s.n} steps, ${ms(s.took / s.n)} each` : `step of ${ms(s.took)}`}: ${parts.join(', ')} tokens`);
  }
  draw();
}

// draw paints the ribbon, and again each second until the last step has left it.
export function draw() {
  const canvas = $('ribbon');
  clearTimeout(timer);
  if (!canvas.clientWidth) return; // not on the screen
  const [prompt, think, answer, line, faint, late] = colors('prompt', 'think', 'answer', 'line', 'faint', 'late');
  const { c, width } = canvas2d(canvas, height);
  const from = now() - span;
  const x = (t) => (t - from) / span * width;
  const each = steps.map((s) => s.took / s.n).sort((a, b) => a - b);
  const highest = each.at(-1) || 0;
  // A rare long step goes through the top: the others would be flat beside it.
  const scale = Math.max(Math.min(highest, (each[Math.floor(each.length * 0.98)] || 0) * 2) * 1.1, 4);
  const base = height - bottom, room = base - top;
  c.fillStyle = line;
  c.fillRect(0, base, width, 1);
  steps.forEach((s, i) => {
    const tall = Math.max(Math.min(s.took / s.n / scale, 1) * room, 1.5);
    const x0 = x(s.end - s.took), w = Math.max(x(s.end) - x0 - 0.4, 0.8);
    const shares = [[s.prompt * model.b, prompt], [(s.think + s.probe) * model.c, think], [s.answer * model.c, answer]];
    const all = shares.reduce((sum, [n]) => sum + n, 0) || 1;
    let y = base;
    c.globalAlpha = cursor < 0 || cursor === i ? 1 : 0.45;
    for (const [n, color] of shares) {
      if (!n) continue;
      const part = n / all * tall;
      c.fillStyle = color;
      c.fillRect(x0, y - part, w, part);
      y -= part;
    }
  });
  c.globalAlpha = 1;
  c.font = '11px system-ui, sans-serif';
  c.fillStyle = faint;
  c.textBaseline = 'alphabetic';
  c.fillText(`${span / 1000} s ago`, 0, height - 2);
  c.textAlign = 'right';
  c.fillText('now', width, height - 2);
  c.textAlign = 'left';
  if (highest) c.fillText(`${ms(highest)} longest step`, 0, 10);
  if (model.target && model.target <= scale) {
    const y = base - model.target / scale * room;
    c.strokeStyle = late;
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(0, y);
    c.lineTo(width, y);
    c.stroke();
    c.setLineDash([]);
  }
  rates();
  if (steps.length) timer = setTimeout(() => { prune(); draw(); }, 1000);
}

function prune() {
  const t = now() - span;
  if (steps.length && steps.at(-1).end < t) clear();
}

function rates() {
  const t = now();
  const sum = { prompt: 0, think: 0, answer: 0, took: 0, n: 0 };
  for (const s of steps) {
    if (s.end < t - rateOver) continue;
    for (const k of Object.keys(sum)) sum[k] += s[k];
  }
  const per = (n) => number(n / rateOver * 1000);
  const text = sum.n ? `${per(sum.prompt)} prompt, ${per(sum.think)} think, ${per(sum.answer)} answer tokens/s · ${ms(sum.took / sum.n)} a step` : 'idle';
  setText($('steps-rate'), text);
  $('ribbon').setAttribute('aria-label', `Decode steps of the last ${span / 1000} seconds: ${text}. Arrow keys go from step to step.`);
}
