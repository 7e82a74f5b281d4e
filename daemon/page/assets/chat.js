// The chat: sending a conversation, showing the answer while it comes, stopping it, ending its thinking, trying again.

import { $, announce, h, ms, number, setText } from './dom.js';
import { Markdown } from './markdown.js';
import { events, problem } from './sse.js';
import * as store from './store.js';

const saveEvery = 1000; // ms, while an answer comes

let chat = store.newChat();
let running = null; // {controller, message, view, id, timer} of the answer that comes
let follow = true;  // the log stays at its end
let leaving = false; // the page is being closed or reloaded: what breaks then is no error
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
  setText($('title'), chat.title || 'New chat');
  $('log').replaceChildren(...chat.messages.map((m) => messageView(m).root));
  if (!chat.messages.length) $('log').append(welcome());
  follow = true;
  toEnd();
  buttons();
}

// fresh begins a new chat.
export function fresh() {
  store.save(chat);
  open(store.newChat());
  $('prompt').focus();
}

// current is the id of the chat on the screen.
export const current = () => chat.id;

function welcome() {
  const ask = (text) => h('button', { type: 'button', onclick: () => { $('prompt').value = text; submit(); } }, text);
  return h('div', { class: 'welcome' },
    h('p', null, 'Ask the model of this machine. Nothing leaves it.'),
    h('div', { class: 'examples' }, ask('What is 4821 + 977?'), ask('Sort 31, 7, 240, 18.'), ask('How many r\'s are in strawberry?')));
}

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
  if (!text) return;
  $('prompt').value = '';
  grow($('prompt'));
  if (!chat.messages.length) {
    $('log').replaceChildren();
    chat.title = text.split('\n')[0].slice(0, 80);
    setText($('title'), chat.title);
  }
  add({ role: 'user', content: text });
  answer();
}

function add(message) {
  chat.messages.push(message);
  const view = messageView(message);
  $('log').append(view.root);
  follow = true;
  toEnd();
  return view;
}

// retry drops the last answer and asks again.
export function retry() {
  if (running) return;
  while (chat.messages.length && chat.messages.at(-1).role === 'assistant') {
    chat.messages.pop();
    $('log').lastElementChild.remove();
  }
  if (chat.messages.length) answer();
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
    const r = await fetch('end_think', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ id: running.id }),
    });
    announce(r.ok ? 'Thinking ends' : await problem(r));
  } finally {
    $('end-think').disabled = false;
  }
}

// body is the request for an answer to the chat.
function body() {
  const s = store.settings();
  const messages = chat.messages.filter((m) => m.content || m.role === 'user').map(({ role, content }) => ({ role, content }));
  if (s.system) messages.unshift({ role: 'system', content: s.system });
  const out = { model: $('model').value, messages, stream: true, return_progress: true, stream_options: { include_usage: true } };
  const think = {};
  if (s.think) think.mode = s.think;
  if (s.budget && s.think !== 'off') think.budget_tokens = Number(s.budget);
  if (Object.keys(think).length) out.think = think;
  if (s.max) out.max_tokens = Number(s.max);
  if (s.temp !== undefined && s.temp !== '') out.temperature = Number(s.temp);
  return out;
}

async function answer() {
  const asked = chat; // the user may open another meanwhile
  const request = body();
  const message = { role: 'assistant', content: '', thought: '' };
  const view = add(message);
  const run = running = { controller: new AbortController(), message, view, id: '', saved: 0, frame: 0, began: performance.now() };
  view.root.setAttribute('aria-busy', 'true');
  view.wait('waiting');
  buttons();
  try {
    const response = await fetch('v1/chat/completions', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(request), signal: run.controller.signal,
    });
    if (!response.ok) throw new Error(await problem(response));
    let done = false;
    for await (const data of events(response)) {
      if (data === '[DONE]') { done = true; break; }
      take(run, JSON.parse(data));
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
  announce(message.error || (message.note ? 'Stopped' : 'The answer is complete'));
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
    if (run.message.content || run.message.thought) run.view.show(run.message, false);
    else run.view.wait(run.progress || 'waiting');
    buttons();
    toEnd();
  });
}

// messageView is the nodes of a message: root, and what changes while an answer comes.
function messageView(message) {
  if (message.role === 'user') {
    return { root: h('article', { class: 'message user', 'aria-label': 'You' }, h('div', { class: 'body' }, message.content)) };
  }
  const thoughtText = h('div', { class: 'thought-text' });
  const summary = h('summary');
  const thought = h('details', { class: 'thought', hidden: true }, summary, thoughtText);
  const text = h('div', { class: 'body markdown' });
  const foot = h('footer');
  const root = h('article', { class: 'message assistant', 'aria-label': 'Answer' }, thought, text, foot);
  const markdown = new Markdown(text);
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
      markdown.update(m.content);
      if (!ended) foot.replaceChildren();
      else foot.replaceChildren(...footer(m));
    },
  };
  view.show(message, true);
  return view;
}

function footer(m) {
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
  out.push(h('span', { class: 'actions' },
    m.content ? copy : null,
    h('button', { type: 'button', class: 'quiet retry', onclick: retry }, 'Retry'),
    m.request ? h('button', { type: 'button', class: 'quiet', onclick: () => listeners.why(m.request) }, 'Why') : null));
  return out;
}
