package format

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; read the difference before you keep it")

func origin() Origin {
	o := Origin{EngineBuild: "llama.cpp 0c1e57098", KVTypeK: "f16", KVTypeV: "q8_0"}
	for i := range o.Fingerprint {
		o.Fingerprint[i] = byte(i)
	}
	return o
}

// samples are the golden files: name → header and payload.
func samples() map[string]struct {
	h       Header
	payload []byte
} {
	all := []Token{1, 2, 3, 0x01020304, 500, -1, 7}
	payload := []byte("thirty-two bytes of pretend KV..")
	begin := Header{Origin: origin(), Namespace: 1000, P0: 0, P1: 4, Tokens: all[:4], Created: 1_770_000_000,
		Stored: 32, Raw: 32}
	begin.Prefix, begin.Through = PrefixHashes(all[:4], 0)
	next := Header{Origin: origin(), Namespace: System, Flags: FlagZstd, P0: 4, P1: 7, Tokens: all[4:],
		Created: 1_770_000_001, Stored: 32, Raw: 4096}
	next.Prefix, next.Through = PrefixHashes(all, 4)
	return map[string]struct {
		h       Header
		payload []byte
	}{"begin": {begin, payload}, "next": {next, payload}}
}

func TestGolden(t *testing.T) {
	for name, s := range samples() {
		path := filepath.Join("testdata", name+Suffix)
		got, err := Append(nil, &s.h, s.payload)
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: written bytes differ from the golden file:\n%s\nwant\n%s", name, hex.Dump(got),
				hex.Dump(want))
		}
		h, payload, err := Open(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(payload, s.payload) || h.Key() != s.h.Key() || h.Through != s.h.Through ||
			h.Created != s.h.Created || h.Flags != s.h.Flags {
			t.Errorf("%s: read back %+v", name, h)
		}
		if int64(len(want)) != h.FileSize() {
			t.Errorf("%s: FileSize %d, the file has %d", name, h.FileSize(), len(want))
		}
	}
}

