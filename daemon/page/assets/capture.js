// The camera and the microphone: what they see or hear now becomes a file of the message. They are on only while the
// dialog is open, and so is the question of the browser whether they may be.

import { $, announce, setText } from './dom.js';

const asks = { camera: { video: { facingMode: 'environment', width: { ideal: 1280 } } }, microphone: { audio: true } };
const titles = { camera: 'Take a picture', microphone: 'Record a sound' };
const mostSeconds = 59; // of a recording: a sound of a message may have 60

let now = null; // {what, stream, recorder, timer, give}: what the open dialog is about

const has = (what) => !!navigator.mediaDevices?.getUserMedia && (what === 'camera' || 'MediaRecorder' in window);
// A phone that knows the page by another address than this machine's own has no camera for scripts, but one for files.
const files = () => matchMedia('(pointer: coarse)').matches;

export function start(give) {
  for (const what of Object.keys(asks)) $(what).addEventListener('click', () => open(what, give));
  $('camera-file').addEventListener('change', async () => {
    await give([...$('camera-file').files]);
    $('camera-file').value = '';
  });
  $('capture-act').addEventListener('click', () => (now.what === 'camera' ? picture(now) : record(now)));
  $('capture-cancel').addEventListener('click', () => $('capture').close());
  $('capture').addEventListener('close', () => { if (!$('capture').open) off(); });
  document.addEventListener('visibilitychange', () => { if (document.hidden && now) $('capture').close(); });
}

// offer shows the buttons for what the model reads and the browser has.
export function offer(reads) {
  $('camera').hidden = !(reads.vision && (has('camera') || files()));
  $('microphone').hidden = !(reads.audio && has('microphone'));
}

// press is the key for a button; it does nothing where there is none.
export function press(what) { if (!$(what).hidden) $(what).click(); }

function say(text) { setText($('capture-note'), text); }

// off ends everything: no camera and no microphone is on afterwards.
function off() {
  const was = now;
  now = null;
  $('capture-view').srcObject = null;
  if (!was) return;
  clearInterval(was.timer);
  if (was.recorder?.state === 'recording') was.recorder.stop();
  was.stream?.getTracks().forEach((t) => t.stop());
}

async function open(what, give) {
  if ($('capture').open) return;
  if (!has(what)) { $('camera-file').click(); return; }
  const mine = now = { what, give, stream: null, recorder: null, timer: 0 };
  setText($('capture-title'), titles[what]);
  setText($('capture-act'), what === 'camera' ? 'Take' : 'Record');
  setText($('capture-time'), '');
  $('capture-act').disabled = true;
  $('capture-view').hidden = what !== 'camera';
  say(`Waiting for the ${what}. The browser may ask you for it.`);
  $('capture').showModal();
  try {
    const stream = await navigator.mediaDevices.getUserMedia(asks[what]);
    if (now !== mine) { stream.getTracks().forEach((t) => t.stop()); return; } // it was cancelled
    mine.stream = stream;
    for (const t of stream.getTracks()) t.addEventListener('ended', () => { if (now === mine) fail(`The ${what} is gone.`); });
    if (what === 'camera') {
      $('capture-view').srcObject = stream;
      await $('capture-view').play();
    }
    if (now !== mine) return;
    say(what === 'camera' ? 'The camera is on.' : 'The microphone is on. Record begins, at most a minute.');
    $('capture-act').disabled = false;
    $('capture-act').focus();
  } catch (e) {
    if (now === mine) fail(reason(e, what));
  }
}

function reason(e, what) {
  switch (e.name) {
    case 'NotAllowedError': case 'SecurityError':
      return `This page may not use the ${what}: allow it for this page in the browser's settings, or attach a file.`;
    case 'NotFoundError': case 'OverconstrainedError': return `This browser finds no ${what}: attach a file instead.`;
    case 'NotReadableError': case 'AbortError': return `The ${what} does not answer; another program may be using it.`;
    default: return `The ${what} cannot be used: ${e.message}`;
  }
}

function fail(why) {
  off();
  $('capture-act').disabled = true;
  setText($('capture-time'), '');
  say(why);
  $('capture-cancel').focus();
}

// attach closes the dialog and gives the file to the message.
async function attach(mine, blob, name) {
  if (now !== mine) return;
  off();
  $('capture').close();
  $('prompt').focus();
  if (blob?.size && await mine.give([new File([blob], `${name} ${new Date().toLocaleTimeString()}`, { type: blob.type })])) announce(`The ${name} is attached`);
}

async function picture(mine) {
  const view = $('capture-view'), canvas = document.createElement('canvas');
  $('capture-act').disabled = true;
  [canvas.width, canvas.height] = [view.videoWidth, view.videoHeight];
  canvas.getContext('2d').drawImage(view, 0, 0);
  canvas.toBlob((blob) => attach(mine, blob, 'picture'), 'image/jpeg', 0.95);
}

// record begins a recording, or ends the one that runs.
function record(mine) {
  if (mine.recorder) { mine.recorder.stop(); return; }
  const parts = [], began = performance.now();
  const recorder = mine.recorder = new MediaRecorder(mine.stream);
  recorder.addEventListener('dataavailable', (e) => parts.push(e.data));
  recorder.addEventListener('stop', () => attach(mine, new Blob(parts, { type: recorder.mimeType }), 'sound'));
  const show = () => {
    const s = Math.floor((performance.now() - began) / 1000);
    setText($('capture-time'), `${s} s of ${mostSeconds} s`);
    if (s >= mostSeconds && recorder.state === 'recording') recorder.stop();
  };
  recorder.start();
  mine.timer = setInterval(show, 250);
  show();
  setText($('capture-act'), 'Stop and attach');
  say('Recording.');
}
