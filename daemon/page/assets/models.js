// The models: which one the chat asks, and the dialog that shows, downloads, loads, unloads and deletes them.

import { $, announce, bytes, h, number, setText } from './dom.js';
import { listen, problem } from './sse.js';
import { ask as send } from './key.js';

const again = 300; // ms, between an event and the question that it causes
const titles = { loaded: 'loaded', loading: 'loading', unloaded: 'not loaded', downloading: 'downloading' };

let list = [];    // as GET /v1/models has it
let wanted = '';  // the name that the chat asks for; '' = the first
let ready = false; // the list has come
let leave = null, timer = 0;
let told = () => {}, asked = 0; // of senses

export function start() {
  $('model').addEventListener('click', open);
  $('models-search').addEventListener('input', show);
  $('models-form').addEventListener('submit', (e) => { e.preventDefault(); enter(); });
  $('models').addEventListener('close', () => {
    if (leave) leave();
    leave = null;
  });
}

// current is the name of the model that is asked.
export function current() {
  return (list.find((m) => m.id === wanted) || list[0])?.id ?? '';
}

// choose makes name the model that is asked, if the server has it.
export function choose(name) {
  wanted = name;
  label();
}

// senses says whether the model that is asked reads 'vision' and 'audio'.
async function senses() {
  try {
    const r = await send(`props?model=${encodeURIComponent(current())}`);
    return r.ok && (await r.json()).modalities || {};
  } catch {
    return {};
  }
}

export const reads = async (what) => !!(await senses())[what];

// onSenses calls f with the senses of the model that is asked, now and whenever another one is or the list has come.
export function onSenses(f) { told = f; }

async function tell() {
  const mine = ++asked;
  const found = ready && current() ? await senses() : {};
  if (mine === asked) told(found);
}

// load asks for the list.
export async function load() {
  try {
    const r = await send('v1/models');
    if (!r.ok) throw new Error(await problem(r));
    list = (await r.json()).data;
    ready = true;
  } catch {
    list = [];
    ready = false;
  }
  label();
  if ($('models').open) show();
}

function label() {
  const name = current() || (ready ? 'loading' : 'no server');
  setText($('model-name'), name);
  $('model').setAttribute('aria-label', `Model: ${name}`);
  tell();
}

// open shows the dialog. While it is open, the server tells of changes.
export function open() {
  if ($('models').open) return;
  $('models-search').value = '';
  say('');
  show();
  $('models').showModal();
  if (matchMedia('(pointer: fine)').matches) $('models-search').focus();
  load().then(() => {
    if (!list.some((m) => m.status) || !$('models').open || leave) return; // one process, one model: nothing changes
    leave = listen('models/sse', (_, data) => {
      const event = JSON.parse(data);
      if (event.event === 'download_failed') say(`${event.model}: ${event.data?.error || 'the download failed'}`);
      if (event.event === 'download_finished') say(`${event.model} is here.`);
      if (event.event === 'download_progress') {
        const m = list.find((x) => x.id === event.model);
        if (m?.status) { m.status.progress = event.data.progress; return show(); }
      }
      clearTimeout(timer);
      timer = setTimeout(load, again);
      return undefined;
    }, () => { leave = null; });
  });
}

function say(text) {
  setText($('models-note'), text);
  announce(text);
}

// ask sends a change to the server, and shows what it answers where it refuses.
async function ask(method, path, name, done) {
  say('');
  try {
    const r = await send(method === 'DELETE' ? `${path}?model=${encodeURIComponent(name)}` : path, {
      method, ...(method === 'POST' && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model: name }) }),
    });
    if (!r.ok) throw new Error(await problem(r));
    say(done);
  } catch (e) {
    say(e instanceof TypeError ? 'The server cannot be reached.' : e.message);
  }
  await load();
}

