package mrdn

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ramp(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// vectors were computed with an independent BLAKE3; its digests of "", "abc" and the 1,025-byte ramp are the
// published ones.
var vectors = []struct {
	name   string
	tier   Tier
	body   []byte
	header string
}{
	{"empty", ThinkComplete, nil, "4d52444e010000000000000000000000af1349b9f5f9a1a6a0404dea36dcc949"},
	{"text", ThinkComplete, []byte("hello disagg world"),
		"4d52444e010000001200000000000000b5991e5ca82b6864630d4c369fd90835"},
	{"think active", ThinkActive, []byte("payload"),
		"4d52444e010000000700000001000000ec90915fa26ab012a89a88ecc8b47e4d"},
	{"output critical", OutputCritical, bytes.Repeat([]byte{0x2a}, 64),
		"4d52444e0100000040000000020000006c0faf6370479a209c749303e94f181d"},
	{"16 KiB of zeros", ThinkComplete, make([]byte, 16384),
		"4d52444e010000000040000000000000111f6c2f2ac0fc43154414a6e3e4c104"},
	{"4 KiB of zeros", ThinkComplete, make([]byte, 4096),
		"4d52444e010000000010000000000000b6fb73fc46938c981e2b0b4b1ef282ad"},
	{"alpha", ThinkComplete, []byte("alpha"), "4d52444e010000000500000000000000644a9bc57c6063e2ba4028fa73ed5851"},
	{"more than one chunk of BLAKE3", ThinkActive, ramp(1025),
		"4d52444e010000000104000001000000d00278ae47eb27b34faecf67b4fe263f"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			want := append(unhex(t, v.header), v.body...)
			got, err := Append(nil, v.tier, v.body)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("Append = %x, %v\nwant     %x", got[:HeaderBytes], err, want[:HeaderBytes])
			}
			h, body, err := Parse(want, len(v.body))
			if err != nil || h.Tier != v.tier || int(h.BodyBytes) != len(v.body) || !bytes.Equal(body, v.body) {
				t.Fatalf("Parse = %+v, %d bytes, %v", h, len(body), err)
			}
		})
	}
}

// TestRefused: each way a frame can be wrong has its own error, and the message says what was found.
func TestRefused(t *testing.T) {
	const empty = "4d52444e010000000000000000000000af1349b9f5f9a1a6a0404dea36dcc949"
	const hello = "4d52444e010000001200000000000000b5991e5ca82b6864630d4c369fd9083568656c6c6f2064697361676720776f726c64"
	for _, c := range []struct {
		name, frame string
		max         int
		want        error
		says        string
	}{
		{"nothing", "", 99, ErrTruncated, "0 bytes"},
		{"31 bytes", empty[:62], 99, ErrTruncated, "31 bytes"},
		{"last byte missing", hello[:len(hello)-2], 99, ErrTruncated, "a body of 18 bytes, 17 follow"},
		{"wrong magic", "58" + empty[2:], 99, ErrMagic, "58 52 44 4e"},
		{"version 2", empty[:8] + "02000000" + empty[16:], 99, ErrVersion, "2, this build reads 1"},
		{"version 0", empty[:8] + "00000000" + empty[16:], 99, ErrVersion, "0, this"},
		{"version in the other byte order", empty[:8] + "00000001" + empty[16:], 99, ErrVersion, "16777216"},
		{"tier 3", empty[:24] + "03" + empty[26:], 99, ErrTier, "3, known are 0 to 2"},
		{"tier 0x7f", empty[:24] + "7f" + empty[26:], 99, ErrTier, "127"},
		{"padding", empty[:26] + "000001" + empty[32:], 99, ErrPadding, "00 00 01"},
		{"a byte after the body", hello + "00", 99, ErrTrailing, "1 more than the 18"},
		{"a second frame after the first", hello + empty, 99, ErrTrailing, "32 more"},
		{"above the limit", hello, 17, ErrTooLarge, "18 bytes, the limit here is 17"},
		{"length of 4 GiB", empty[:16] + "ffffffff" + empty[24:], 1 << 20, ErrTooLarge, "4294967295"},
		{"limit below zero", hello, -1, ErrTooLarge, "limit here is -1"},
		{"body changed", "4d52444e010000000700000001000000ec90915fa26ab012a89a88ecc8b47e4d8f61796c6f6164", 99,
			ErrChecksum, "1c6496038df9db0be8a2db3098dda1d3"},
		{"checksum changed", empty[:62] + "48", 99, ErrChecksum, "c948, the body has af1349"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, body, err := Parse(unhex(t, c.frame), c.max)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || body != nil {
				t.Fatalf("error %v, body %x: want %v saying %q", err, body, c.want, c.says)
			}
		})
	}
	if err := Seal(make([]byte, 31), 0); !errors.Is(err, ErrTruncated) {
		t.Errorf("sealing 31 bytes: %v", err)
	}
	if err := Seal(make([]byte, 32), 3); !errors.Is(err, ErrTier) {
		t.Errorf("sealing tier 3: %v", err)
	}
	if dst, err := Append([]byte("x"), 9, nil); !errors.Is(err, ErrTier) || string(dst) != "x" {
		t.Errorf("Append kept %q with %v", dst, err)
	}
}

