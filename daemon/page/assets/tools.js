// Tools of the MCP servers that the daemon's configuration names: which servers a chat uses, the calls of an answer, and
// the user's consent to each call. An answer with tools comes from /v1/responses.

import { $, h } from './dom.js';
import { ask } from './key.js';

let servers = [];            // names
const allowed = new Map();   // by chat: [server, tool] that need no more consent, as JSON. Not stored: a chat may be imported

// load asks the daemon for the servers that this user may use.
export async function load() {
  try {
    const r = await ask('mcp/servers');
    servers = r.ok ? (await r.json()).servers.map((s) => s.name) : [];
  } catch {
    servers = [];
  }
}

const wanted = (settings) => (settings.tools || '').split(',');

// chosen are the servers that a chat with these settings uses.
export const chosen = (settings) => servers.filter((n) => wanted(settings).includes(n));

// fill shows the servers in the dialog of the settings; change is called with each new choice.
export function fill(settings, change) {
  $('set-tools').hidden = !servers.length;
  $('tool-list').replaceChildren(...servers.map((name) => {
    const box = h('input', { type: 'checkbox', id: `tool-${name}`, checked: wanted(settings).includes(name), onchange: () => {
      const others = wanted(settings).filter((n) => n && n !== name);
      change((box.checked ? [...others, name] : others).join(','));
    } });
    return h('label', { for: `tool-${name}` }, box, ` ${name}`);
  }));
}

// request is a request for /v1/responses, made of one for /v1/chat/completions.
export function request(body, names, chat) {
  const { messages, max_tokens: most, stream_options: _, return_progress: __, ...rest } = body;
  const system = messages[0]?.role === 'system' ? messages.shift().content : undefined;
  const never = [...allowed.get(chat) || []].map((t) => JSON.parse(t));
  return {
    ...rest, instructions: system, max_output_tokens: most, input: messages.map((m) => ({ role: m.role, content: parts(m.content) })),
    tools: names.map((name) => ({ type: 'mcp', server_label: name,
      require_approval: { never: { tool_names: never.filter(([s]) => s === name).map(([, tool]) => tool) } } })),
  };
}

function parts(content) {
  if (typeof content === 'string') return content;
  return content.map((p) => (p.type === 'text' ? { type: 'input_text', text: p.text } :
    p.type === 'input_audio' ? p : { type: 'input_image', image_url: p.image_url.url }));
}

// asks reports whether a call of the message waits for the user.
export const asks = (message) => (message.calls || []).some((c) => c.state === 'asks');

// decide notes what the user says to a call.
export function decide(call, approve, always, chat) {
  call.state = approve ? 'allowed' : 'denied';
  if (!approve || !always) return;
  if (!allowed.has(chat)) allowed.set(chat, new Set());
  allowed.get(chat).add(JSON.stringify([call.server, call.name]));
}

// goOn is the request that follows the user's decisions about the calls of a message, whose answer it continues.
export function goOn(body, message, chat) {
  const told = message.calls.filter((c) => c.response === message.request && (c.state === 'allowed' || c.state === 'denied'));
  return { ...request(body, [...new Set(message.calls.map((c) => c.server))], chat), previous_response_id: message.request, instructions: undefined,
    input: told.map((c) => ({ type: 'mcp_approval_response', approval_request_id: c.id, approve: c.state === 'allowed' })) };
}

// take adds an event of /v1/responses to a message.
export function take(run, event) {
  const m = run.message, item = event.item || {};
  switch (event.type) {
    case 'response.created':
      run.id = m.request = event.response.id;
      break;
    case 'response.reasoning_text.delta':
      run.thinking ??= performance.now();
      m.thought += event.delta;
      break;
    case 'response.output_text.delta':
      if (!m.content && m.thought) m.thoughtMs = performance.now() - run.thinking;
      m.content += event.delta;
      break;
    case 'response.output_item.added':
      if (item.type === 'message' && m.content) m.content += '\n\n';
      if (item.type === 'mcp_call') note(m, item, run.id);
      break;
    case 'response.output_item.done':
      if (/^mcp_(call|approval_request)$/.test(item.type) || item.type === 'mcp_list_tools' && item.error) note(m, item, run.id);
      break;
    case 'response.completed': case 'response.incomplete': case 'response.failed': {
      const r = event.response, u = r.usage;
      if (r.error) throw new Error(r.error.message);
      m.finish = event.type === 'response.incomplete' ? 'length' : 'stop';
      if (u) {
        const s = (performance.now() - run.began) / 1000;
        m.stats = { prompt: u.input_tokens, tokens: u.output_tokens, rate: u.output_tokens / s, ttft: run.first ?? 0,
          cached: u.input_tokens_details.cached_tokens, think: u.output_tokens_details.reasoning_tokens };
      }
      return true;
    }
    case 'error':
      throw new Error(event.message || event.error?.message || 'the server gave the answer up');
  }
  if (event.delta) run.first ??= performance.now() - run.began;
  return false;
}

// note keeps an item of a call. A call that was asked for takes the place of its question.
function note(m, item, response) {
  m.calls ||= [];
  const state = { mcp_approval_request: 'asks', mcp_list_tools: 'failed' }[item.type] ||
    (item.error ? 'failed' : item.output === null || item.output === undefined ? 'runs' : 'done');
  const call = { id: item.id, response, server: item.server_label, name: item.name || '', arguments: item.arguments || '',
    output: item.output || '', error: typeof item.error === 'string' ? item.error : item.error?.message || '', state };
  const at = m.calls.findIndex((c) => c.id === item.id || item.approval_request_id && c.id === item.approval_request_id);
  if (at < 0) m.calls.push(call);
  else m.calls[at] = call;
}

const says = { runs: 'runs', done: 'done', failed: 'failed', denied: 'denied', allowed: 'allowed', asks: 'waits for you' };

// view is the nodes of a message's calls. consent is called with a call, whether it may run, and whether always.
export function view(message, consent) {
  return (message.calls || []).map((c) => {
    const what = `${c.server}${c.name ? ` · ${c.name}` : ''}`;
    const pieces = [['Arguments', c.arguments], ['Result', c.output], ['Error', c.error]].filter(([, text]) => text)
      .flatMap(([name, text]) => [h('h3', null, name), h('pre', { tabindex: '0' }, text)]);
    const shown = h('details', { class: 'call', open: c.state === 'asks' }, h('summary', null, `${what}: ${says[c.state]}`), ...pieces);
    if (c.state !== 'asks') return shown;
    const button = (text, approve, always) => h('button', { type: 'button', class: approve && !always ? 'strong' : null,
      onclick: () => consent(c, approve, always) }, text);
    return h('div', { class: 'consent', role: 'group', 'aria-label': `The model asks for ${what}` }, shown,
      h('div', { class: 'row' }, button('Deny', false, false), button('Allow in this chat', true, true), button('Allow once', true, false)));
  });
}
