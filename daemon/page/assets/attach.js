// Files that go with a message. Their text is read in the browser and becomes a part of the message; images and sounds
// go along where the model reads them.

import { $, announce, bytes, h } from './dom.js';
import * as capture from './capture.js';
import * as models from './models.js';
import * as picture from './picture.js';
import * as sound from './sound.js';
import { problem } from './sse.js';
import { ask } from './key.js';

const maxFiles = 8, maxFile = 256 << 10, maxAll = 512 << 10; // bytes
const images = /\.(png|jpe?g|gif|webp|bmp|svg|heic|avif|tiff?)$/i;
const sounds = /\.(wav|mp3|flac|ogg|opus|m4a|aac)$/i;
const documents = /\.(docx?|xlsx?|pptx?|odt|ods|odp|epub)$/i;

let files = []; // {name, text, image, sound} of the message that is being written

export function start() {
  $('attach').addEventListener('click', () => $('attach-file').click());
  $('attach-file').addEventListener('change', async () => {
    await take([...$('attach-file').files]);
    $('attach-file').value = '';
  });
  const composer = $('composer');
  composer.addEventListener('dragover', (e) => { if (e.dataTransfer.types.includes('Files')) e.preventDefault(); });
  composer.addEventListener('drop', (e) => {
    if (!e.dataTransfer.files.length) return;
    e.preventDefault();
    take([...e.dataTransfer.files]);
  });
  $('prompt').addEventListener('paste', (e) => {
    if (!e.clipboardData.files.length) return;
    e.preventDefault();
    take([...e.clipboardData.files]);
  });
  capture.start(take);
  models.onSenses(capture.offer);
}

// open shows the dialog that chooses files.
export const open = () => $('attach-file').click();

// taken returns the files, and forgets them.
export function taken() {
  const out = files;
  files = [];
  show('');
  return out;
}

export const some = () => files.length > 0;

// set replaces the files: those of a message that is written again.
export function set(list) { files = [...list]; show(''); }

// take adds files to the message; it reports whether all of them were taken.
async function take(list) {
  const refused = [];
  for (const file of list) {
    const why = await read(file);
    if (why) refused.push(`${file.name}: ${why}`);
  }
  show(refused.join(' '));
  if (refused.length) announce(refused.join(' '));
  return !refused.length;
}

// pdfText has the daemon read the text of a PDF file, and delete the file.
async function pdfText(file) {
  const form = new FormData();
  form.append('purpose', 'user_data');
  form.append('file', file, file.name);
  const sent = await ask('v1/files', { method: 'POST', body: form });
  if (!sent.ok) throw new Error(await problem(sent));
  const path = `v1/files/${(await sent.json()).id}`;
  try {
    const read = await ask(`${path}/text`);
    if (!read.ok) throw new Error(await problem(read));
    return (await read.json()).text;
  } finally {
    ask(path, { method: 'DELETE' }).catch(() => {}); // it expires by itself
  }
}

// read adds a file; it returns why it cannot, or ''.
async function read(file) {
  const all = files.reduce((n, f) => n + f.text.length, 0);
  if (files.length >= maxFiles) return `a message takes at most ${maxFiles} files.`;
  if (file.type.startsWith('image/') || images.test(file.name)) {
    if (!await models.reads('vision')) {
      return `${models.current()} reads text alone: choose a model that has a projector (--mmproj), or describe the picture in words.`;
    }
    const image = await picture.shrink(file);
    if (!image) return 'this browser cannot read the picture; PNG, JPEG, WebP and GIF work everywhere.';
    if (files.length >= maxFiles) return `a message takes at most ${maxFiles} files.`; // others came while it was read
    files.push({ name: file.name.slice(0, 200) || 'picture', text: '', image });
    return '';
  }
  if (file.type.startsWith('audio/') || sounds.test(file.name)) {
    if (!await models.reads('audio')) {
      return `${models.current()} hears nothing: choose a model that has a projector of sounds (--mmproj), or write what is said.`;
    }
    const heard = await sound.read(file);
    if (heard === null) return `it is longer than ${sound.longest}.`;
    if (!heard) return 'this browser cannot read the sound; WAV, MP3 and FLAC work everywhere.';
    if (files.length >= maxFiles) return `a message takes at most ${maxFiles} files.`;
    files.push({ name: file.name.slice(0, 200) || 'sound', text: '', sound: heard });
    return '';
  }
  if (documents.test(file.name)) {
    return 'this page reads text files and PDF only; copy the text of the document into the message, or keep it as PDF.';
  }
  let text, size = file.size;
  if (file.type === 'application/pdf' || /\.pdf$/i.test(file.name)) {
    try {
      text = await pdfText(file);
    } catch (e) {
      return `${e.message}.`;
    }
    size = text.length;
  }
  if (size > maxFile) return `it has ${bytes(size)}; a file may have ${bytes(maxFile)}.`;
  if (all + size > maxAll) return `the files of a message may have ${bytes(maxAll)} together.`;
  try {
    text ??= new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    text = '\0';
  }
  if (text.includes('\0')) return 'it is no text in UTF-8.';
  if (files.length >= maxFiles) return `a message takes at most ${maxFiles} files.`; // others came while it was read
  files.push({ name: file.name.slice(0, 200), text });
  return '';
}

function show(problem) {
  $('attached').replaceChildren(...files.map((f) => h('li', null, f.image ? picture.thumb(f) : null, h('span', null, f.name),
    h('span', { class: 'figure' }, bytes((f.image || f.sound || f.text).length)),
    h('button', { type: 'button', class: 'icon', 'aria-label': `Remove ${f.name}`, onclick: () => {
      files = files.filter((other) => other !== f);
      show('');
      $('prompt').focus();
    } }, '✕'))));
  $('attached').hidden = !files.length;
  $('attach-problem').textContent = problem;
  $('attach-problem').hidden = !problem;
}

// textOf is what the model reads: the message, then each file with its name, between fences that the file does not have.
export function textOf(message) {
  const parts = [message.content];
  for (const f of message.files || []) {
    if (f.image || f.sound) continue;
    const longest = Math.max(2, ...[...f.text.matchAll(/`+/g)].map((m) => m[0].length));
    const fence = '`'.repeat(longest + 1);
    parts.push(`File ${JSON.stringify(f.name)}:\n${fence}\n${f.text}${f.text.endsWith('\n') ? '' : '\n'}${fence}`);
  }
  return parts.filter(Boolean).join('\n\n');
}

// contentOf is the content of a message in a request: its images and sounds, if it has any, and its text.
export function contentOf(message) {
  const text = textOf(message);
  const parts = (message.files || []).filter((f) => f.image || f.sound).map((f) => (f.image ?
    { type: 'image_url', image_url: { url: f.image } } : { type: 'input_audio', input_audio: { data: f.sound, format: 'wav' } }));
  if (!parts.length) return text;
  return text ? [...parts, { type: 'text', text }] : parts;
}
