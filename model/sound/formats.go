package sound

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"time"

	"github.com/mewkiz/flac"
)

// blockFrames are the frames that a mixer gets at once.
const blockFrames = 4096

// The codes of a WAV's samples.
const (
	wavIntegers   = 1
	wavFloats     = 3
	wavExtensible = 0xFFFE // the code stands further behind
)

// wavForm is the format of a WAV's samples.
type wavForm struct {
	code, channels, rate, frame, bits int
}

// decodeWAV reads the chunks of a WAV up to its samples. A file that was written to a pipe has no length of them.
func decodeWAV(data []byte, out *mixer) error {
	if len(data) < 12 || string(data[8:12]) != "WAVE" {
		return refuse("wav: it is a RIFF file of another kind than WAVE")
	}
	var form *wavForm
	for rest := data[12:]; len(rest) >= 8; {
		name, n := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:]))
		body := rest[8:]
		body = body[:min(n, int64(len(body)))]
		switch {
		case name == "fmt ":
			if len(body) < 16 {
				return refuse("wav: its format has %d bytes", len(body))
			}
			form = readForm(body)
		case name == "data" && form == nil:
			return refuse("wav: its samples come before their format")
		case name == "data":
			return form.decode(body, out)
		}
		rest = rest[min(8+n+n&1, int64(len(rest))):]
	}
	return refuse("wav: it has no samples")
}

func readForm(body []byte) *wavForm {
	at := func(i int) int { return int(binary.LittleEndian.Uint16(body[i:])) }
	f := &wavForm{code: at(0), channels: at(2), rate: int(binary.LittleEndian.Uint32(body[4:])), frame: at(12),
		bits: at(14)}
	if f.code == wavExtensible && len(body) >= 26 {
		f.code = at(24)
	}
	return f
}

func (f *wavForm) decode(body []byte, out *mixer) error {
	le := binary.LittleEndian
	var at func(b []byte) float32
	switch [2]int{f.code, f.bits} {
	case [2]int{wavIntegers, 8}:
		at = func(b []byte) float32 { return float32(int(b[0])-128) / (1 << 7) }
	case [2]int{wavIntegers, 16}:
		at = func(b []byte) float32 { return float32(int16(le.Uint16(b))) / (1 << 15) }
	case [2]int{wavIntegers, 24}:
		at = func(b []byte) float32 {
			return float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)>>8) / (1 << 23)
		}
	case [2]int{wavIntegers, 32}:
		at = func(b []byte) float32 { return float32(int32(le.Uint32(b))) / (1 << 31) }
	case [2]int{wavFloats, 32}:
		at = func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }
	case [2]int{wavFloats, 64}:
		at = func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) }
	default:
		return refuse("wav: its samples have code %d with %d bits; integers (1) of 8, 16, 24 and 32 bits and floats "+
			"(3) of 32 and 64 are read", f.code, f.bits)
	}
	if err := out.begin(f.rate, f.channels); err != nil {
		return err
	}
	width := f.bits / 8
	if f.frame != width*f.channels {
		return refuse("wav: %d channels of %d bits have frames of %d bytes", f.channels, f.bits, f.frame)
	}
	if len(body)/f.frame > out.most {
		return out.tooLong()
	}
	for len(body) >= f.frame {
		n := min(blockFrames, len(body)/f.frame)
		if err := out.add(n, f.channels, func(i, c int) float32 { return at(body[i*f.frame+c*width:]) }); err != nil {
			return err
		}
		body = body[n*f.frame:]
	}
	return nil
}

// timedReader returns no byte after the deadline: a file may cost time and no samples.
type timedReader struct {
	r        bytes.Reader
	deadline time.Time
	late     error // what Read has returned after it
}

func newTimedReader(data []byte, deadline time.Time) *timedReader {
	t := &timedReader{deadline: deadline}
	t.r.Reset(data)
	return t
}

func (t *timedReader) Read(p []byte) (int, error) {
	if time.Now().After(t.deadline) {
		t.late = refuse("decoding it takes longer than %v", MaxTime)
		return 0, t.late
	}
	return t.r.Read(p)
}

// decodeFLAC reads a FLAC stream. Its first block of metadata is looked at before the decoder does, which trusts the
// sizes in others; those it skips.
func decodeFLAC(data []byte, out *mixer) error {
	const streamInfo = 34 // bytes
	if len(data) < 8+streamInfo || data[4]&0x7F != 0 || data[5] != 0 || data[6] != 0 || data[7] != streamInfo {
		return refuse("flac: it has no description of its stream")
	}
	in := newTimedReader(data, out.deadline)
	s, err := flac.New(in)
	if err != nil {
		return refuse("flac: %v", err)
	}
	channels := int(s.Info.NChannels)
	if err := out.begin(int(s.Info.SampleRate), channels); err != nil {
		return err
	}
	switch bits := s.Info.BitsPerSample; {
	case bits < 1 || bits > 32:
		return refuse("flac: its samples have %d bits", bits)
	case s.Info.NSamples > uint64(out.most):
		return out.tooLong()
	}
	scale := 1 / float32(uint64(1)<<(s.Info.BitsPerSample-1))
	for {
		f, err := s.ParseNext()
		switch {
		case in.late != nil:
			return in.late
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return refuse("flac: %v", err)
		case len(f.Subframes) != channels:
			return refuse("flac: a frame has %d channels, its stream %d", len(f.Subframes), channels)
		}
		n := len(f.Subframes[0].Samples)
		for _, sub := range f.Subframes {
			n = min(n, len(sub.Samples))
		}
		if err := out.add(n, channels, func(i, c int) float32 {
			return float32(f.Subframes[c].Samples[i]) * scale
		}); err != nil {
			return err
		}
	}
}
