// Server-sent events with the key and with POST, neither of which EventSource has.

import { ask } from './key.js';

// listen reads the events of a path until the function that it returns is called, or the connection ends: of that lost
// hears.
export function listen(path, take, lost) {
  const left = new AbortController();
  (async () => {
    try {
      const r = await ask(path, { headers: { Accept: 'text/event-stream' }, signal: left.signal });
      if (r.ok) for await (const m of named(r)) take(m.name, m.data);
    } catch { /* it ends */ }
    if (!left.signal.aborted) lost();
  })();
  return () => left.abort();
}

// events yields the data of each event of a response.
export async function* events(response) {
  for await (const m of named(response)) yield m.data;
}

// named yields the name and the data of each event.
async function* named(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let end; (end = rest.indexOf('\n\n')) >= 0;) {
        const lines = rest.slice(0, end).split('\n');
        const of = (field) => lines.filter((l) => l.startsWith(field)).map((l) => l.slice(field.length).trimStart());
        rest = rest.slice(end + 2);
        const data = of('data:');
        if (data.length) yield { name: of('event:')[0] || 'message', data: data.join('\n') };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// problem reads an answer that is an error: the server's sentence where there is one.
export async function problem(response) {
  let text = `the server answered ${response.status}`;
  try {
    const body = await response.json();
    if (body.error && body.error.message) text = body.error.message;
  } catch { /* not JSON */ }
  const after = Number(response.headers.get('Retry-After'));
  return after > 0 ? `${text} (try again in ${after} s)` : text;
}
