package sampler

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// decoded returns the text that a TextStream without stop strings makes of bytes.
func decoded(b []byte) string { return string([]rune(string(b))) }

// wantText is the text up to the stop string that is complete first, and that stop string.
func wantText(text string, stops []string) (string, string) {
	for end := range len(text) + 1 {
		found := ""
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) && len(s) > len(found) {
				found = s
			}
		}
		if found != "" {
			return text[:end-len(found)], found
		}
	}
	return text, ""
}

// streamed pushes the pieces and returns all output and the stop string that matched. It checks what holds after
// every piece: only whole characters, and nothing held back that could be shown.
func streamed(t *testing.T, pieces [][]byte, stops []string) (string, string) {
	t.Helper()
	var s TextStream
	s.Init(stops)
	var out, in []byte
	for _, p := range pieces {
		text, stopped := s.Push(p)
		s.check()
		if !utf8.Valid(text) {
			t.Fatalf("Push(%q) = %q, not UTF-8", p, text)
		}
		out = append(out, text...)
		if stopped != (s.Stopped() != "") {
			t.Fatalf("Push(%q) stopped %v, Stopped %q", p, stopped, s.Stopped())
		}
		if stopped {
			if text, again := s.Push([]byte("more")); len(text) > 0 || !again {
				t.Fatalf("after the stop: %q, %v", text, again)
			}
			break
		}
		in = append(in, p...)
		if held := mustHold(in, stops); len(decoded(in))-len(out) > held {
			t.Fatalf("after %q: shown %q; only the last %d bytes may be held back", in, out, held)
		}
	}
	out = append(out, s.Flush()...)
	if more := s.Flush(); len(more) > 0 {
		t.Fatalf("a second Flush gives %q", more)
	}
	return string(out), s.Stopped()
}

// mustHold returns the number of bytes of the decoded input that must be held back. An unfinished character counts with
// the length of its replacement.
func mustHold(in []byte, stops []string) int {
	unfinished := 0
	for n := 1; n < utf8.UTFMax && n <= len(in); n++ {
		if tail := in[len(in)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				unfinished = n
			}
			break
		}
	}
	text := decoded(in[:len(in)-unfinished])
	held := 0
	for _, s := range stops {
		for n := min(len(s)-1, len(text)); n > held; n-- {
			if strings.HasSuffix(text, s[:n]) {
				held = n
			}
		}
	}
	return held + unfinished*len("\uFFFD")
}

func checkStream(t *testing.T, b []byte, stops []string, cut func(i int) bool) {
	t.Helper()
	var pieces [][]byte
	from := 0
	for i := 1; i <= len(b); i++ {
		if i == len(b) || cut(i) {
			pieces = append(pieces, b[from:i])
			from = i
		}
	}
	text, stop := streamed(t, pieces, stops)
	wantT, wantS := wantText(decoded(b), stops)
	if text != wantT || stop != wantS {
		t.Fatalf("pieces %q, stops %q:\n got %q, stop %q\nwant %q, stop %q", pieces, stops, text, stop, wantT, wantS)
	}
}

func TestTextStream(t *testing.T) {
	for _, c := range []struct {
		pieces string // tokens, separated by |
		stops  string // separated by |
		want   string // what each push shows, then what Flush shows, separated by |
	}{
		{"Hello| world", "", "Hello| world|"},
		{"a\xe2|\x82|\xac!", "", "a||€!|"},
		{"a\xe2|b", "", "a|\uFFFDb|"},
		{"\xe2\x82", "", "|\uFFFD\uFFFD"},
		{"\xf0\x9f\x98|\xf0\x9f\x98\x80", "", "|\uFFFD\uFFFD\uFFFD😀|"},
		{"\xff\xfe", "", "\uFFFD\uFFFD|"},
		{"one\n|\ntwo", "\n\n", "one||"},
		{"one\n|two", "\n\n", "one|\ntwo|"},
		{"ab|ab|c", "ababc", "|||"},
		{"aba|bab|c!", "ababc", "|ab||"},
		{"xab|cd", "bc|abcd", "x|a|"}, // bc is complete first
		{"xabc", "bc|abc", "x|"},      // both at once: the longer
		{"User|:| hi", "User:|</s>", "|||"},
		{"Use|ful", "User:", "|Useful|"},
		{"tail <", "</s>", "tail |<"},
		{"x\xe2", "\uFFFD", "x|"}, // found only when the rest does not come
	} {
		var s TextStream
		s.Init(strings.Split(c.stops, "|"))
		var got []string
		for p := range strings.SplitSeq(c.pieces, "|") {
			text, _ := s.Push([]byte(p))
			got = append(got, string(text))
		}
		got = append(got, string(s.Flush()))
		if g := strings.Join(got, "|"); g != c.want {
			t.Errorf("%q, stops %q: %q, want %q", c.pieces, c.stops, g, c.want)
		}
	}
}

