// Sounds of messages: made one channel of 16,000 samples a second, as a WAV, before they are sent and stored.

const rate = 16000, maxSeconds = 60, head = 44; // bytes before the samples

export const longest = `${maxSeconds} s`;

// read returns a file as base64 of a WAV, '' where the browser cannot read it, and null where it is too long.
export async function read(file) {
  try {
    const context = new OfflineAudioContext(1, 1, rate); // what it decodes has its rate
    const sound = await context.decodeAudioData(await file.arrayBuffer());
    return sound.duration > maxSeconds ? null : await base64(wav(mixed(sound)));
  } catch {
    return '';
  }
}

function mixed(sound) {
  const out = new Float32Array(sound.length);
  for (let c = 0; c < sound.numberOfChannels; c++) {
    sound.getChannelData(c).forEach((v, i) => { out[i] += v / sound.numberOfChannels; });
  }
  return out;
}

// wav writes samples of 16 bits.
function wav(samples) {
  const view = new DataView(new ArrayBuffer(head + 2 * samples.length));
  const text = (at, s) => [...s].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, view.byteLength - 8, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // integers
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((v, i) => view.setInt16(head + 2 * i, Math.max(-1, Math.min(1, v)) * 32767, true));
  return view.buffer;
}

function base64(buffer) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.onerror = failed;
    reader.readAsDataURL(new Blob([buffer]));
  });
}
