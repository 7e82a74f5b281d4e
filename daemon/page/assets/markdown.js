// Markdown of a model's answer, as DOM nodes. The model's text reaches the page only as text nodes and as the address of
// links that are http, https or mailto; images become links, because the page fetches nothing. The parser is linear: what
// has no end is looked for once.

import { h } from './dom.js';
import { inline } from './inline.js';

const maxDepth = 8; // of lists and quotations in each other

// Markdown shows a growing text in root. Blocks that have not changed keep their nodes, and with them the user's selection.
export class Markdown {
  constructor(root) {
    this.root = root;
    this.shown = [];
  }

  update(text) {
    const next = blocks(text.split('\n'), 0);
    let same = 0;
    while (same < this.shown.length && same < next.length && this.shown[same].source === next[same].source &&
      this.shown[same].kind === next[same].kind) same++;
    for (const b of this.shown.splice(same)) b.node.remove();
    for (const b of next.slice(same)) {
      b.node = node(b);
      this.root.append(b.node);
      this.shown.push(b);
    }
  }
}

// render returns the nodes of a whole text.
export const render = (text) => blocks(text.split('\n'), 0).map(node);

const fence = (line) => {
  const m = /^ {0,3}(```+|~~~+)([^`]*)$/.exec(line);
  return m && { mark: m[1], lang: m[2].trim().split(/\s+/)[0] };
};
const closes = (line, mark) => {
  const t = line.trim();
  return t.length >= mark.length && t[0] === mark[0] && [...t].every((c) => c === mark[0]);
};
const heading = (line) => {
  const m = /^ {0,3}(#{1,6})(?:\s+|$)/.exec(line);
  return m && { level: m[1].length, text: line.slice(m[0].length).replace(/\s+#{1,}\s*$/, '').trim() };
};
const rule = (line) => /^ {0,3}[-*_]/.test(line) && /^(?:(?:\s*-){3,}|(?:\s*\*){3,}|(?:\s*_){3,})\s*$/.test(line.slice(0, 200));
const quoted = (line) => /^ {0,3}>/.test(line);
const item = (line) => {
  const m = /^(\s{0,12})([-*+]|\d{1,9}[.)])(?:\s+|$)/.exec(line);
  return m && { indent: m[1].length, mark: m[2], from: m[0].length };
};
const blank = (line) => line.trim() === '';
const indent = (line) => line.length - line.trimStart().length;
const divider = (line) => line.length < 2000 && line.includes('-') && line.includes('|') && /^[\s|:-]+$/.test(line);

// blocks divides lines into {kind, source, …}; source is what the block was made of.
function blocks(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    const from = i;
    if (blank(lines[i])) { i++; continue; }
    const b = blockAt(lines, i, depth);
    i = b.next;
    b.source = lines.slice(from, i).join('\n');
    out.push(b);
  }
  return out;
}

function blockAt(lines, i, depth) {
  const line = lines[i];
  const f = fence(line);
  if (f) {
    let end = i + 1;
    while (end < lines.length && !closes(lines[end], f.mark)) end++;
    return { kind: 'code', lang: f.lang, text: lines.slice(i + 1, end).join('\n'), next: Math.min(end + 1, lines.length) };
  }
  const head = heading(line);
  if (head) return { kind: 'heading', ...head, next: i + 1 };
  if (rule(line)) return { kind: 'rule', next: i + 1 };
  if (quoted(line) && depth < maxDepth) {
    let end = i;
    while (end < lines.length && quoted(lines[end])) end++;
    const inner = lines.slice(i, end).map((l) => l.replace(/^ {0,3}> ?/, ''));
    return { kind: 'quote', blocks: blocks(inner, depth + 1), next: end };
  }
  if (item(line) && depth < maxDepth) return list(lines, i, depth);
  if (line.includes('|') && i + 1 < lines.length && divider(lines[i + 1])) return table(lines, i);
  let end = i + 1;
  while (end < lines.length && !blank(lines[end]) && !fence(lines[end]) && !heading(lines[end]) && !quoted(lines[end]) && !item(lines[end])) end++;
  return { kind: 'text', text: lines.slice(i, end).map((l) => l.trimStart()).join('\n'), next: end };
}

// list takes items of one level; what is indented below an item belongs to it.
function list(lines, i, depth) {
  const first = item(lines[i]);
  const ordered = /\d/.test(first.mark);
  const items = [];
  while (i < lines.length) {
    const it = item(lines[i]);
    if (!it || it.indent > first.indent + 1 || /\d/.test(it.mark) !== ordered || rule(lines[i])) break;
    const inner = [lines[i].slice(it.from)];
    for (i++; i < lines.length; i++) {
      if (blank(lines[i])) {
        let next = i;
        while (next < lines.length && blank(lines[next])) next++;
        if (next === lines.length || indent(lines[next]) < Math.min(it.from, it.indent + 2)) break;
        inner.push('');
        continue;
      }
      const deep = indent(lines[i]) >= Math.min(it.from, it.indent + 2);
      if (!deep && (item(lines[i]) || heading(lines[i]) || fence(lines[i]) || quoted(lines[i]))) break;
      inner.push(deep ? lines[i].slice(Math.min(indent(lines[i]), it.from)) : lines[i]);
    }
    items.push(blocks(inner, depth + 1));
    let next = i;
    while (next < lines.length && blank(lines[next])) next++;
    if (next === lines.length || !item(lines[next])) break;
    i = next;
  }
  return { kind: 'list', ordered, start: ordered ? parseInt(first.mark, 10) : 1, items, next: i };
}

const cells = (line) => {
  const out = [];
  let cell = '';
  const t = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < t.length; i++) {
    if (t[i] === '\\' && t[i + 1] === '|') { cell += '|'; i++; } else if (t[i] === '|') { out.push(cell.trim()); cell = ''; } else cell += t[i];
  }
  return [...out, cell.trim()];
};

