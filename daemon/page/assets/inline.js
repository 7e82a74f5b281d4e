// The inside of a paragraph: emphasis, code, links.

import { h } from './dom.js';

const maxDepth = 6; // of emphasis in each other
const maxLabel = 1000, maxURL = 2000;
const maxTries = 32; // ends that are looked at for one beginning: a text of marks alone stays linear
const punctuation = '\\`*_{}[]()#+-.!|~>"<&';

// inline returns the nodes of a text.
export function inline(text, depth = 0) {
  const out = [];
  const none = new Set(); // marks that have no end in what is left
  let plain = '';
  const flush = () => { if (plain) { out.push(plain); plain = ''; } };
  const put = (node, next) => { flush(); out.push(node); return next; };
  for (let i = 0; i < text.length;) {
    i = at(i);
  }
  flush();
  return out;

  function at(i) {
    const c = text[i];
    if (c === '\\' && i + 1 < text.length) {
      if (text[i + 1] === '\n') return put(h('br'), i + 2);
      if (punctuation.includes(text[i + 1])) { plain += text[i + 1]; return i + 2; }
    }
    if (c === '\n') { plain = plain.trimEnd(); return put(h('br'), i + 1); }
    const next = c === '`' ? code(i) : c === '[' || c === '!' ? link(i) : c === '<' ? auto(i) : c === 'h' ? bare(i) :
      c === '*' || c === '_' || c === '~' ? emphasis(i) : 0;
    if (next) return next;
    if (c === '`' || c === '*' || c === '_' || c === '~') { // a run without an end is text
      let end = i;
      while (text[end] === c) end++;
      plain += text.slice(i, end);
      return end;
    }
    plain += c;
    return i + 1;
  }

  // find looks for mark from position from on; what is not found once is not looked for again.
  function find(mark, from) {
    if (none.has(mark)) return -1;
    const end = text.indexOf(mark, from);
    if (end < 0) none.add(mark);
    return end;
  }

  function code(i) {
    let n = 1;
    while (text[i + n] === '`') n++;
    const mark = '`'.repeat(n);
    for (let end = find(mark, i + n), tries = 0; end >= 0 && tries < maxTries; end = find(mark, end), tries++) {
      let m = n;
      while (text[end + m] === '`') m++;
      if (m === n) {
        let inside = text.slice(i + n, end).replaceAll('\n', ' ');
        if (inside.startsWith(' ') && inside.endsWith(' ') && inside.trim()) inside = inside.slice(1, -1);
        return put(h('code', null, inside), end + n);
      }
      end += m;
    }
    return 0;
  }

  function link(i) {
    const image = text[i] === '!';
    const from = image ? i + 2 : i + 1;
    if (image && text[i + 1] !== '[') return 0;
    let level = 1, end = from;
    for (; end < text.length && end - from < maxLabel; end++) {
      if (text[end] === '\\') end++;
      else if (text[end] === '[') level++;
      else if (text[end] === ']' && --level === 0) break;
    }
    if (level !== 0 || text[end + 1] !== '(') return 0;
    let close = end + 2, parens = 1;
    for (; close < text.length && close - end < maxURL; close++) {
      if (text[close] === '(') parens++;
      else if (text[close] === ')' && --parens === 0) break;
      else if (text[close] === '\n') return 0;
    }
    if (parens !== 0) return 0;
    const target = text.slice(end + 2, close).trim().replace(/^<|>$/g, '').split(/\s+["'(]/)[0];
    const label = text.slice(from, end);
    return put(anchor(target, image || depth >= maxDepth ? [label || target] : inline(label, depth + 1)), close + 1);
  }

  function auto(i) {
    const end = text.slice(i, i + maxURL).indexOf('>');
    if (end < 0) return 0;
    const url = text.slice(i + 1, i + end);
    return /^(https?:\/\/|mailto:)\S+$/.test(url) ? put(anchor(url, [url]), i + end + 1) : 0;
  }

  function bare(i) {
    if (i > 0 && /[\w/]/.test(text[i - 1]) || !/^https?:\/\//.test(text.slice(i, i + 8))) return 0;
    const m = /^[^\s<>"`]+/.exec(text.slice(i, i + maxURL))[0].replace(/[.,;:!?'*_]+$/, '');
    const url = m.endsWith(')') && !m.includes('(') ? m.slice(0, -1) : m;
    return url.length > 8 ? put(anchor(url, [url]), i + url.length) : 0;
  }

  function emphasis(i) {
    const c = text[i];
    let n = 1;
    while (n < 3 && text[i + n] === c) n++;
    if (c === '~' && n < 2 || depth >= maxDepth) return 0;
    if (c === '~') n = 2;
    const mark = c.repeat(n);
    const after = text[i + n];
    if (after === undefined || /\s/.test(after) || c === '_' && /\w/.test(text[i - 1] || ' ')) return 0;
    for (let end = find(mark, i + n + 1), tries = 0; end >= 0 && tries < maxTries; end = find(mark, end + n), tries++) {
      const longer = text[end + n] === c && n < 3;
      if (/\s/.test(text[end - 1]) || longer && n === 1 || c === '_' && /\w/.test(text[end + n] || ' ')) {
        if (longer) end++;
        continue;
      }
      const at = longer ? end + 1 : end; // **a *b*** ends with its last two
      const inner = inline(text.slice(i + n, at), depth + 1);
      if (c === '~') return put(h('del', null, ...inner), at + n);
      if (n === 3) return put(h('strong', null, h('em', null, ...inner)), at + n);
      return put(h(n === 2 ? 'strong' : 'em', null, ...inner), at + n);
    }
    return 0;
  }
}

// anchor is a link that leaves the page; an address that is none stays text.
function anchor(target, children) {
  let url;
  try { url = new URL(target); } catch { /* relative, or none */ }
  if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return h('span', null, ...children);
  return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: url.href }, ...children);
}
