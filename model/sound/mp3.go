package sound

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/hajimehoshi/go-mp3"
)

// decodeMP3 reads the frames of an MP3, of which the decoder makes two channels of 16 bits.
func decodeMP3(data []byte, out *mixer) error {
	const channels, frame = 2, 4
	in := newTimedReader(data, out.deadline)
	d, err := mp3.NewDecoder(in)
	switch {
	case in.late != nil:
		return in.late
	case err != nil:
		return refuse("mp3: %s", strings.TrimPrefix(err.Error(), "mp3: "))
	}
	if err := out.begin(d.SampleRate(), channels); err != nil {
		return err
	}
	skip, left := mp3Bounds(data)
	buf := make([]byte, frame*blockFrames)
	for {
		n, err := io.ReadFull(d, buf)
		n /= frame
		first := min(skip, n)
		skip -= first
		take := min(n-first, left)
		left -= take
		if add := out.add(take, channels, func(i, c int) float32 {
			return float32(int16(binary.LittleEndian.Uint16(buf[frame*(first+i)+2*c:]))) / (1 << 15)
		}); add != nil {
			return add
		}
		switch {
		case in.late != nil:
			return in.late
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return refuse("mp3: %v", err)
		}
	}
}

// mp3Bounds returns how many of the decoded samples are before the recording, and the most that are of it. An encoder
// adds silence on both sides; LAME and others write how much into a first frame without sound (tags "Xing" and "Info",
// then LAME's), and a decoder's filters add decoderDelay. A file without these tags is taken as it is.
func mp3Bounds(data []byte) (skip, most int) {
	const (
		all          = math.MaxInt
		decoderDelay = 528 + 1 // samples, as LAME's own decoder and dr_mp3 have it
	)
	if len(data) < 4 || data[0] != 0xFF || data[1]&0xE6 != 0xE2 { // Layer III
		return 0, all
	}
	samples, side := 1152, 32 // of a frame; bytes of its side information
	mono := data[3]>>6 == 3
	switch mpeg1 := data[1]>>3&3 == 3; {
	case mpeg1 && mono:
		side = 17
	case !mpeg1:
		samples, side = 576, 17
		if mono {
			side = 9
		}
	}
	if data[1]&1 == 0 {
		side += 2 // a CRC
	}
	tag := data[min(4+side, len(data)):]
	const words = 4
	if len(tag) < 2*words || string(tag[:words]) != "Xing" && string(tag[:words]) != "Info" {
		return 0, all
	}
	flags := binary.BigEndian.Uint32(tag[words:])
	tag = tag[2*words:]
	frames := 0
	for bit, size := range []int{words, words, 100, words} { // frames, bytes, seek points, quality
		if flags>>bit&1 == 0 {
			continue
		}
		if len(tag) < size {
			return samples, all
		}
		if bit == 0 {
			frames = int(binary.BigEndian.Uint32(tag))
		}
		tag = tag[size:]
	}
	if len(tag) < 24 || tag[0] == 0 { // no encoder has signed
		return samples, all
	}
	delay := int(tag[21])<<4 | int(tag[22])>>4
	padding := int(tag[22]&0xF)<<8 | int(tag[23])
	skip, most = samples+delay+decoderDelay, all
	if n := frames*samples - delay - padding; frames > 0 && n > 0 {
		most = n
	}
	return skip, most
}