func TestTextStreamEverySplit(t *testing.T) {
	texts := []string{"naïve €5 😀 </s> end", "aaaaab aab", "\xe2\x82\xff\xf0\x9f\x98x\x80", "abcabcabd"}
	stopLists := [][]string{nil, {"</s>"}, {"aab", "aaab"}, {"abcabd", "bca"}, {"😀"}, {"\uFFFDx"}}
	for _, text := range texts {
		b := []byte(text)
		for _, stops := range stopLists {
			for i := range b {
				for j := range b {
					checkStream(t, b, stops, func(k int) bool { return k == i || k == j })
				}
			}
			checkStream(t, b, stops, func(int) bool { return true })
		}
	}
}

func TestTextStreamPass(t *testing.T) {
	var s TextStream
	s.Init([]string{"STOP"})
	got, _ := s.Push([]byte("xST"))
	if string(got) != "x" {
		t.Fatalf("Push: %q", got)
	}
	if got := s.Pass([]byte("OP STOP \xe2\x82")); string(got) != "STOP STOP " {
		t.Fatalf("Pass: %q", got)
	}
	if got := s.Pass([]byte("\xac")); string(got) != "€" {
		t.Fatalf("Pass: %q", got)
	}
	if got, stopped := s.Push([]byte("a STOP b")); string(got) != "a " || !stopped || s.Stopped() != "STOP" {
		t.Fatalf("Push: %q %v %q", got, stopped, s.Stopped())
	}
}

// TestTextStreamOwnership: the caller joins what Push and Flush returned.
func TestTextStreamOwnership(t *testing.T) {
	var s TextStream
	s.Init([]string{"xyz"})
	text, _ := s.Push([]byte("abcxy\xe2"))
	if all := append(text, s.Flush()...); string(all) != "abcxy\uFFFD" {
		t.Fatalf("joined: %q", all)
	}
}

func TestTextStreamAllocs(t *testing.T) {
	var s TextStream
	s.Init([]string{"\n\nUser:", "</s>"})
	pieces := [][]byte{[]byte(" the"), []byte("\n\nUs"), []byte("ing"), []byte("\xe2\x82"), []byte("\xac"), []byte("<"),
		[]byte(" b")}
	i := 0
	if n := testing.AllocsPerRun(1000, func() { s.Push(pieces[i%len(pieces)]); i++ }); n != 0 {
		t.Errorf("Push allocates %v times", n)
	}
}

func FuzzTextStream(f *testing.F) {
	f.Add([]byte("hello </s> world"), "</s>", "wor", uint64(1))
	f.Add([]byte("aab\xe2\x82\xacaaab"), "aaab", "\xac", uint64(7))
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f"), "\uFFFD", "😀", uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, stop1, stop2 string, seed uint64) {
		if len(b) > 300 {
			return
		}
		var stops []string
		for _, s := range []string{stop1, stop2} {
			if s != "" && len(s) <= maxStopBytes && utf8.ValidString(s) {
				stops = append(stops, s)
			}
		}
		r := rand.New(rand.NewPCG(seed, 0))
		checkStream(t, b, stops, func(int) bool { return false })
		checkStream(t, b, stops, func(int) bool { return true })
		checkStream(t, b, stops, func(int) bool { return r.IntN(3) == 0 })
	})
}

func BenchmarkTextStream(b *testing.B) {
	pieces := [][]byte{[]byte(" the"), []byte(" quick"), []byte(" brown"), []byte("\n\n"), []byte(" fox"),
		[]byte("\xe2\x82"), []byte("\xac")}
	for _, c := range []struct {
		name  string
		stops []string
	}{{"no_stops", nil}, {"2_stops", []string{"\n\nUser:", "</s>"}}} {
		b.Run(c.name, func(b *testing.B) {
			var s TextStream
			s.Init(c.stops)
			b.ReportAllocs()
			for i := range b.N {
				s.Push(pieces[i%len(pieces)])
			}
		})
	}
}