// TestDocument reads the golden file by the table of docs/snapshot-format.md, not by this package's code.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "snapshot-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| ([a-zK V]+?) \|`)
	type place struct{ off, size int }
	fields := map[string]place{}
	end := 0
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		off, _ := strconv.Atoi(m[1])
		size, _ := strconv.Atoi(m[2])
		if off != end {
			t.Errorf("field %q begins at %d, the one before ends at %d", m[3], off, end)
		}
		fields[m[3]] = place{off, size}
		end = off + size
	}
	if end != fixedBytes || len(fields) != 14 {
		t.Fatalf("the document describes %d fields and %d fixed bytes, the code has 14 and %d", len(fields), end,
			fixedBytes)
	}
	if !strings.Contains(string(text), "| 152 | 1 + n | engine build |") {
		t.Error("the document does not say where the engine build begins")
	}
	for name, s := range samples() {
		file, err := os.ReadFile(filepath.Join("testdata", name+Suffix))
		if err != nil {
			t.Fatal(err)
		}
		field := func(name string) []byte {
			p, ok := fields[name]
			if !ok {
				t.Fatalf("the document has no field %q", name)
			}
			return file[p.off : p.off+p.size]
		}
		number := func(name string) uint64 {
			var b [8]byte
			copy(b[:], field(name))
			return binary.LittleEndian.Uint64(b[:])
		}
		h := number("header length")
		for f, want := range map[string]uint64{
			"version": 1, "flags": uint64(s.h.Flags), "stored bytes": uint64(s.h.Stored), "raw bytes": uint64(s.h.Raw),
			"namespace":      uint64(s.h.Namespace),
			"first position": uint64(s.h.P0), "end position": uint64(s.h.P1), "high half": uint64(s.h.Namespace) >> 32,
			"created":       uint64(s.h.Created),
			"header length": uint64(s.h.Size()),
		} {
			if got := number(f); got != want {
				t.Errorf("%s: %s is %d in the file, want %d", name, f, got, want)
			}
		}
		if string(field("magic")) != Magic || !bytes.Equal(field("fingerprint"), s.h.Fingerprint[:]) ||
			!bytes.Equal(field("prefix"), s.h.Prefix[:]) ||
			!bytes.Equal(field("through"), s.h.Through[:]) {
			t.Errorf("%s: magic, fingerprint, prefix or through is elsewhere", name)
		}
		rest := file[fixedBytes:]
		for _, want := range []string{s.h.EngineBuild, s.h.KVTypeK, s.h.KVTypeV} {
			if got := string(rest[1 : 1+rest[0]]); got != want {
				t.Errorf("%s: text %q, want %q", name, got, want)
			}
			rest = rest[1+rest[0]:]
		}
		for (len(file)-len(rest))%4 != 0 {
			rest = rest[1:]
		}
		var tokens []byte
		for _, tok := range s.h.Tokens {
			tokens = binary.LittleEndian.AppendUint32(tokens, uint32(tok))
		}
		if !bytes.HasPrefix(rest, tokens) || len(file)-len(rest)+len(tokens)+32 != int(h) {
			t.Errorf("%s: the tokens do not end 32 bytes before the payload", name)
		}
		for _, end := range []int{int(h) - 32, len(file) - 32} {
			if sum := blake3.Sum256(file[:end]); !bytes.Equal(sum[:], file[end:end+32]) {
				t.Errorf("%s: no BLAKE3-256 of what is before it at %d", name, end)
			}
		}
		key := []byte("uma-serve KV part 1\n")
		key = append(key, field("namespace")...)
		key = append(key, field("fingerprint")...)
		for _, text := range []string{s.h.EngineBuild, s.h.KVTypeK, s.h.KVTypeV} {
			key = binary.LittleEndian.AppendUint32(key, uint32(len(text)))
			key = append(key, text...)
		}
		key = append(key, field("first position")...)
		key = append(key, field("end position")...)
		key = append(key, field("prefix")...)
		key = append(key, tokens...)
		if sum := blake3.Sum256(key); Hash(sum) != s.h.Key() || KeyOf(Name(sum)) != sum {
			t.Errorf("%s: the key is not made as the document says", name)
		}
	}
}

// TestEveryByteCounts: no bit of a file can change unnoticed.
func TestEveryByteCounts(t *testing.T) {
	for name, s := range samples() {
		file, err := Append(nil, &s.h, s.payload)
		if err != nil {
			t.Fatal(err)
		}
		for i := range file {
			for bit := range 8 {
				file[i] ^= 1 << bit
				if _, _, err := Open(file); !errors.Is(err, ErrFormat) && !errors.Is(err, ErrVersion) {
					t.Fatalf("%s: byte %d bit %d changed: %v", name, i, bit, err)
				}
				file[i] ^= 1 << bit
			}
		}
		for n := range file {
			if _, _, err := Open(file[:n]); err == nil {
				t.Fatalf("%s: cut to %d of %d bytes and accepted", name, n, len(file))
			}
		}
		if _, _, err := Open(append(file, 0)); err == nil {
			t.Fatalf("%s: a byte too many and accepted", name)
		}
	}
}

// forge changes a header's bytes and makes the checksums right again: what only a writer with a bug would produce.
func forge(t testing.TB, change func(b []byte)) []byte {
	s := samples()["begin"]
	b, err := s.h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	change(b)
	return reseal(append(b, s.payload...))
}

func reseal(b []byte) []byte {
	if n := binary.LittleEndian.Uint32(b[12:]); int(n) <= len(b) && n >= 32 {
		sum := blake3.Sum256(b[:n-32])
		copy(b[n-32:], sum[:])
	}
	sum := blake3.Sum256(b)
	return append(b, sum[:]...)
}