function table(lines, i) {
  const align = cells(lines[i + 1]).map((c) => (c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : 'left'));
  let end = i + 2;
  while (end < lines.length && !blank(lines[end]) && lines[end].includes('|')) end++;
  return { kind: 'table', align, head: cells(lines[i]), rows: lines.slice(i + 2, end).map(cells), next: end };
}

function node(b) {
  switch (b.kind) {
    case 'heading': return h(`h${Math.min(Math.max(b.level + 1, 3), 6)}`, null, ...inline(b.text)); // below the page's own h1 and h2
    case 'rule': return h('hr');
    case 'quote': return h('blockquote', null, ...b.blocks.map(node));
    case 'code': return code(b);
    case 'table': return h('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table' }, h('table', null,
      h('thead', null, h('tr', null, ...b.head.map((c, i) => cell('th', c, b.align[i])))),
      h('tbody', null, ...b.rows.map((r) => h('tr', null, ...b.head.map((_, i) => cell('td', r[i] || '', b.align[i])))))));
    case 'list': return h(b.ordered ? 'ol' : 'ul', b.ordered && b.start !== 1 ? { start: b.start } : null, ...b.items.map(listItem));
    default: return h('p', null, ...inline(b.text));
  }
}

const cell = (tag, text, align) => h(tag, { class: align === 'left' ? null : align }, ...inline(text));

// listItem shows a lone paragraph without its element, so that a list without blank lines is tight.
function listItem(inner) {
  const [first, ...rest] = inner;
  if (!first || first.kind !== 'text') return h('li', null, ...inner.map(node));
  const task = /^\[([ xX])\]\s+/.exec(first.text);
  if (!task) return h('li', null, ...inline(first.text), ...rest.map(node));
  const box = h('input', { type: 'checkbox', disabled: true, checked: task[1] !== ' ', 'aria-label': task[1] === ' ' ? 'open' : 'done' });
  return h('li', { class: 'task' }, box, ' ', ...inline(first.text.slice(task[0].length)), ...rest.map(node));
}

function code(b) {
  const text = h('code', null, b.text);
  const copy = h('button', { class: 'copy', type: 'button', onclick: async () => {
    await navigator.clipboard.writeText(b.text);
    copy.textContent = 'Copied';
    setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
  } }, 'Copy');
  return h('figure', { class: 'code' }, h('figcaption', null, h('span', null, b.lang || 'text'), copy),
    h('pre', { tabindex: 0 }, text));
}
