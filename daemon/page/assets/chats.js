// The dialogs of stored chats and of a chat's settings.

import { $, announce, h } from './dom.js';
import * as chat from './chat.js';
import * as store from './store.js';
import * as tools from './tools.js';
import * as transfer from './transfer.js';

const searchAfter = 150; // ms without a key

export function start() {
  let timer = 0;
  $('chats-open').addEventListener('click', openList);
  $('chats-search').addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(show, searchAfter); });
  $('chats-clear').addEventListener('click', () => {
    if (!window.confirm('Delete every chat that this browser stores?')) return;
    chat.open(store.newChat());
    for (const c of store.list()) store.remove(c.id);
    $('chats').close();
  });
  $('chats-export').addEventListener('click', () => keepFile(store.list().map((c) => store.load(c.id)).filter(Boolean), 'chats'));
  $('chats-import').addEventListener('click', () => $('chats-file').click());
  $('chats-file').addEventListener('change', take);
  $('new').addEventListener('click', chat.fresh);
  $('settings-open').addEventListener('click', openSettings);
  $('settings-form').addEventListener('input', keep);
  $('settings-form').addEventListener('submit', (e) => { e.preventDefault(); $('settings').close(); });
  $('settings-default').addEventListener('click', () => {
    store.saveSettings(chat.now().settings);
    say('settings-note', 'New chats begin with these settings.');
  });
  $('settings-reset').addEventListener('click', () => {
    chat.now().settings = {};
    store.save(chat.now());
    fill();
    say('settings-note', 'This chat has the settings of the server.');
  });
}

function say(id, text) {
  $(id).textContent = text;
  announce(text);
}

// openList shows the stored chats.
export function openList() {
  $('chats-search').value = '';
  say('chats-note', '');
  show();
  $('chats').showModal();
  if (matchMedia('(pointer: fine)').matches) $('chats-search').focus();
}

function keepFile(chats, name) {
  if (!chats.length) return say('chats-note', 'There is no chat to export.');
  transfer.save(`uma-serve-${name}-${new Date().toISOString().slice(0, 10)}.json`, transfer.write(chats));
  return say('chats-note', `Exported: ${chats.length} chat${chats.length === 1 ? '' : 's'}.`);
}

// take imports a file: the chats that are in it are added, none is replaced.
async function take() {
  const [file] = $('chats-file').files;
  $('chats-file').value = '';
  if (!file) return;
  try {
    if (file.size > transfer.maxFile) throw new Error(`the file has ${file.size} bytes; at most ${transfer.maxFile} are read`);
    const chats = transfer.read(await file.text());
    const known = new Set(store.list().map((c) => `${c.at} ${c.title}`));
    const fresh = chats.filter((c) => !known.has(`${c.at} ${c.title}`));
    let stored = 0;
    while (stored < fresh.length && store.put(fresh[stored])) stored++;
    const parts = [`Imported: ${stored} chat${stored === 1 ? '' : 's'}.`];
    if (fresh.length < chats.length) parts.push(`${chats.length - fresh.length} are here already.`);
    if (stored < fresh.length) parts.push(`No room for ${fresh.length - stored} more: delete chats first (at most ${store.maxChats} are kept).`);
    say('chats-note', parts.join(' '));
  } catch (e) {
    say('chats-note', `Not imported: ${e.message}.`);
  }
  show();
}

// found returns where a chat has the words, null where it has not: the piece of text around the first place.
function found(c, words) {
  if (!words || c.title.toLowerCase().includes(words)) return '';
  for (const m of store.load(c.id)?.messages ?? []) {
    const at = m.content.toLowerCase().indexOf(words);
    if (at >= 0) return `${at > 30 ? '…' : ''}${m.content.slice(Math.max(at - 30, 0), at + words.length + 50).replace(/\s+/g, ' ')}`;
  }
  return null;
}

function show() {
  const words = $('chats-search').value.trim().toLowerCase();
  const rows = [];
  for (const c of store.list()) {
    const piece = found(c, words);
    if (piece === null) continue;
    rows.push(h('li', null,
      h('button', { class: 'quiet open', 'aria-current': c.id === chat.current() ? 'true' : null, onclick: () => {
        const stored = store.load(c.id);
        if (stored) chat.open(stored);
        $('chats').close();
      } }, h('span', { class: 'what' }, c.title || 'Untitled', piece ? h('small', null, piece) : null), h('time', null, when(c.at))),
      h('button', { class: 'icon', title: 'Export', 'aria-label': `Export ${c.title}`,
        onclick: () => keepFile([store.load(c.id)].filter(Boolean), 'chat') }, '↓'),
      h('button', { class: 'icon', title: 'Delete', 'aria-label': `Delete ${c.title}`, onclick: () => {
        if (c.id === chat.current()) chat.open(store.newChat());
        store.remove(c.id);
        show();
      } }, '✕')));
  }
  $('chat-list').replaceChildren(...rows.length ? rows : [h('li', { class: 'empty' }, words ? 'No chat has these words' : 'No chats yet')]);
}

function when(at) {
  const d = new Date(at), today = new Date();
  return d.toDateString() === today.toDateString() ? d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) :
    d.toLocaleDateString([], { day: 'numeric', month: 'short' });
}

// openSettings shows the settings of the chat on the screen.
export function openSettings() {
  fill();
  say('settings-note', '');
  $('settings').showModal();
}

function fill() {
  const s = chat.now().settings;
  for (const field of $('settings-form').elements) if (field.name) field.value = s[field.name] ?? '';
  tools.fill(s, (names) => { s.tools = names; store.save(chat.now()); });
}

// keep stores the fields that are valid; the others stay as they were.
function keep() {
  const s = chat.now().settings;
  for (const field of $('settings-form').elements) if (field.name && field.checkValidity()) s[field.name] = field.value;
  store.save(chat.now());
}
