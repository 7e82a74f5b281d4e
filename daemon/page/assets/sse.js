// Server-sent events of an answer to POST, which EventSource cannot send.

// events yields the data of each event of a response.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let end; (end = rest.indexOf('\n\n')) >= 0;) {
        const data = rest.slice(0, end).split('\n').filter((l) => l.startsWith('data:')).map((l) => l.slice(5).trimStart());
        rest = rest.slice(end + 2);
        if (data.length) yield data.join('\n');
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
