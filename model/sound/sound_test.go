package sound

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mewkiz/flac"
	"github.com/mewkiz/flac/frame"
	"github.com/mewkiz/flac/meta"
)

// tone returns half a second of a sine at 440 Hz.
func tone(rate int, size float64) []float64 {
	out := make([]float64, rate/2)
	for i := range out {
		out[i] = size * math.Sin(2*math.Pi*440*float64(i)/float64(rate))
	}
	return out
}

// wav writes samples, the same in each channel.
func wav(samples []float64, rate, channels, code, bits int) []byte {
	le := binary.LittleEndian
	var body []byte
	for _, v := range samples {
		for range channels {
			switch {
			case code == wavFloats && bits == 32:
				body = le.AppendUint32(body, math.Float32bits(float32(v)))
			case code == wavFloats:
				body = le.AppendUint64(body, math.Float64bits(v))
			case bits == 8:
				body = append(body, byte(128+int(v*127)))
			default:
				n := uint32(int32(v * float64(int64(1)<<(bits-1)-1)))
				for i := range bits / 8 {
					body = append(body, byte(n>>(8*i)))
				}
			}
		}
	}
	out := append([]byte("RIFF"), 0, 0, 0, 0)
	out = append(out, "WAVEfmt \x10\x00\x00\x00"...)
	out = le.AppendUint16(out, uint16(code))
	out = le.AppendUint16(out, uint16(channels))
	out = le.AppendUint32(out, uint32(rate))
	out = le.AppendUint32(out, uint32(rate*channels*bits/8))
	out = le.AppendUint16(out, uint16(channels*bits/8))
	out = le.AppendUint16(out, uint16(bits))
	out = append(out, "LIST\x03\x00\x00\x00abc\x00data"...) // a chunk of odd length before the samples
	out = le.AppendUint32(out, uint32(len(body)))
	return append(out, body...)
}

