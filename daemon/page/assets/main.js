// Boot: theme, views, keys, and the parts of the page.

import { $, setText } from './dom.js';
import * as attach from './attach.js';
import * as capture from './capture.js';
import * as chat from './chat.js';
import * as chats from './chats.js';
import * as live from './live.js';
import * as machine from './machine.js';
import * as models from './models.js';
import * as tools from './tools.js';
import * as why from './why.js';

const themes = ['system', 'light', 'dark'];

function setTheme(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $('theme').title = `Theme: ${theme}`;
  $('theme').setAttribute('aria-label', `Theme: ${theme}`);
  setText($('theme'), { system: '◐', light: '☀', dark: '☾' }[theme]);
  try { localStorage.setItem('uma.theme', theme); } catch { /* no storage */ }
  machine.repaint();
}

function setView(view) {
  document.body.dataset.view = view;
  for (const name of ['chat', 'machine']) $(`view-${name}`).setAttribute('aria-selected', String(name === view));
  machine.repaint();
}

// actions are the keys with Alt.
const actions = {
  KeyN: chat.fresh, KeyR: chat.retry, KeyE: chat.editLast, KeyA: attach.open, KeyO: models.open, KeyH: chats.openList,
  KeyS: chats.openSettings, KeyT: turnTheme, KeyC: () => capture.press('camera'), KeyV: () => capture.press('microphone'),
  KeyM: () => setView(document.body.dataset.view === 'chat' ? 'machine' : 'chat'),
};

function turnTheme() {
  const now = document.documentElement.dataset.theme || 'system';
  setTheme(themes[(themes.indexOf(now) + 1) % themes.length]);
}

function keys(e) {
  const typing = e.target.matches('input, textarea, select');
  if (e.key === 'Escape' && chat.busy() && !document.querySelector('dialog[open]')) { chat.stop(); return e.preventDefault(); }
  if (e.ctrlKey && e.key === '\\') { chat.endThink(); return e.preventDefault(); }
  if (e.altKey && !e.ctrlKey && !e.metaKey) {
    const act = actions[e.code];
    if (act && !document.querySelector('dialog[open]')) { act(); return e.preventDefault(); }
  }
  if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return undefined;
  if (e.key === '/') { setView('chat'); $('prompt').focus(); return e.preventDefault(); }
  if (e.key === '?') { $('help').showModal(); return e.preventDefault(); }
  return undefined;
}

function boot() {
  let theme = 'system';
  try { theme = localStorage.getItem('uma.theme') || theme; } catch { /* no storage */ }
  setTheme(themes.includes(theme) ? theme : 'system');
  $('theme').addEventListener('click', turnTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', machine.repaint);
  for (const name of ['chat', 'machine']) $(`view-${name}`).addEventListener('click', () => setView(name));
  $('help-open').addEventListener('click', () => $('help').showModal());
  for (const dialog of document.querySelectorAll('dialog')) {
    dialog.querySelector('[data-close]').addEventListener('click', () => dialog.close());
    dialog.addEventListener('click', (e) => { if (e.target === dialog) dialog.close(); });
  }
  document.addEventListener('keydown', keys);
  models.start();
  attach.start();
  chat.start();
  chats.start();
  machine.start();
  chat.onWhy(why.open);
  machine.onWhy(why.open);
  let loaded = false;
  live.start({
    hello: machine.hello,
    live: (event) => {
      machine.take(event);
      const status = event.state && event.state.status;
      if (!status) return;
      $('status').dataset.state = status;
      setText($('status'), status === 'loading' ? `loading ${Math.round(event.state.load_progress * 100)} %` : status);
      if (status !== 'loading' && !loaded) { loaded = true; models.load(); }
    },
    lost: () => {
      loaded = false;
      $('status').dataset.state = 'lost';
      setText($('status'), 'no connection');
    },
  });
  models.load();
  tools.load();
  if (matchMedia('(pointer: fine)').matches) $('prompt').focus();
}

boot();
