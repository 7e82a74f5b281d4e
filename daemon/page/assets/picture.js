// Pictures of messages: made smaller before they are sent and stored, and shown on a canvas. The page's policy lets no
// picture come from elsewhere, a data: URL included.

import { h } from './dom.js';

const maxSide = 1024, thumbSide = 96, quality = 0.9;

// draw returns a canvas with the picture, no side longer than most.
function draw(bitmap, most, canvas = document.createElement('canvas')) {
  const scale = Math.min(1, most / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext('2d');
  context.fillStyle = '#fff'; // as the server lays transparent pixels
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

// shrink returns a file as a data: URL of a JPEG, '' where the browser cannot read it.
export async function shrink(file) {
  try {
    return draw(await createImageBitmap(file), maxSide).toDataURL('image/jpeg', quality);
  } catch {
    return '';
  }
}

// thumb is a small view of a file's picture.
export function thumb(file) {
  const canvas = h('canvas', { class: 'thumb', role: 'img', 'aria-label': file.name, width: 1, height: 1 });
  const data = Uint8Array.from(atob(file.image.slice(file.image.indexOf(',') + 1)), (c) => c.charCodeAt(0));
  createImageBitmap(new Blob([data], { type: 'image/jpeg' })).then((b) => draw(b, thumbSide, canvas)).catch(() => {});
  return canvas;
}
