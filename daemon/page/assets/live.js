// The connection to GET /live. It is open only while the page is visible: a hidden page costs nothing.

import { listen } from './sse.js';

const retryAfter = 3000; // ms, when the server refuses or is gone

// start opens the connection and calls on.hello, on.live and on.lost.
export function start(on) {
  let leave = null, timer = 0;
  const open = () => {
    clearTimeout(timer);
    if (leave || document.hidden) return;
    leave = listen('live', (name, data) => on[name]?.(JSON.parse(data)), () => {
      leave = null;
      on.lost();
      timer = setTimeout(open, retryAfter);
    });
  };
  const close = () => {
    clearTimeout(timer);
    if (leave) leave();
    leave = null;
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  window.addEventListener('pagehide', close);
  window.addEventListener('pageshow', open);
  open();
}