// TestOneFlippedBit: no single bit of a frame can change unnoticed, but for a tier turning into another.
func TestOneFlippedBit(t *testing.T) {
	frame, _ := Append(nil, ThinkComplete, []byte("some KV bytes"))
	for i := range len(frame) * 8 {
		frame[i/8] ^= 1 << (i % 8)
		h, _, err := Parse(frame, 1<<20)
		if relabelled := i/8 == 12 && h.Tier != ThinkComplete; err == nil && !relabelled {
			t.Errorf("bit %d of byte %d changed, and Parse accepts the frame", i%8, i/8)
		}
		frame[i/8] ^= 1 << (i % 8)
	}
}

func TestAllocations(t *testing.T) {
	frame, _ := Append(nil, ThinkActive, ramp(1<<16))
	if n := testing.AllocsPerRun(100, func() {
		if err := Seal(frame, ThinkActive); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Parse(frame, 1<<20); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations to seal and parse 64 KiB", n)
	}
}

func testPrologue() Prologue {
	p := Prologue{First: 16, End: 48, EngineBuild: "0c1e57098", TypeK: "f16", TypeV: "q8_0", Namespace: "uid:1000",
		KVBytes: 6}
	p.Model[0], p.Tokens = 7, HashTokens([]int32{1, 2, 3})
	return p
}

// TestPrologueBytes pins the layout: other machines hold bodies written by older builds.
func TestPrologueBytes(t *testing.T) {
	p := testPrologue()
	p.Model, p.Tokens = [32]byte{0xaa}, [32]byte{31: 0xbb}
	got, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "554b5631" + "7400" + "00" + "00" + "10000000" + "30000000" + "0600000000000000" +
		"aa" + strings.Repeat("00", 31) + strings.Repeat("00", 31) + "bb" +
		"09030408" + hex.EncodeToString([]byte("0c1e57098"+"f16"+"q8_0"+"uid:1000"))
	if hex.EncodeToString(got) != want {
		t.Fatalf("got  %x\nwant %s", got, want)
	}
	// BLAKE3-256 of 01000000 02000000 03000000, by another implementation.
	if sum := HashTokens([]int32{1, 2, 3}); hex.EncodeToString(sum[:4]) != "df07f490" {
		t.Errorf("token hash begins with %x", sum[:4])
	}
	if k := p.Key(); len(k) != 64 || k != p.Key() {
		t.Errorf("key %q", k)
	}
}

func TestPrologueRefused(t *testing.T) {
	good := testPrologue()
	whole, _ := good.Append(nil)
	whole = append(whole, "KVKVKV"...)
	if p, kv, err := ParsePrologue(whole); err != nil || p != good || string(kv) != "KVKVKV" {
		t.Fatalf("%+v, %q, %v", p, kv, err)
	}
	edit := func(at int, b ...byte) []byte {
		c := bytes.Clone(whole)
		copy(c[at:], b)
		return c
	}
	for name, c := range map[string]struct {
		body []byte
		says string
	}{
		"empty":               {nil, "0 bytes long"},
		"placeholder body":    {make([]byte, 16384), "00 00 00 00"},
		"length":              {edit(4, 0x75), "declares a length of 117"},
		"encoding":            {edit(6, 2), "encoding 2"},
		"kind":                {edit(7, 2), "kind 2, known are 0 to 1"},
		"a seal's start":      {edit(7, 1), "a seal from position 16"},
		"empty range":         {edit(12, 16), "positions 16 to 16"},
		"negative position":   {edit(8, 0xff, 0xff, 0xff, 0xff), "out of range"},
		"KV bytes missing":    {whole[:len(whole)-1], "declares 6 KV bytes, 5 follow"},
		"KV bytes too many":   {append(bytes.Clone(whole), 0), "declares 6 KV bytes, 7 follow"},
		"huge KV length":      {edit(16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "out of range"},
		"text runs over":      {edit(91, 255), "namespace is 255 bytes long"},
		"no namespace":        {edit(91, 0), "declares a length of 116"},
		"line feed in a name": {edit(92, '\n'), "printable ASCII"},
	} {
		if _, kv, err := ParsePrologue(c.body); !errors.Is(err, ErrPrologue) ||
			!strings.Contains(err.Error(), c.says) || kv != nil {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
	for name, change := range map[string]func(*Prologue){
		"namespace is 0":   func(p *Prologue) { p.Namespace = "" },
		"engine build":     func(p *Prologue) { p.EngineBuild = strings.Repeat("x", 256) },
		"positions -1":     func(p *Prologue) { p.First = -1 },
		"positions 48":     func(p *Prologue) { p.First = 48 },
		"encoding 9":       func(p *Prologue) { p.Encoding = 9 },
		"kind 2":           func(p *Prologue) { p.Kind = 2 },
		"position 16":      func(p *Prologue) { p.Kind = KindSeal },
		"type of V \"ü\"":  func(p *Prologue) { p.TypeV = "ü" },
		"-1 KV bytes":      func(p *Prologue) { p.KVBytes = -1 },
		"type of K is 0 b": func(p *Prologue) { p.TypeK = "" },
	} {
		p := good
		change(&p)
		if dst, err := Begin(nil, &p); !errors.Is(err, ErrPrologue) || !strings.Contains(err.Error(), name) ||
			dst != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMatchesAndKeyAgree: what may not be restored is not found either.
func TestMatchesAndKeyAgree(t *testing.T) {
	want := testPrologue()
	for field, change := range map[string]func(*Prologue){
		"engine build":       func(p *Prologue) { p.EngineBuild = "other" },
		"type of K":          func(p *Prologue) { p.TypeK = "f32" },
		"type of V":          func(p *Prologue) { p.TypeV = "f32" },
		"namespace":          func(p *Prologue) { p.Namespace = "uid:1001" },
		"model":              func(p *Prologue) { p.Model[31]++ },
		"token hash":         func(p *Prologue) { p.Tokens[0]++ },
		"range of positions": func(p *Prologue) { p.First++ },
		// The end of one text must not pass for the start of the next.
		"type of V is \"6q8_0\"": func(p *Prologue) { p.TypeK, p.TypeV = "f1", "6q8_0" },
	} {
		p := want
		change(&p)
		if err := p.Matches(&want); !errors.Is(err, ErrForeign) ||
			!strings.Contains(err.Error(), strings.Fields(field)[0]) {
			t.Errorf("%s: %v", field, err)
		}
		if p.Key() == want.Key() {
			t.Errorf("%s: same key", field)
		}
	}
	// A seal and the cells of the same tokens are two things.
	cells := want
	cells.First = 0
	seal := cells
	seal.Kind = KindSeal
	if err := seal.Matches(&cells); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "kind is seal") {
		t.Errorf("a seal for cells: %v", err)
	}
	if seal.Key() == cells.Key() {
		t.Error("a seal has the key of its cells")
	}
	same := want
	same.Encoding, same.KVBytes = Zstd, 99
	if err := same.Matches(&want); err != nil || same.Key() != want.Key() {
		t.Errorf("how it was packed changed what it is: %v", err)
	}
}

func TestBeginSealOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~]{1,40}`)
		kv := rapid.SliceOf(rapid.Byte()).Draw(t, "kv")
		first := rapid.Int32Range(0, 1<<20).Draw(t, "first")
		p := Prologue{
			First: first, End: first + rapid.Int32Range(1, 1<<20).Draw(t, "tokens"),
			EngineBuild: text.Draw(t, "build"), TypeK: text.Draw(t, "K"), TypeV: text.Draw(t, "V"),
			Namespace: text.Draw(t, "ns"),
			Encoding:  Encoding(rapid.IntRange(0, 1).Draw(t, "enc")), KVBytes: int64(len(kv)),
		}
		tier := Tier(rapid.IntRange(0, 2).Draw(t, "tier"))
		frame, err := Begin(make([]byte, 0, rapid.IntRange(0, 300).Draw(t, "cap")), &p)
		if err != nil {
			t.Fatal(err)
		}
		frame = append(frame, kv...)
		if err := Seal(frame, tier); err != nil {
			t.Fatal(err)
		}
		got, gotTier, gotKV, err := Open(frame, len(frame))
		if err != nil || got != p || gotTier != tier || !bytes.Equal(gotKV, kv) {
			t.Fatalf("%+v %v %x %v, want %+v %v %x", got, gotTier, gotKV, err, p, tier, kv)
		}
	})
}

// FuzzOpen: whatever comes in, the answer is an error or a frame that is written again in the same bytes.
func FuzzOpen(f *testing.F) {
	for _, v := range vectors {
		f.Add(append(unhex(f, v.header), v.body...), 1<<20)
	}
	p := testPrologue()
	frame, _ := Begin(nil, &p)
	frame = append(frame, "KVKVKV"...)
	_ = Seal(frame, OutputCritical)
	f.Add(frame, 1<<20)
	f.Add(frame, 8)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		h, body, err := Parse(b, limit)
		if err != nil {
			return
		}
		if len(body) > limit {
			t.Fatalf("body of %d bytes above the limit of %d", len(body), limit)
		}
		if again, err := Append(nil, h.Tier, body); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("written again: %x, %v", again, err)
		}
		if p, _, kv, err := Open(b, limit); err == nil {
			again, err := p.Append(nil)
			if err != nil || !bytes.Equal(append(again, kv...), body) {
				t.Fatalf("prologue written again: %x, %v", again, err)
			}
		}
	})
}

// FuzzPrologue gets past the checksum, which FuzzOpen rarely does.
func FuzzPrologue(f *testing.F) {
	p := testPrologue()
	body, _ := p.Append(nil)
	f.Add(append(body, "KVKVKV"...))
	p.Encoding = Zstd
	body, _ = p.Append(nil)
	f.Add(body)
	p.Kind, p.First = KindSeal, 0
	body, _ = p.Append(nil)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, kv, err := ParsePrologue(body)
		if err != nil {
			return
		}
		again, err := p.Append(nil)
		if err != nil || !bytes.Equal(append(again, kv...), body) {
			t.Fatalf("written again: %x, %v", again, err)
		}
		if err := p.Matches(&p); err != nil {
			t.Fatal(err)
		}
	})
}

// What a frame costs beside its transport: 16 KiB is one block of a small model, 32 MiB a long prompt.
func BenchmarkSeal(b *testing.B) { bench(b, func(f []byte) error { return Seal(f, ThinkComplete) }) }
func BenchmarkParse(b *testing.B) {
	bench(b, func(f []byte) error { _, _, err := Parse(f, len(f)); return err })
}

func bench(b *testing.B, do func([]byte) error) {
	for _, size := range []struct {
		name string
		n    int
	}{{"16KiB", 16 << 10}, {"1MiB", 1 << 20}, {"32MiB", 32 << 20}} {
		b.Run(size.name, func(b *testing.B) {
			frame, err := Append(nil, ThinkComplete, ramp(size.n))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if err := do(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTokenHasher: asking for the hash of a prefix does not change the hash of what follows.
func TestTokenHasher(t *testing.T) {
	tokens := make([]int32, 5000)
	for i := range tokens {
		tokens[i] = int32(i * i % 32003)
	}
	for _, step := range []int{1, 16, 32, 255, 256, 257, 700, 5000} {
		var h TokenHasher[int32]
		if h.Sum() != HashTokens([]int32(nil)) {
			t.Error("without tokens")
		}
		for n := step; n <= len(tokens); n += step {
			h.Add(tokens[n-step : n])
			for range 2 { // asking twice is asking once
				if h.Sum() != HashTokens(tokens[:n]) {
					t.Fatalf("steps of %d: the hash of %d tokens differs", step, n)
				}
			}
		}
	}
}
