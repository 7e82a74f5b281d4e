// The chat: sending a conversation, showing the answer while it comes, stopping it, ending its thinking, trying again,
// editing a message, and changing between branches.

import { $, announce, setText, number } from './dom.js';
import * as attach from './attach.js';
import { messageView } from './message.js';
import * as models from './models.js';
import { events, problem } from './sse.js';
import * as store from './store.js';
import * as tools from './tools.js';
import * as tree from './tree.js';
import { welcome } from './welcome.js';
import { ask } from './key.js';

const saveEvery = 1000; // ms, while an answer comes

let chat = store.newChat();
let running = null; // {controller, message, view, id, timer} of the answer that comes
let follow = true;  // the log stays at its end
let leaving = false; // the page is being closed or reloaded: what breaks then is no error
const views = new WeakMap(); // of the messages on the screen
const listeners = { why: () => {} };

// onWhy is told of the request that the user wants explained.
export function onWhy(f) { listeners.why = f; }

// busy reports whether an answer is coming.
export const busy = () => running !== null;

export function start() {
  const log = $('log');
  log.addEventListener('scroll', () => {
    follow = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    $('to-end').hidden = follow;
  });
  $('to-end').addEventListener('click', () => { follow = true; toEnd(); });
  const prompt = $('prompt');
  prompt.addEventListener('input', () => grow(prompt));
  prompt.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
  });
  $('composer').addEventListener('submit', (e) => { e.preventDefault(); submit(); });
  $('end-think').addEventListener('click', endThink);
  for (const event of ['beforeunload', 'pagehide']) window.addEventListener(event, () => { leaving = true; store.save(chat); });
  window.addEventListener('pageshow', () => { leaving = false; });
  const newest = store.list()[0];
  open(newest && store.load(newest.id) || store.newChat());
}

// open shows a chat.
export function open(next) {
  stop();
  chat = next;
  for (const m of chat.messages) { // a page that was closed within an answer
    if (m.role === 'assistant' && !m.finish && !m.note && !m.error) m.note = 'interrupted';
  }
  models.choose(chat.model);
  draw();
}

// draw shows the branch of the chat that ends in its leaf.
function draw() {
  setText($('title'), chat.title || 'New chat');
  const shown = tree.path(chat);
  $('log').replaceChildren(...shown.map((i) => view(i).root));
  if (!shown.length) $('log').append(welcome((text) => { $('prompt').value = text; submit(); }));
  follow = true;
  toEnd();
  buttons();
}

// view is the view of message i, with what its buttons do.
function view(i) {
  const message = chat.messages[i], among = tree.siblings(chat, i), place = among.indexOf(i);
  const shown = messageView(message, {
    place, count: among.length,
    turn: (by) => {
      if (running) return;
      tree.show(chat, among[place + by]);
      store.save(chat);
      draw();
      announce(`Branch ${place + by + 1} of ${among.length}`);
      $('log').querySelector(`[data-message="${among[place + by]}"] .turn`)?.focus();
    },
    edit: (text) => {
      if (running || !text.trim()) return false;
      tree.add(chat, { role: 'user', content: text.trim(), ...(message.files ? { files: message.files } : {}) }, message.parent);
      draw();
      answer();
      return true;
    },
    retry: () => again(i), why: (id) => listeners.why(id), index: i, busy,
    consent: (call, approve, always) => consent(message, call, approve, always),
  });
  views.set(message, shown);
  return shown;
}

// consent carries out what the user says to a call; after the last one the answer goes on.
function consent(message, call, approve, always) {
  if (running) return;
  tools.decide(call, approve, always, chat.id);
  views.get(message).show(message, true);
  store.save(chat);
  if (!tools.asks(message)) answer(message);
}

// editLast opens the editor of the last question.
export function editLast() {
  if (!running) [...$('log').querySelectorAll('.message.user .edit')].at(-1)?.click();
}

// fresh begins a new chat.
export function fresh() {
  store.save(chat);
  open(store.newChat());
  $('prompt').focus();
}

// current is the id of the chat on the screen, now the chat itself.
export const current = () => chat.id;
export const now = () => chat;

