package split

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// FuzzReadFrame: any bytes from a peer give frames within the limit or a FrameError, and memory grows with what was
// received, never with what was announced (split checks both).
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"), uint16(10))
	f.Add([]byte("\xff\xff\xff\x00"), uint16(3))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint16(300))
	f.Add([]byte("\x00\x00\x00\x00"), uint16(0))
	f.Fuzz(func(t *testing.T, stream []byte, max uint16) {
		payloads, err := split(t, int(max)+1, stream, nil)
		var whole []byte
		for _, p := range payloads {
			whole = wire.AppendFrame(whole, []byte(p))
		}
		if !bytes.HasPrefix(stream, whole) || err == nil && len(whole) != len(stream) {
			t.Fatalf("%d bytes in, %d bytes of frames out, %v", len(stream), len(whole), err)
		}
		Sniff(stream[:min(4, len(stream))], max%2 == 0)
	})
}

// FuzzSplit: however the bytes are cut on their way, the same frames and lines come out, and the same error.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}\x03\x00\x00\x00abc\x01\x00\x00\x00x"), []byte{0, 3}, uint8(10))
	f.Add([]byte("one\r\ntwo\n\nthree"), []byte{1}, uint8(5))
	f.Add([]byte("\x03\x00\x00\x00ab"), []byte{2, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, stream, cuts []byte, max uint8) {
		want, wantErr := split(t, int(max)+1, stream, nil)
		got, err := split(t, int(max)+1, stream, cuts)
		if !slices.Equal(got, want) || !sameError(err, wantErr) {
			t.Fatalf("frames %q, %v; uncut %q, %v", got, err, want, wantErr)
		}
		want, wantErr = lines(t, int(max)+1, stream, nil)
		got, err = lines(t, int(max)+1, stream, cuts)
		if !slices.Equal(got, want) || !sameError(err, wantErr) {
			t.Fatalf("lines %q, %v; uncut %q, %v", got, err, want, wantErr)
		}
		if wantErr == nil {
			whole := strings.ReplaceAll(strings.TrimSuffix(string(stream), "\n"), "\r\n", "\n")
			if joined := strings.Join(want, "\n"); joined != whole && joined != strings.TrimSuffix(whole, "\r") {
				t.Fatalf("lines %q of %q", want, stream)
			}
		}
	})
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}
