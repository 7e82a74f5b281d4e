// Chats as a file: what export writes, and what import takes. A file may come from anywhere, so every value is checked,
// and only what is known here is kept.

export const format = 'uma-serve chats';
export const maxFile = 32 << 20; // bytes
const maxChats = 200, maxMessages = 10000, maxText = 4 << 20, maxName = 200, maxFiles = 16;
const settingNames = ['system', 'think', 'budget', 'max', 'temp', 'topp', 'topk', 'minp', 'repeat', 'seed', 'tools'];
const maxSetting = { system: maxText, tools: 600 }, maxCalls = 64;

const callNames = ['id', 'response', 'server', 'name', 'arguments', 'output', 'error', 'state'];
const callStates = ['asks', 'allowed', 'denied', 'runs', 'done', 'failed'];

function text(value, what, most = maxText) {
  if (value === undefined || value === null) return '';
  if (typeof value !== 'string') throw new Error(`${what} must be a text`);
  if (value.length > most) throw new Error(`${what} has ${value.length} characters; at most ${most} are taken`);
  return value;
}

function array(value, what, most) {
  if (!Array.isArray(value)) throw new Error(`${what} must be a list`);
  if (value.length > most) throw new Error(`${what} has ${value.length} entries; at most ${most} are taken`);
  return value;
}

function finite(value) { return Number.isFinite(value) && value >= 0 ? value : undefined; }

function readMessage(m, i, what) {
  if (!m || typeof m !== 'object') throw new Error(`${what} must be an object`);
  if (m.role !== 'user' && m.role !== 'assistant') throw new Error(`${what}.role must be user or assistant`);
  const parent = m.parent === undefined ? i - 1 : m.parent;
  if (!Number.isInteger(parent) || parent < -1 || parent >= i) throw new Error(`${what}.parent must be -1 or an earlier message`);
  const out = { role: m.role, content: text(m.content, `${what}.content`), parent };
  if (m.role === 'user') {
    const files = array(m.files ?? [], `${what}.files`, maxFiles).map((f, k) => ({
      name: text(f?.name, `${what}.files[${k}].name`, maxName), text: text(f?.text, `${what}.files[${k}].text`),
    }));
    return files.length ? { ...out, files } : out;
  }
  for (const key of ['thought', 'note', 'error', 'finish', 'request']) {
    const value = text(m[key], `${what}.${key}`);
    if (value || key === 'thought') out[key] = value;
  }
  const calls = array(m.calls ?? [], `${what}.calls`, maxCalls).map((c, k) => {
    const call = {};
    for (const key of callNames) call[key] = text(c?.[key], `${what}.calls[${k}].${key}`);
    return { ...call, state: callStates.includes(call.state) ? call.state : 'failed' };
  });
  if (calls.length) out.calls = calls;
  out.thoughtMs = finite(m.thoughtMs);
  const stats = {};
  for (const key of ['ttft', 'rate', 'cached', 'prompt', 'tokens', 'think']) stats[key] = finite(m.stats?.[key]);
  if (stats.tokens && stats.rate !== undefined && stats.ttft !== undefined) out.stats = stats;
  return out;
}

// readChat returns what is known of a chat; it throws an error that names the field where one is wrong.
export function readChat(c, what = 'chat') {
  if (!c || typeof c !== 'object') throw new Error(`${what} must be an object`);
  const messages = array(c.messages, `${what}.messages`, maxMessages).map((m, i) => readMessage(m, i, `${what}.messages[${i}]`));
  const leaf = c.leaf === undefined ? messages.length - 1 : c.leaf;
  if (!Number.isInteger(leaf) || leaf < -1 || leaf >= messages.length) throw new Error(`${what}.leaf must be the index of a message`);
  const settings = {};
  for (const name of settingNames) {
    const value = c.settings?.[name];
    if (value !== undefined && value !== '') settings[name] = text(String(value), `${what}.settings.${name}`, maxSetting[name] || 40);
  }
  return {
    title: text(c.title, `${what}.title`, maxName), at: finite(c.at) ?? Date.now(), model: text(c.model, `${what}.model`, 1000),
    settings, messages, leaf,
  };
}

// read returns the chats of a file.
export function read(body) {
  let file;
  try {
    file = JSON.parse(body);
  } catch {
    throw new Error('the file is not JSON');
  }
  if (!file || file.format !== format || file.version !== 1) {
    throw new Error(`the file is no export of this page: its format must be "${format}", version 1`);
  }
  return array(file.chats, 'chats', maxChats).map((c, i) => readChat(c, `chats[${i}]`)).filter((c) => c.messages.length);
}

// write returns the file of chats.
export const write = (chats) => JSON.stringify({ format, version: 1, chats: chats.map((c) => readChat(c)) }, null, 1);

// save lets the user keep a text as a file.
export function save(name, body) {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob([body], { type: 'application/json' }));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
}
