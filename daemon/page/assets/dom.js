// Small helpers to make nodes. Text always goes in as text: nothing here parses HTML.

export const $ = (id) => document.getElementById(id);

// h makes an element: h('button', {class: 'x', onclick: f}, 'text', node). Properties that begin with "on" are handlers;
// null and false leave an attribute out.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...children.filter((c) => c !== null && c !== undefined));
  return el;
}

// svg makes an SVG element.
export function svg(tag, props, ...children) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props || {})) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

// setText changes a node only when its text differs: an unchanged page paints nothing.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// number shortens: 12,345, 1.2 M or 7.6 G.
export function number(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} G`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)} M`;
  return Math.round(n).toLocaleString('en');
}

// ms writes a duration of milliseconds.
export function ms(t) {
  if (t < 10) return `${t.toFixed(1)} ms`;
  if (t < 1000) return `${Math.round(t)} ms`;
  if (t < 60000) return `${(t / 1000).toFixed(1)} s`;
  return `${Math.floor(t / 60000)} min ${Math.round((t % 60000) / 1000)} s`;
}

// bytes writes a size.
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

// announce tells a screen reader.
export function announce(text) { setText($('announce'), text); }

// colors reads colours of the style sheet, which differ by theme, for canvases.
export function colors(...names) {
  const style = getComputedStyle(document.documentElement);
  return names.map((n) => style.getPropertyValue(`--${n}`).trim());
}

// canvas2d fits a canvas to its place and the screen's density, and returns its context in CSS pixels.
export function canvas2d(canvas, height) {
  const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
  const w = Math.round(width * scale), hh = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== hh) [canvas.width, canvas.height] = [w, hh];
  const c = canvas.getContext('2d');
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, height);
  return { c, width };
}
