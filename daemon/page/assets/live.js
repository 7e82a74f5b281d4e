// The connection to GET /live. It is open only while the page is visible: a hidden page costs nothing.

const retryAfter = 3000; // ms, when the server refuses

// start opens the connection and calls on.hello, on.live and on.lost.
export function start(on) {
  let source = null, timer = 0;
  const open = () => {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource('live');
    source.addEventListener('hello', (e) => on.hello(JSON.parse(e.data)));
    source.addEventListener('live', (e) => on.live(JSON.parse(e.data)));
    source.addEventListener('error', () => {
      on.lost();
      if (source && source.readyState === EventSource.CLOSED) { // refused; otherwise the browser connects again itself
        source = null;
        timer = setTimeout(open, retryAfter);
      }
    });
  };
  const close = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  window.addEventListener('pageshow', open);
  open();
}
