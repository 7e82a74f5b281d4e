package chat

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/fifo"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func TestSaveLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.json")
	want := []wire.Message{{Role: "user", Content: "<b>“hi”</b> \u2028 \\ \"\n"},
		{Role: "assistant", Content: "", ReasoningContent: "hm"}}
	if err := Save(path, "m", "be kind", want); err != nil {
		t.Fatal(err)
	}
	system, got, err := Load(path)
	if err != nil || system != "be kind" || len(got) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q %+v %v", system, got, err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := Save(path, "m", "", nil); err != nil {
		t.Errorf("over an earlier one: %v", err)
	}
	if _, got, err := Load(path); len(got) != 0 || err != nil {
		t.Errorf("empty: %+v, %v", got, err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestSaveSparesOthers: a name that is taken by something else keeps what it has.
func TestSaveSparesOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thesis.txt")
	if err := os.WriteFile(path, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, "m", "", nil); err == nil || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "years of work" {
		t.Errorf("the file is now %q", b)
	}
	if err := Save(filepath.Join(t.TempDir(), "none", "x"), "m", "", nil); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestLoadHostile(t *testing.T) {
	const head = `{"format":"uma-serve conversation 1","messages":`
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "not a saved conversation"},
		"not JSON":        {"hello", "not a saved conversation"},
		"other JSON":      {`{"messages":[]}`, "format is"},
		"an array":        {`[]`, "not a saved conversation"},
		"newer format":    {`{"format":"uma-serve conversation 2","messages":[]}`, "format is"},
		"cut off":         {head + `[{"role":"user"`, "not a saved conversation"},
		"two values":      {head + `[]} {}`, "data after its end"},
		"wrong role":      {head + `[{"role":"root","content":"x"}]}`, `messages[0].role: "root"`},
		"no role":         {head + `[{"content":"x"}]}`, `messages[0].role: ""`},
		"content no text": {head + `[{"role":"user","content":7}]}`, "not a saved conversation"},
		"NUL":             {head + `[{"role":"user","content":"a\u0000b"}]}`, "messages[0]: holds a NUL byte"},
		"NUL in system": {`{"format":"uma-serve conversation 1","system":"\u0000","messages":[]}`,
			"system: holds a NUL"},
		"invalid UTF-8": {head + "[{\"role\":\"user\",\"content\":\"\xff\"}]}", "not valid UTF-8"},
		"too many": {head + `[` + strings.Repeat(`{"role":"user"},`, maxMessages) + `{"role":"user"}]}`,
			"more than the limit"},
		"deep": {head + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}",
			"not a saved conversation"},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	huge := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, maxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(huge); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("huge: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "fifo")
	fifo.Make(t, pipe)
	if _, _, err := Load(pipe); err == nil || !strings.Contains(err.Error(), "it is a named pipe, not a file") {
		t.Errorf("fifo: %v", err)
	}
}

// FuzzParseConversation: whatever a file holds, it is refused or it round-trips.
func FuzzParseConversation(f *testing.F) {
	f.Add([]byte(`{"format":"uma-serve conversation 1","system":"s","messages":[{"role":"user","content":"x",` +
		`"reasoning_content":"y"}]}`))
	f.Add([]byte(`{"format":"uma-serve conversation 1"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		system, messages, err := parseConversation(data)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := Save(path, "", system, messages); err != nil {
			t.Fatal(err)
		}
		system2, messages2, err := Load(path)
		if err != nil || system2 != system || len(messages2) != len(messages) {
			t.Fatalf("%q %+v → %q %+v, %v", system, messages, system2, messages2, err)
		}
		for i := range messages {
			if !reflect.DeepEqual(messages[i], messages2[i]) {
				t.Fatalf("message %d: %+v → %+v", i, messages[i], messages2[i])
			}
		}
	})
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h := OpenHistory(path)
	for _, line := range []string{"one", "two\nlines", "two\nlines", "", "three"} {
		if _, err := h.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("garbage\n\"unfinished\n\n42\n")
	f.Close()
	h = OpenHistory(path)
	if got := strings.Join(h.entries, "/"); got != "one/two\nlines/three" {
		t.Errorf("read %q", got)
	}
	if line, err := h.GetLine(1); line != "two\nlines" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := h.GetLine(3); err == nil {
		t.Error("no error past the end")
	}
	for i := range 2*maxHistory + 1 {
		if _, err := h.Write(strings.Repeat("x", 1+i%7)); err != nil {
			t.Fatal(err)
		}
	}
	if h = OpenHistory(path); h.Len() != maxHistory {
		t.Errorf("%d lines after compaction", h.Len())
	}
	if h = OpenHistory(path); h.Len() != maxHistory {
		t.Errorf("%d lines read again", h.Len())
	}
	memory := OpenHistory("")
	if n, err := memory.Write("x"); n != 1 || err != nil {
		t.Errorf("memory: %d, %v", n, err)
	}
}

// TestLongHistoryLine: a pasted file is remembered for the chat, not for ever, and a long line in the file costs no
// other.
func TestLongHistoryLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	h := OpenHistory(path)
	long := strings.Repeat("long ", maxEntry)
	for _, line := range []string{"before", long, "after"} {
		if _, err := h.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if line, err := h.GetLine(1); line != long || err != nil {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	if got := strings.Join(OpenHistory(path).entries, "/"); got != "before/after" {
		t.Errorf("read %d bytes", len(got))
	}
	if err := os.WriteFile(path, []byte("\"before\"\n\""+strings.Repeat("x", 8<<20)+"\"\n\"after\""),
		0o600); err != nil {
		t.Fatal(err)
	}
	if h := OpenHistory(path); h.Len() != 3 || h.entries[2] != "after" {
		t.Errorf("%d lines behind a long one", h.Len())
	}
}

func TestHistoryPath(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/uma-serve/history"},
		{map[string]string{"HOME": "/h"}, "/h/.local/state/uma-serve/history"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/uma-serve/history"},
		{map[string]string{}, ""},
		{map[string]string{"HOME": "/h", "UMA_NOHISTORY": "1"}, ""},
		{map[string]string{"HOME": "/h", "UMA_NOHISTORY": "0"}, "/h/.local/state/uma-serve/history"},
	} {
		if got := HistoryPath(func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
	}
}

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                      "plain",
		`"""one line"""`:             "one line",
		"\"\"\"\ntwo\nlines\n\"\"\"": "two\nlines",
		"\"\"\"a\"\"\" then b":       "a\nthen b",
		`say """this"""`:             `say """this"""`,
		`"""never closed`:            "never closed",
	} {
		if got := unquote(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPlainReader(t *testing.T) {
	var prompts strings.Builder
	r := NewPlainReader(strings.NewReader("one\n\"\"\"two\nlines\"\"\"\nlast"), &prompts)
	var got []string
	for {
		line, err := r.ReadLine("> ")
		if err != nil {
			break
		}
		got = append(got, line)
	}
	if strings.Join(got, "|") != "one|\"\"\"two\nlines\"\"\"|last" || prompts.String() != "> > > > " {
		t.Errorf("%q, prompts %q", got, prompts.String())
	}
}