func flacOf(t testing.TB, samples []float64, rate, channels int) []byte {
	t.Helper()
	const block = 4096
	var b bytes.Buffer
	enc, err := flac.NewEncoder(&b, &meta.StreamInfo{BlockSizeMin: block, BlockSizeMax: block, SampleRate: uint32(rate),
		NChannels: uint8(channels), BitsPerSample: 16, NSamples: uint64(len(samples))})
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(samples); from += block {
		part := samples[from:min(from+block, len(samples))]
		f := &frame.Frame{Header: frame.Header{HasFixedBlockSize: false, BlockSize: uint16(len(part)),
			SampleRate: uint32(rate), Channels: frame.Channels(channels - 1), BitsPerSample: 16, Num: uint64(from)}}
		for range channels {
			sub := &frame.Subframe{SubHeader: frame.SubHeader{Pred: frame.PredVerbatim}, NSamples: len(part)}
			for _, v := range part {
				sub.Samples = append(sub.Samples, int32(v*32767))
			}
			f.Subframes = append(f.Subframes, sub)
		}
		if err := enc.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// far returns the largest difference between samples and a tone of that size, over the middle of both, where they have
// the same phase at best: coders put silence before a recording.
func far(samples []float32, rate int, size float64) float64 {
	best := math.Inf(1)
	for shift := range rate / 440 * 4 {
		most := 0.
		for i := len(samples) / 4; i < len(samples)/2; i++ {
			most = max(most, math.Abs(float64(samples[i])-
				size*math.Sin(2*math.Pi*440*(float64(i)+float64(shift)/4)/float64(rate))))
		}
		best = min(best, most)
	}
	return best
}

// TestDecode: each format, rate and number of channels gives the tone.
func TestDecode(t *testing.T) {
	const rate, size = 16000, 0.4
	for name, c := range map[string]struct {
		data []byte
		most float64
	}{
		"8 bits":      {wav(tone(16000, size), 16000, 1, wavIntegers, 8), 0.02},
		"16 bits":     {wav(tone(16000, size), 16000, 1, wavIntegers, 16), 1e-4},
		"24 bits":     {wav(tone(48000, size), 48000, 2, wavIntegers, 24), 1e-3},
		"32 bits":     {wav(tone(44100, size), 44100, 6, wavIntegers, 32), 1e-3},
		"floats":      {wav(tone(8000, size), 8000, 1, wavFloats, 32), 1e-3},
		"doubles":     {wav(tone(22050, size), 22050, 2, wavFloats, 64), 1e-3},
		"odd rate":    {wav(tone(44101, size), 44101, 1, wavIntegers, 16), 2e-3},
		"flac":        {flacOf(t, tone(16000, size), 16000, 1), 1e-4},
		"flac stereo": {flacOf(t, tone(96000, size), 96000, 2), 1e-3},
		"tagged flac": {append([]byte("ID3\x04\x00\x00\x00\x00\x00\x02xx"), flacOf(t, tone(16000, size), 16000, 2)...),
			1e-4},
		"mp3":        {file(t, "tone-44100-stereo.mp3"), 0.12},
		"mono mp3":   {file(t, "tone-16000-mono.mp3"), 0.12},
		"tagged mp3": {append([]byte("ID3\x04\x00\x00\x00\x00\x00\x02xx"), file(t, "tone-16000-mono.mp3")...), 0.12},
	} {
		s, err := Decode(c.data, rate)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := len(s.Samples); n < rate/2 || n > rate/2+rate/8 {
			t.Errorf("%s: %d samples", name, n)
		}
		of := size
		if strings.Contains(name, "mp3") {
			of = 12000. / 32768
		}
		if d := far(s.Samples, rate, of); d > c.most {
			t.Errorf("%s: %.5f off", name, d)
		}
	}
	// At the wanted rate nothing changes.
	s, err := Decode(wav([]float64{0.5, -1, 0.25}, rate, 1, wavFloats, 32), rate)
	if err != nil || len(s.Samples) != 3 || s.Samples[0] != 0.5 || s.Samples[1] != -1 {
		t.Errorf("%v %v", s, err)
	}
}

// tagged returns an MP3 of mono frames with an encoder's tag before them.
func tagged(mp3 []byte, signed string, delay, padding, frames int) []byte {
	head := [4]byte(mp3[:4]) // of the first frame, which has the same length
	length := 1 + bytes.Index(mp3[1:], head[:3])
	tag := bytes.Clone(mp3[:length])
	clear(tag[4:])
	side := 9
	if head[1]>>3&3 == 3 {
		side = 17
	}
	body := tag[4+side:]
	copy(body, "Info")
	body[7] = 0b1001 // frames and quality
	binary.BigEndian.PutUint32(body[8:], uint32(frames))
	copy(body[16:], signed)
	body[16+21], body[16+22], body[16+23] = byte(delay>>4), byte(delay<<4|padding>>8), byte(padding)
	return append(tag, mp3...)
}

// TestSilenceOfAnEncoder: what an encoder has added before and behind a recording, and says so, is no part of it.
func TestSilenceOfAnEncoder(t *testing.T) {
	const rate, frame = 16000, 576
	mp3 := file(t, "tone-16000-mono.mp3")
	plain, err := Decode(mp3, rate)
	if err != nil {
		t.Fatal(err)
	}
	frames := len(plain.Samples) / frame
	for _, c := range []struct {
		signed                 string
		delay, padding, frames int
		skip, n                int // of the plain samples
	}{
		{"LAME3.100", 576, 1000, frames, 576 + 529, frames*frame - 1576},
		{"LAME3.100", 576, 0, 0, 576 + 529, len(plain.Samples) - 576 - 529}, // the length is not known
		{"", 576, 1000, frames, 0, len(plain.Samples)},                      // no encoder has signed
		{"LAME3.100", 4095, 4095, 1, 4095 + 529, len(plain.Samples) - 4095 - 529},
	} {
		data := tagged(mp3, c.signed, c.delay, c.padding, c.frames)
		s, err := Decode(data, rate)
		if err != nil {
			t.Fatal(err)
		}
		want := plain.Samples[c.skip:][:min(c.n, len(plain.Samples)-c.skip)]
		if len(s.Samples) != len(want) {
			t.Errorf("%+v: %d samples, want %d", c, len(s.Samples), len(want))
			continue
		}
		for i := range want {
			if math.Abs(float64(s.Samples[i]-want[i])) > 1e-4 {
				t.Errorf("%+v: sample %d is %v, want %v", c, i, s.Samples[i], want[i])
				break
			}
		}
		for n := range len(data) { // a file that is cut anywhere
			if skip, most := mp3Bounds(data[:min(n, 200)]); skip < 0 || most <= 0 {
				t.Fatalf("%d bytes: %d, %d", n, skip, most)
			}
		}
	}
}

// TestResampleKeepsOthersOut: what is above the lower rate's half is gone, and what is below it is there.
func TestResampleKeepsOthersOut(t *testing.T) {
	const from, to = 48000, 16000
	for hz, want := range map[float64]float64{300: 1, 3000: 1, 6500: 1, 9000: 0, 15000: 0, 23000: 0} {
		r := newResampler(from, to)
		var in []float32
		for i := range from {
			in = append(in, float32(math.Sin(2*math.Pi*hz*float64(i)/from)))
		}
		for len(in) > 0 { // in uneven parts
			n := min(len(in), 1+len(in)%777)
			r.add(in[:n])
			in = in[n:]
		}
		out, sum := r.end(), 0.
		for _, v := range out[to/4 : to*3/4] {
			sum += float64(v) * float64(v)
		}
		if size := math.Sqrt(2 * sum / (to / 2)); math.Abs(size-want) > 0.02 || len(out) != to {
			t.Errorf("%.0f Hz: %.4f of it, want %.0f; %d samples", hz, size, want, len(out))
		}
	}
}

// TestRefused: what cannot be read is refused with its reason.
func TestRefused(t *testing.T) {
	whole := wav(tone(16000, 0.4), 16000, 1, wavIntegers, 16)
	changed := func(at int, b ...byte) []byte {
		out := bytes.Clone(whole)
		copy(out[at:], b)
		return out
	}
	silent := flacOf(t, tone(16000, 0.4), 16000, 1)
	picture := bytes.Clone(silent)
	picture[4] = 6 // a block that has its own sizes
	long := wav(make([]float64, 601*MinRate), MinRate, 1, wavIntegers, 8)
	nan := wav([]float64{0, math.NaN()}, 16000, 1, wavFloats, 32)
	for want, data := range map[string][]byte{
		"WAV, FLAC and MP3 are read": []byte("no sound"),
		"another kind":               []byte("RIFF\x00\x00\x00\x00AVI LIST"),
		"it has no samples":          whole[:40],
		"code 6 with 16 bits":        changed(20, 6),
		"0 channels":                 changed(22, 0, 0),
		"9 channels":                 changed(22, 9, 0),
		"4294967295 samples":         changed(24, 255, 255, 255, 255),
		"frames of 7 bytes":          changed(32, 7, 0),
		"before their format":        changed(12, []byte("data")...),
		"sample 1 is no number":      nan,
		"longer than 10m0s":          long,
		"no description":             picture,
		"flac: ":                     silent[:len(silent)/2],
		"mp3: ":                      {0xFF, 0xFB, 0x90, 0x00, 0, 0},
	} {
		s, err := Decode(data, 16000)
		if !errors.Is(err, ErrSound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v", want, s, err)
		}
	}
	for _, data := range [][]byte{whole, silent, file(t, "tone-16000-mono.mp3")} {
		if _, err := decode(data, 16000, time.Now().Add(-time.Second)); err == nil ||
			!strings.Contains(err.Error(), "takes longer") {
			t.Errorf("late: %v", err)
		}
	}
}

// FuzzDecode: no bytes end the process, and what is decoded is within the limits.
func FuzzDecode(f *testing.F) {
	f.Add(wav(tone(8000, 0.4)[:64], 8000, 2, wavIntegers, 24))
	f.Add(wav(tone(8000, 0.4)[:64], 44100, 1, wavFloats, 32))
	f.Add(flacOf(f, tone(8000, 0.4)[:64], 8000, 2))
	f.Add(file(f, "tone-16000-mono.mp3")[:1200])
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decode(data, 16000, time.Now().Add(time.Second))
		switch {
		case err != nil && !errors.Is(err, ErrSound):
			t.Errorf("%v", err)
		case err == nil && (len(s.Samples) == 0 || len(s.Samples) > int(MaxLength.Seconds())*16000+1):
			t.Errorf("%d samples", len(s.Samples))
		}
		for i := 0; err == nil && i < len(s.Samples); i++ {
			if v := s.Samples[i]; !(v >= -4 && v <= 4) {
				t.Fatalf("sample %d is %v", i, v)
			}
		}
	})
}
