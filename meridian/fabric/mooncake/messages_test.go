package mooncake

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// Recorded answers of mooncake_master 0.3.13.post1.
var (
	recordedReady = typeReady + "\x01\x052.0.0"
	recordedPlace = unhex("01010100000000000000" + "00e803000000000000" + "0000007a8e7f0000" + "03746370" +
		"0f3132372e302e302e313a3132343736")
	recordedStart = typePlaces + recordedPlace + "\x02\x00\x00\x00"
	recordedFind  = typePlacesFor + recordedPlace + "\x03\x00\x00\x00" + "\x10\x27\x00\x00\x00\x00\x00\x00\x00"
)

func unhex(digits string) string {
	b, err := hex.DecodeString(digits)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func failed(kind string, code int32) string {
	return kind + "\x00" + string(binary.LittleEndian.AppendUint32(nil, uint32(code)))
}

// TestFunctions: the numbers that a client of 0.3.13 sends.
func TestFunctions(t *testing.T) {
	for method, want := range map[string]uint32{"ServiceReady": 0x7b81bb56, "ExistKey": 0x89385f09,
		"PutStart": 0x65ea9ac1, "PutEnd": 0x8e8b2099, "GetReplicaList": 0x1f7ef174, "Remove": 0xf1b09774,
		"PutRevoke": 0xa0767c44} {
		if got := function(method); got != want {
			t.Errorf("%s is %#x, want %#x", method, got, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	if v, err := parseReady([]byte(recordedReady)); v != "2.0.0" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	want := place{1000, 0x7f8e7a000000, "127.0.0.1:12476"}
	if p, err := parsePlace("PutStart", []byte(recordedStart), false); p != want || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := parsePlace("GetReplicaList", []byte(recordedFind), true); p != want || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if is, err := parseExists([]byte(typeExists + "\x01\x01")); !is || err != nil {
		t.Error(is, err)
	}
	for code, says := range map[int32]string{-200: "no node has room", -703: "another client writes",
		-704: "no such value", -705: "exists", -706: "lease", -1: "error -1"} {
		if err := parseDone("Remove", []byte(failed(typeDone, code))); !isCode(err, codeError(code)) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// TestAnswersRefused: answers cut off anywhere, with a byte more, of another type, with other contents.
func TestAnswersRefused(t *testing.T) {
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fault.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range len(recordedFind) {
		_, err := parsePlace("GetReplicaList", []byte(recordedFind[:n]), true)
		refused("cut", err)
	}
	_, err := parsePlace("GetReplicaList", []byte(recordedFind+"\x00"), true)
	refused("a byte more", err)
	_, err = parsePlace("GetReplicaList", []byte(recordedStart), true)
	refused("another type", err)
	if !strings.Contains(err.Error(), "GetReplicaList") || !strings.Contains(err.Error(), "known are 0.3.13") {
		t.Error(err)
	}
	_, err = parsePlace("PutStart", []byte(strings.Replace(recordedStart, "\x03tcp", "\x04rdma", 1)), false)
	refused("another protocol", err)
	if !strings.Contains(err.Error(), "--protocol=tcp") {
		t.Error(err)
	}
	_, err = parsePlace("PutStart", []byte(typePlaces+"\x01\x00"), false)
	refused("no replica", err)
	_, err = parseExists([]byte(typeExists + "\x01\x07"))
	refused("a bool of 7", err)
	if _, err = parsePlace("GetReplicaList", []byte(typePlacesFor+recordedPlace+"\x02\x00\x00\x00"), true); !isCode(err,
		codeNotReady) {
		t.Errorf("a value that is being written: %v", err)
	}
	for what, b := range map[string]string{"no JSON": "x", "no port": `{"tcp_data_host":"h","tcp_proto_version":2}`,
		"version 1":           `{"tcp_data_host":"h","tcp_data_port":1,"tcp_proto_version":1}`,
		"a host with a space": `{"tcp_data_host":"h x","tcp_data_port":1,"tcp_proto_version":2}`,
		"a port above 65535":  `{"tcp_data_host":"h","tcp_data_port":65536,"tcp_proto_version":2}`,
		"long":                strings.Repeat(" ", maxMetadata+1)} {
		if a, err := parseSegment([]byte(b)); err == nil || a != "" {
			t.Errorf("%s: %q", what, a)
		}
	}
}

// answering is a server that reads what comes and answers each connection with the same bytes.
func answering(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().String()
}

func frame(failed byte, sequence, length uint32, body string) string {
	b := []byte{rpcMagic, 0, failed, 0}
	b = binary.LittleEndian.AppendUint32(b, sequence)
	b = binary.LittleEndian.AppendUint32(b, length)
	return string(binary.LittleEndian.AppendUint32(b, 0)) + body
}

// TestHostileMaster: what answers is no master, or lies. Every operation fails with a reason.
func TestHostileMaster(t *testing.T) {
	key, err := seal.NewKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	whole := func(body string) string { return frame(0, 1, uint32(len(body)), body) }
	for answer, says := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n": "does not speak coro_rpc",
		frame(0, 1, 1<<30, ""):             "the limit is 1048576",
		frame(0, 9, 0, ""):                 "answers call 9",
		frame(4, 1, 3, "bad"):              `refuses the call: ServiceReady: error 4: "bad"`,
		whole("nothing that is known"):     "of a version that is not known",
		whole(typeReady + "\x01\x053.0.0"): `version "3.0.0", want "2.0.0"`,
	} {
		f := New(Config{Master: answering(t, answer), Metadata: "http://127.0.0.1:1/metadata", Key: key,
			MaxBytes: 1 << 20, ConnectTimeout: time.Second})
		_, err := f.Pull(context.Background(), "k", nil)
		if !errors.Is(err, fault.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %q", answer, err, says)
		}
		f.Close()
	}
	f := New(Config{Master: answering(t, ""), Key: key, MaxBytes: 1 << 20, ConnectTimeout: time.Second})
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = f.Push(ctx, "k", nil)
	if !errors.Is(err, fault.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent master: %v", err)
	}
	if err := f.Push(context.Background(), "k", make([]byte, 1<<20+1)); !errors.Is(err, fault.ErrTooLarge) {
		t.Errorf("above max: %v", err)
	}
}

func FuzzAnswerHeader(f *testing.F) {
	f.Add([]byte(frame(0, 1, 17, "")))
	f.Add([]byte("HTTP/1.1 400 Bad"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseAnswerHeader(b)
		if err == nil && (h.length < 0 || h.length > maxAnswer) {
			t.Errorf("length %d", h.length)
		}
	})
}

// FuzzAnswer parses every kind of answer.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{recordedReady, recordedStart, recordedFind, typeExists + "\x01\x01", typeDone + "\x01",
		failed(typeDone, -705), failed(typePlaces, -200), failed(typePlacesFor, -704)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := parseReady(b); err == nil && len(v) > 255 {
			t.Errorf("version %q", v)
		}
		if is, err := parseExists(b); err != nil && is {
			t.Error("exists beside an error")
		}
		_ = parseDone("Remove", b)
		for _, leased := range []bool{false, true} {
			if p, err := parsePlace("GetReplicaList", b, leased); err != nil && p != (place{}) {
				t.Errorf("%+v beside %v", p, err)
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	f.Add([]byte(`{"tcp_data_host":"127.0.0.1","tcp_data_port":15676,"tcp_proto_version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		address, err := parseSegment(b)
		if err != nil {
			return
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add(uint64(statusOK))
	f.Add(uint64(statusOK + 1))
	f.Fuzz(func(t *testing.T, s uint64) {
		if err := parseStatus(binary.LittleEndian.AppendUint64(nil, s)); (err == nil) != (s == statusOK) {
			t.Errorf("%#x: %v", s, err)
		}
	})
}
