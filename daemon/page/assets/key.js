// The API key of a server that wants one (--api-keys). This browser keeps it, and every request has it.

import { $ } from './dom.js';

const stored = 'uma.key';
let key = '';
try { key = localStorage.getItem(stored) || ''; } catch { /* no storage */ }
let asking = null;    // the promise of the open dialog: whether there is another key
let declined = false; // the user has closed it: not asked again until the page is loaded again

// ask is fetch with the key. A server that refuses it has the user asked for another one.
export async function ask(path, init = {}) {
  for (;;) {
    const sent = key;
    const headers = sent ? { ...init.headers, Authorization: `Bearer ${sent}` } : init.headers;
    const response = await fetch(path, { ...init, headers });
    if (response.status !== 401) return response;
    if (sent === key && !await another()) return response;
  }
}

// another asks the user for a key, once for all requests that wait for it.
function another() {
  if (declined) return Promise.resolve(false);
  asking ||= new Promise((done) => {
    const dialog = $('key'), form = $('key-form'), field = $('key-value');
    $('key-note').textContent = key ? 'The server does not know this key.' : '';
    const submit = (e) => {
      e.preventDefault();
      const value = field.value.trim();
      if (!value) return;
      key = value;
      try { localStorage.setItem(stored, key); } catch { /* it holds until the page is left */ }
      dialog.close('given');
    };
    form.addEventListener('submit', submit);
    dialog.addEventListener('close', () => {
      form.removeEventListener('submit', submit);
      field.value = '';
      declined = dialog.returnValue !== 'given';
      asking = null;
      done(!declined);
    }, { once: true });
    dialog.returnValue = '';
    dialog.showModal();
    field.focus();
  });
  return asking;
}