function grow(area) {
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight, window.innerHeight * 0.4)}px`;
}

function toEnd() {
  if (follow) $('log').scrollTop = $('log').scrollHeight;
}

function buttons() {
  const send = $('send');
  setText(send, running ? 'Stop' : 'Send');
  send.classList.toggle('danger', !!running);
  $('end-think').hidden = !(running && running.message.thought && !running.message.content && running.id);
}

function submit() {
  if (running) return stop();
  const text = $('prompt').value.trim();
  if (!text && !attach.some()) return undefined;
  const files = attach.taken();
  $('prompt').value = '';
  grow($('prompt'));
  if (!chat.messages.length) {
    $('log').replaceChildren();
    chat.title = (text || files[0].name).split('\n')[0].slice(0, 80);
    setText($('title'), chat.title);
  }
  add({ role: 'user', content: text, ...(files.length ? { files } : {}) });
  return answer();
}

function add(message) {
  const shown = view(tree.add(chat, message));
  $('log').append(shown.root);
  follow = true;
  toEnd();
  return shown;
}

// retry asks once more for the last answer, which stays as another branch.
export function retry() {
  const last = tree.path(chat).findLast((i) => chat.messages[i].role === 'assistant');
  if (last !== undefined) again(last);
}

function again(i) {
  if (running) return;
  chat.leaf = chat.messages[i].parent;
  draw();
  answer();
}

// stop ends the answer that comes; what has come stays. Closing the connection cancels the request.
export function stop() {
  if (!running) return;
  running.message.note = 'stopped';
  running.controller.abort();
}

// endThink asks the server to close the thought and answer now.
export async function endThink() {
  if (!running || !running.id) return;
  $('end-think').disabled = true;
  try {
    const r = await ask('end_think', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ id: running.id }),
    });
    announce(r.ok ? 'Thinking ends' : await problem(r));
  } finally {
    $('end-think').disabled = false;
  }
}

// body is the request for an answer to the chat.
function body() {
  const s = chat.settings;
  const messages = tree.path(chat).map((i) => chat.messages[i]).filter((m) => m.content || m.role === 'user')
    .map((m) => ({ role: m.role, content: attach.contentOf(m) }));
  if (s.system) messages.unshift({ role: 'system', content: s.system });
  const out = { model: models.current(), messages, stream: true, return_progress: true, stream_options: { include_usage: true } };
  const think = {};
  if (s.think) think.mode = s.think;
  if (s.budget && s.think !== 'off') think.budget_tokens = Number(s.budget);
  if (Object.keys(think).length) out.think = think;
  for (const [name, field] of sampling) if (s[name] !== undefined && s[name] !== '') out[field] = Number(s[name]);
  return out;
}

// sampling are the settings that are numbers, and their names in a request.
const sampling = [['max', 'max_tokens'], ['temp', 'temperature'], ['topp', 'top_p'], ['topk', 'top_k'], ['minp', 'min_p'],
  ['repeat', 'repeat_penalty'], ['seed', 'seed']];

// answer asks for an answer; with a message, for the rest of that one, whose calls the user has decided about.
async function answer(begun = null) {
  const asked = chat; // the user may open another meanwhile
  const servers = tools.chosen(chat.settings);
  let path = 'v1/chat/completions', request = body();
  chat.model = request.model;
  if (begun || servers.length) {
    path = 'v1/responses';
    request = begun ? tools.goOn(request, begun, chat.id) : tools.request(request, servers, chat.id);
  }
  const message = begun || { role: 'assistant', content: '', thought: '' };
  const view = begun ? views.get(begun) : add(message);
  for (const key of ['note', 'error', 'finish']) delete message[key];
  const run = running = { controller: new AbortController(), message, view, id: '', saved: 0, frame: 0, began: performance.now() };
  view.root.setAttribute('aria-busy', 'true');
  view.wait('waiting');
  buttons();
  try {
    const response = await ask(path, {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(request), signal: run.controller.signal,
    });
    if (!response.ok) throw new Error(await problem(response));
    let done = false;
    for await (const data of events(response)) {
      if (data === '[DONE]') { done = true; break; }
      const event = JSON.parse(data);
      if (event.type) done = tools.take(run, event);
      else take(run, event);
      paint(run);
      if (performance.now() - run.saved > saveEvery) { store.save(asked); run.saved = performance.now(); }
    }
    if (!done && !message.note) throw new Error('the connection ended before the answer was complete');
  } catch (e) {
    if (leaving) message.note = 'interrupted';
    else if (message.note !== 'stopped') message.error = e instanceof TypeError ? 'the server cannot be reached' : e.message;
  }
  if (message.thought && !message.thoughtMs) message.thoughtMs = performance.now() - run.thinking;
  cancelAnimationFrame(run.frame);
  view.root.removeAttribute('aria-busy');
  view.show(message, true);
  if (running === run) running = null;
  toEnd();
  if (!store.save(asked)) announce('This browser has no room: the chat is not stored.');
  announce(message.error || (message.note ? 'Stopped' : tools.asks(message) ? 'The model asks for a tool' : 'The answer is complete'));
  buttons();
}

// take adds a chunk to the message.
function take(run, chunk) {
  if (chunk.error) throw new Error(chunk.error.message);
  const m = run.message;
  if (chunk.id) run.id = m.request = chunk.id;
  if (chunk.prompt_progress) {
    const p = chunk.prompt_progress;
    run.progress = p.processed ? `reading ${number(p.processed)} of ${number(p.total)} tokens` : 'waiting';
  }
  const choice = chunk.choices && chunk.choices[0];
  const delta = choice && choice.delta || {};
  if (delta.reasoning_content) {
    run.thinking ??= performance.now();
    m.thought += delta.reasoning_content;
  }
  if (delta.content) {
    if (!m.content && m.thought) m.thoughtMs = performance.now() - run.thinking;
    m.content += delta.content;
  }
  if (choice && choice.finish_reason) m.finish = choice.finish_reason;
  if (chunk.timings) {
    const t = chunk.timings;
    m.stats = { ...m.stats, ttft: t.ttft_ms, rate: t.predicted_per_second, cached: t.cache_n };
  }
  if (chunk.usage) {
    const u = chunk.usage;
    m.stats = { ...m.stats, prompt: u.prompt_tokens, tokens: u.completion_tokens, think: u.completion_tokens_details.reasoning_tokens };
  }
}

// paint shows what has come, once a frame.
function paint(run) {
  run.frame ||= requestAnimationFrame(() => {
    run.frame = 0;
    if (run.message.content || run.message.thought || run.message.calls) run.view.show(run.message, false);
    else run.view.wait(run.progress || 'waiting');
    buttons();
    toEnd();
  });
}
