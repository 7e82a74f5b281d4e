// The dialogs of stored chats and of settings.

import { $, h } from './dom.js';
import * as chat from './chat.js';
import * as store from './store.js';

export function start() {
  $('chats-open').addEventListener('click', () => { show(); $('chats').showModal(); });
  $('chats-clear').addEventListener('click', () => {
    if (!window.confirm('Delete every chat that this browser stores?')) return;
    for (const c of store.list()) store.remove(c.id);
    chat.open(store.newChat());
    $('chats').close();
  });
  $('new').addEventListener('click', chat.fresh);
  $('settings-open').addEventListener('click', () => { fill(); $('settings').showModal(); });
  $('settings-form').addEventListener('input', keep);
  $('settings-form').addEventListener('submit', (e) => { e.preventDefault(); $('settings').close(); });
}

function show() {
  const rows = store.list().map((c) => h('li', null,
    h('button', { class: 'quiet open', 'aria-current': c.id === chat.current() ? 'true' : null, onclick: () => {
      const stored = store.load(c.id);
      if (stored) chat.open(stored);
      $('chats').close();
    } }, h('span', null, c.title || 'Untitled'), h('time', null, when(c.at))),
    h('button', { class: 'icon', 'aria-label': `Delete ${c.title}`, onclick: () => {
      store.remove(c.id);
      if (c.id === chat.current()) chat.open(store.newChat());
      show();
    } }, '✕')));
  $('chat-list').replaceChildren(...rows.length ? rows : [h('li', { class: 'empty' }, 'No chats yet')]);
}

function when(at) {
  const d = new Date(at), today = new Date();
  return d.toDateString() === today.toDateString() ? d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) :
    d.toLocaleDateString([], { day: 'numeric', month: 'short' });
}

function fill() {
  const s = store.settings();
  for (const field of $('settings-form').elements) if (field.name) field.value = s[field.name] ?? '';
}

// keep stores the fields that are valid; the others stay as they were.
function keep() {
  const s = store.settings();
  for (const field of $('settings-form').elements) if (field.name && field.checkValidity()) s[field.name] = field.value;
  store.saveSettings(s);
}