// enter uses the only model that matches, or downloads the name.
function enter() {
  const name = $('models-search').value.trim(), found = matches(name);
  if (found.length === 1 || found.some((m) => m.id === name)) return use(found.find((m) => m.id === name) || found[0]);
  if (!found.length && name) return ask('POST', 'models', name, `${name} is being downloaded.`);
  return undefined;
}

function matches(words) {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  return list.filter((m) => parts.every((p) => [m.id, ...(m.aliases || [])].some((name) => name.toLowerCase().includes(p))));
}

function use(m) {
  if (m.status?.value === 'downloading') return;
  choose(m.id);
  announce(`Model: ${m.id}`);
  $('models').close();
  $('prompt').focus();
}

// show draws the list in the rows that are there: the focus stays where it is.
function show() {
  const words = $('models-search').value.trim(), found = matches(words);
  const focused = document.activeElement?.closest('#model-list') ? document.activeElement.dataset.key : '';
  $('model-list').replaceChildren(...found.map(row));
  if (focused) [...$('model-list').querySelectorAll('button')].find((b) => b.dataset.key === focused)?.focus();
  $('models-get').hidden = !(words && !found.some((m) => m.id === words) && list.some((m) => m.status));
  setText($('models-get'), `Download ${words}`);
  $('models-none').hidden = found.length > 0;
}

function row(m) {
  const state = m.status?.value ?? 'loaded', fit = m.status?.fit, meta = m.meta || {};
  const button = (text, what, props) => h('button', {
    type: 'button', class: 'quiet', 'data-key': `${text} ${m.id}`, 'aria-label': `${text} ${m.id}`, onclick: what, ...props,
  }, text);
  const facts = [];
  if (meta.size) facts.push(bytes(meta.size));
  if (meta.n_params) facts.push(`${number(meta.n_params)} parameters`);
  if (meta.n_ctx_train) facts.push(`context ${number(meta.n_ctx_train)}`);
  const acts = [];
  if (m.status) {
    if (state === 'downloading') {
      const told = `The download of ${m.id} is cancelled; what has arrived stays for the next one.`;
      acts.push(button('Cancel', () => ask('POST', 'models/unload', m.id, told)));
    } else {
      if (state === 'unloaded') acts.push(button('Load', () => ask('POST', 'models/load', m.id, `${m.id} is being loaded.`)));
      if (state === 'loaded') {
        acts.push(button('Unload', () => ask('POST', 'models/unload', m.id, `${m.id} leaves when its answers have ended.`)));
      }
      acts.push(button('Delete', () => {
        if (window.confirm(`Delete ${m.id} from the disk of this machine?`)) ask('DELETE', 'models', m.id, `${m.id} is deleted.`);
      }, { class: 'quiet delete' }));
    }
  }
  return h('li', { class: 'model-row' },
    h('button', {
      type: 'button', class: 'quiet pick', 'data-key': `use ${m.id}`, 'aria-pressed': String(m.id === current()),
      disabled: state === 'downloading', onclick: () => use(m),
    },
      h('span', { class: 'name' }, m.id), h('span', { class: 'figure' }, facts.join(' · '))),
    h('div', { class: 'model-state' }, h('span', { class: `state ${m.status?.failed ? 'failed' : state}` },
      m.status?.failed ? 'cannot be loaded' : titles[state] || state), ...acts),
    fit ? h('p', { class: `fit ${fit.fits ? 'yes' : 'no'}` }, h('strong', null, fit.fits ? 'Fits' : 'Does not fit'), `: ${fit.text}`) : null,
    state === 'downloading' ? progress(m) : null);
}

function progress(m) {
  const files = Object.values(m.status.progress || {});
  const done = files.reduce((n, f) => n + f.done, 0), total = files.reduce((n, f) => n + f.total, 0);
  return h('div', { class: 'download' },
    h('progress', { 'aria-label': `Download of ${m.id}`, max: total || null, value: total ? done : null }),
    h('span', { class: 'figure' }, total ? `${bytes(done)} of ${bytes(total)}, ${Math.floor(done / total * 100)} %` : 'asking'));
}
