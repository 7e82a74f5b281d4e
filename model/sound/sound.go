// Package sound decodes recordings: WAV, FLAC and MP3, as samples of one channel. The bytes are a client's, so that
// every limit holds before memory or time is spent: on the bytes by the caller, on the length and the time while they
// are decoded. It is Go's code alone: no decoder of C sees the bytes.
package sound

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/model/upload"
	"github.com/uma-serve/uma-serve/runtime"
)

// Limits of a recording.
const (
	MaxLength   = 10 * time.Minute
	MaxRate     = 192_000 // samples a second
	MinRate     = 1_000
	MaxChannels = 8
	MaxTime     = 10 * time.Second
)

// ErrSound is wrapped by all errors about the bytes of a recording.
var ErrSound = errors.New("sound cannot be read")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSound, fmt.Sprintf(format, args...))
}

// FromText returns the bytes of a recording that a client sent as text (upload.Bytes).
func FromText(text string) ([]byte, error) {
	data, err := upload.Bytes(text, "audio/wav")
	if err != nil {
		return nil, refuse("%v", err)
	}
	return data, nil
}

// Hash names a recording. No picture of the same bytes has its name.
func Hash(data []byte) [32]byte {
	h := sha256.New()
	io.WriteString(h, "sound\x00")
	h.Write(data)
	return [32]byte(h.Sum(nil))
}

// Decode decodes a recording, mixes its channels equally and gives it that rate, in samples a second. All errors wrap
// ErrSound.
func Decode(data []byte, rate int) (*runtime.Sound, error) {
	return decode(data, rate, time.Now().Add(MaxTime))
}

func decode(data []byte, rate int, deadline time.Time) (s *runtime.Sound, err error) {
	defer func() {
		if r := recover(); r != nil { // of a decoder
			s, err = nil, refuse("its decoder fails: %v", r)
		}
	}()
	out := &mixer{rate: rate, deadline: deadline}
	switch body := withoutID3(data); {
	case bytes.HasPrefix(data, []byte("RIFF")):
		err = decodeWAV(data, out)
	case bytes.HasPrefix(body, []byte("fLaC")):
		err = decodeFLAC(body, out)
	case len(body) < len(data), len(body) > 1 && body[0] == 0xFF && body[1]&0xE0 == 0xE0: // a tag, or a frame's begin
		err = decodeMP3(body, out)
	default:
		err = refuse("WAV, FLAC and MP3 are read; it begins with %q", data[:min(len(data), 8)])
	}
	if err != nil {
		return nil, err
	}
	samples, err := out.end()
	if err != nil {
		return nil, err
	}
	return &runtime.Sound{Samples: samples}, nil
}

// withoutID3 returns data behind its tag, whose size is four times seven bits.
func withoutID3(data []byte) []byte {
	const header, footer = 10, 10
	if len(data) < header || string(data[:3]) != "ID3" {
		return data
	}
	n := header
	for i, b := range data[6:header] {
		n += int(b&0x7F) << (7 * (3 - i))
	}
	if data[5]&0x10 != 0 {
		n += footer
	}
	return data[min(n, len(data)):]
}

// mixer makes one channel of the frames that a decoder passes to it, at the wanted rate.
type mixer struct {
	rate     int // wanted
	deadline time.Time
	to       *resampler
	most     int // frames, for MaxLength
	frames   int
	block    []float32
}

// begin says what the frames are.
func (m *mixer) begin(rate, channels int) error {
	switch {
	case rate < MinRate || rate > MaxRate:
		return refuse("it has %d samples a second; %d … %d are read", rate, MinRate, MaxRate)
	case channels < 1 || channels > MaxChannels:
		return refuse("it has %d channels; 1 … %d are read", channels, MaxChannels)
	}
	m.to = newResampler(rate, m.rate)
	m.most = int(MaxLength.Seconds()) * rate
	return nil
}

// tooLong is the error of a recording of more than MaxLength.
func (m *mixer) tooLong() error {
	return refuse("it is longer than %v: cut it", MaxLength)
}

// add takes n frames; at returns sample i of channel c.
func (m *mixer) add(n, channels int, at func(i, c int) float32) error {
	if m.frames += n; m.frames > m.most {
		return m.tooLong()
	}
	m.block = m.block[:0]
	for i := range n {
		sum := float32(0)
		for c := range channels {
			sum += at(i, c)
		}
		sum /= float32(channels)
		if math.IsNaN(float64(sum)) {
			return refuse("sample %d is no number", m.frames-n+i)
		}
		m.block = append(m.block, max(-1, min(sum, 1)))
	}
	if time.Now().After(m.deadline) {
		return refuse("decoding it takes longer than %v", MaxTime)
	}
	m.to.add(m.block)
	return nil
}

// end returns all samples.
func (m *mixer) end() ([]float32, error) {
	if m.frames == 0 {
		return nil, refuse("it has no samples")
	}
	return m.to.end(), nil
}
