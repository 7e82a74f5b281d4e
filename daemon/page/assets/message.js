// The view of a message: its text, its files, its facts, and its buttons.

import { announce, bytes, h, ms, number, setText } from './dom.js';
import { Markdown } from './markdown.js';
import { thumb } from './picture.js';
import * as tools from './tools.js';

// branches are the buttons to the messages that stand in the same place; null where there is one alone.
function branches(on) {
  if (on.count < 2) return null;
  const step = (by, text, label) => h('button', {
    type: 'button', class: 'quiet turn', 'aria-label': label, disabled: on.place + by < 0 || on.place + by >= on.count,
    onclick: () => on.turn(by),
  }, text);
  return h('span', { class: 'branches', role: 'group', 'aria-label': `Branch ${on.place + 1} of ${on.count}` },
    step(-1, '‹', 'Earlier branch'), `${on.place + 1} / ${on.count}`, step(1, '›', 'Later branch'));
}

function userView(message, on) {
  const text = h('div', { class: 'body' }, message.content || ' ');
  const files = (message.files || []).map((f) => h('li', null, f.image ? thumb(f) : null, h('span', null, f.name),
    h('span', { class: 'figure' }, bytes((f.image || f.sound || f.text).length))));
  const edit = h('button', { type: 'button', class: 'quiet edit', onclick: () => editor() }, 'Edit');
  const foot = h('footer', null, branches(on), edit);
  const root = h('article', { class: 'message user', 'aria-label': 'You', 'data-message': on.index }, text,
    files.length ? h('ul', { class: 'files', 'aria-label': 'Files' }, ...files) : null, foot);
  function editor() {
    if (on.busy()) return;
    const area = h('textarea', { rows: 3, 'aria-label': 'Edit the message' });
    area.value = message.content;
    const close = () => { form.replaceWith(text); foot.hidden = false; edit.focus(); };
    const form = h('form', { class: 'edit-form', onsubmit: (e) => { e.preventDefault(); on.edit(area.value); } }, area,
      h('div', { class: 'row' }, h('button', { type: 'button', onclick: close }, 'Cancel'),
        h('button', { class: 'strong', type: 'submit' }, 'Ask')));
    area.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') { e.stopPropagation(); close(); }
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); on.edit(area.value); }
    });
    text.replaceWith(form);
    foot.hidden = true;
    area.focus();
  }
  return { root };
}

// messageView is the nodes of a message: root, and what changes while an answer comes. on has its place among the
// branches, and what its buttons do.
export function messageView(message, on) {
  if (message.role === 'user') return userView(message, on);
  const thoughtText = h('div', { class: 'thought-text' });
  const summary = h('summary');
  const thought = h('details', { class: 'thought', hidden: true }, summary, thoughtText);
  const text = h('div', { class: 'body markdown' });
  const calls = h('div', { class: 'calls', hidden: true });
  const foot = h('footer');
  const root = h('article', { class: 'message assistant', 'aria-label': 'Answer', 'data-message': on.index }, thought, calls, text, foot);
  const markdown = new Markdown(text);
  let shown = '[]'; // the calls
  const view = {
    root,
    wait(what) { foot.replaceChildren(h('span', { class: 'wait' }, what)); },
    show(m, ended) {
      if (m.thought) {
        thought.hidden = false;
        const thinking = !m.content && !ended;
        thought.classList.toggle('live', thinking);
        const last = m.thought.trimEnd().split('\n').at(-1).slice(-120);
        const size = m.stats && m.stats.think ? `, ${number(m.stats.think)} tokens` : '';
        setText(summary, thinking ? `Thinking: ${last}` : `Thought for ${ms(m.thoughtMs || 0)}${size}`);
        setText(thoughtText, m.thought);
      }
      const now = JSON.stringify(m.calls || []);
      if (now !== shown) {
        shown = now;
        calls.hidden = !m.calls;
        calls.replaceChildren(...tools.view(m, on.consent));
      }
      markdown.update(m.content);
      if (!ended) foot.replaceChildren();
      else foot.replaceChildren(...footer(m, on));
    },
  };
  view.show(message, true);
  return view;
}

function footer(m, on) {
  const out = [];
  if (m.error) out.push(h('p', { class: 'error', role: 'alert' }, m.error));
  const facts = [];
  if (m.note) facts.push(m.note);
  if (m.finish === 'length') facts.push('reached its limit');
  const s = m.stats;
  if (s && s.tokens) facts.push(`${number(s.tokens)} tokens`, `${number(s.rate)} tokens/s`, `first after ${ms(s.ttft)}`);
  if (s && s.cached) facts.push(`${number(s.cached)} of ${number(s.prompt)} prompt tokens cached`);
  if (facts.length) out.push(h('span', { class: 'facts' }, facts.join(' · ')));
  const copy = h('button', { type: 'button', class: 'quiet', onclick: async () => {
    await navigator.clipboard.writeText(m.content);
    announce('Copied');
  } }, 'Copy');
  out.push(h('span', { class: 'actions' }, branches(on),
    m.content ? copy : null,
    h('button', { type: 'button', class: 'quiet retry', onclick: on.retry }, 'Retry'),
    m.request ? h('button', { type: 'button', class: 'quiet', onclick: () => on.why(m.request) }, 'Why') : null));
  return out;
}