func TestErrorsNameTheField(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		want   string
		change func(b []byte)
	}{
		{"magic", func(b []byte) { b[0] = 0 }},
		{"version 2", func(b []byte) { b[8] = 2 }},
		{"flags 0x2", func(b []byte) { b[10] = 2 }},
		{"header length 3 is not a multiple of 4", func(b []byte) { le.PutUint32(b[12:], 3) }},
		{"header length 4294967292", func(b []byte) { le.PutUint32(b[12:], 0xffff_fffc) }},
		{"the file has", func(b []byte) { le.PutUint64(b[16:], 31) }},
		{"the limit is 1099511627776", func(b []byte) { le.PutUint64(b[16:], 1<<63) }},
		{"claims 33 after decompression", func(b []byte) { le.PutUint64(b[24:], 33) }},
		{"raw payload of 0 bytes", func(b []byte) { b[24] = 0 }},
		{"positions [4, 4)", func(b []byte) { b[36] = 4 }},
		{"positions [0, 4294967295)", func(b []byte) { le.PutUint32(b[40:], 0xffff_ffff) }},
		{"bytes of tokens", func(b []byte) { b[40] = 5 }},
		{"prefix hash", func(b []byte) { b[88]++ }},
		{"through the end", func(b []byte) { b[120]++ }},
		{"runs past the header's end", func(b []byte) { b[152] = 255 }},
		{"padding", func(b []byte) { b[181] = 1 }},
	} {
		b := forge(t, c.change)
		if _, _, err := Open(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	for want, change := range map[string]func(*Header){
		"engine build has 256":  func(h *Header) { h.EngineBuild = strings.Repeat("x", 256) },
		"KV type V has":         func(h *Header) { h.KVTypeV = strings.Repeat("x", 300) },
		"5 tokens":              func(h *Header) { h.Tokens = make([]Token, 5) },
		"stored payload of 0":   func(h *Header) { h.Stored, h.Raw = 0, 0 },
		"flags":                 func(h *Header) { h.Flags = 6 },
		"positions [-1, 3)":     func(h *Header) { h.P0, h.P1 = -1, 3 },
		"5000000 tokens, the l": func(h *Header) { h.P1 = 5_000_000 },
	} {
		s := samples()["begin"]
		change(&s.h)
		if _, err := s.h.Append(nil); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	s := samples()["begin"]
	if _, err := Append(nil, &s.h, s.payload[1:]); !errors.Is(err, ErrFormat) {
		t.Errorf("a payload of another length: %v", err)
	}
}

func TestPrefixHashDoesNotDependOnCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Int32(), 0, 600).Draw(t, "tokens")
		p0 := rapid.IntRange(0, len(tokens)).Draw(t, "p0")
		before, after := PrefixHashes(tokens, p0)
		if before != PrefixHash(tokens[:p0]) || after != PrefixHash(tokens) {
			t.Fatal("PrefixHashes differs from PrefixHash")
		}
		if Hash(blake3.Sum256(appendTokens(nil, tokens))) != after {
			t.Fatal("the hash is not of little-endian 32-bit tokens")
		}
	})
}

func FuzzOpen(f *testing.F) {
	for _, s := range samples() {
		b, err := Append(nil, &s.h, s.payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b[:len(b)/2], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) > 64 { // get past the checksums
			b = reseal(bytes.Clone(b[:len(b)-32]))
		}
		h, payload, err := Open(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrVersion) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		again, err := Append(nil, &h, payload)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("what was read cannot be written again: %v", err)
		}
	})
}

// Both halves of a namespace count, and those of 32 bits keep their keys.
func TestWideNamespaces(t *testing.T) {
	var keys []Hash
	for _, ns := range []Namespace{7, 7 | 1<<63, 7 | 1<<62} {
		h := samples()["begin"].h
		h.Namespace = ns
		b, err := h.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, make([]byte, h.Stored)...)
		sum := blake3.Sum256(b)
		got, _, err := Open(append(b, sum[:]...))
		if err != nil || got.Namespace != ns || got.Key() != h.Key() {
			t.Errorf("%x: read back %x, %v", ns, got.Namespace, err)
		}
		if slices.Contains(keys, h.Key()) {
			t.Errorf("%x: the key is that of another namespace", ns)
		}
		keys = append(keys, h.Key())
	}
}
