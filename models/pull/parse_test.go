package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/models/store"
)

func TestParse(t *testing.T) {
	commit := strings.Repeat("ab", 20)
	for _, c := range []struct {
		name, short, folder string
		want                Ref
	}{
		{"qwen3", "qwen3:latest", "ollama.com/library/qwen3", Ref{Host: ollamaHost, Repo: "library/qwen3",
			Tag: "latest"}},
		{"qwen3:8b", "qwen3:8b", "ollama.com/library/qwen3", Ref{Host: ollamaHost, Repo: "library/qwen3", Tag: "8b"}},
		{"library/qwen3:8b", "qwen3:8b", "ollama.com/library/qwen3", Ref{Host: ollamaHost, Repo: "library/qwen3",
			Tag: "8b"}},
		{"ollama.com/qwen3:8b", "qwen3:8b", "ollama.com/library/qwen3", Ref{Host: ollamaHost, Repo: "library/qwen3",
			Tag: "8b"}},
		{"https://ollama.com/library/qwen3:8b", "qwen3:8b", "ollama.com/library/qwen3", Ref{Host: ollamaHost,
			Repo: "library/qwen3", Tag: "8b"}},
		{"owner/name:tag-q4_K_M", "owner/name:tag-q4_K_M", "ollama.com/owner/name", Ref{Host: ollamaHost,
			Repo: "owner/name", Tag: "tag-q4_K_M"}},
		{"registry.example.com/owner/name", "registry.example.com/owner/name:latest", "registry.example.com/owner/name",
			Ref{Host: "registry.example.com", Repo: "owner/name", Tag: "latest"}},
		{"localhost:5000/owner/name:x", "localhost:5000/owner/name:x", "localhost:5000/owner/name",
			Ref{Host: "localhost:5000", Repo: "owner/name", Tag: "x"}},
		{"http://127.0.0.1:5000/owner/name:x", "127.0.0.1:5000/owner/name:x", "127.0.0.1:5000/owner/name",
			Ref{Host: "127.0.0.1:5000", Repo: "owner/name", Tag: "x"}},
		{"hf.co/org/repo", "hf.co/org/repo", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo"}},
		{"HF.co/org/repo", "hf.co/org/repo", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo"}},
		{" hf.co/org/repo:Q4_K_M ", "hf.co/org/repo:Q4_K_M", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo",
			Tag: "Q4_K_M"}},
		{"hf://org/repo:Q4_K_M", "hf.co/org/repo:Q4_K_M", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo",
			Tag: "Q4_K_M"}},
		{"huggingface.co/org/repo@v1.0:Q4_K_M", "hf.co/org/repo@v1.0:Q4_K_M", "hf.co/org/repo",
			Ref{Hub: true, Repo: "org/repo", Revision: "v1.0", Tag: "Q4_K_M"}},
		{"hf.co/org/repo/a b.gguf", "hf.co/org/repo/a b.gguf", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo",
			File: "a b.gguf"}},
		{"https://huggingface.co/org/repo/resolve/" + commit + "/Q4/a%20b.gguf?download=true", "hf.co/org/repo@" +
			commit + "/Q4/a b.gguf", "hf.co/org/repo",
			Ref{Hub: true, Repo: "org/repo", Revision: commit, File: "Q4/a b.gguf"}},
		{"https://huggingface.co/org/repo/tree/main", "hf.co/org/repo@main", "hf.co/org/repo",
			Ref{Hub: true, Repo: "org/repo", Revision: "main"}},
		{"https://www.huggingface.co/org/repo/", "hf.co/org/repo", "hf.co/org/repo", Ref{Hub: true, Repo: "org/repo"}},
	} {
		got, err := Parse(c.name)
		if err != nil || got != c.want || got.String() != c.short || got.Folder() != c.folder {
			t.Errorf("%q: %+v %q %q %v", c.name, got, got.String(), got.Folder(), err)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q: read back as %+v, %v", got.String(), again, err)
		}
	}
	for _, name := range []string{"", "/", ":", "a:b:c", "a/b/c/d", "hf.co", "hf.co/org", "hf.co/org/repo:",
		"hf.co/org/re po", "hf.co/../repo", "hf.co/org/repo/../x.gguf",
		"https://hf.co/org/repo/blob//blob/main/x.gguf",
		"hf.co/org/repo/x.bin", "hf.co/org/repo/.x.gguf", "hf.co/org/repo/x\\y.gguf",
		"https://hf.co/org/repo/%2e%2e/x.gguf", "hf.co/org/repo@../x", "hf.co/org/repo:Q4/x.gguf",
		"example.com/name", "example.com/a/b/c", "http://example.com/a/b", "https://hf.co", "file:///x", "-x", ".x",
		"x y", "x:-1", strings.Repeat("x", 97), "owner/name:" + strings.Repeat("x", 97)} {
		if got, err := Parse(name); err == nil && name != "hf.co/org/repo:" || err != nil && !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v %v", name, got, err)
		}
	}
}

// FuzzParse: a name that is taken is read back as the same, and leads to a path below the models folder.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"qwen3:8b", "hf.co/org/repo@main:Q4_K_M",
		"https://huggingface.co/org/repo/blob/main/x.gguf", "localhost:5000/a/b:c", "hf.co/org/repo/%2e%2e/x.gguf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, err := Parse(name)
		if err != nil {
			if !errors.Is(err, ErrName) {
				t.Fatal(err)
			}
			return
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v; %q is %+v, %v", name, r, r.String(), again, err)
		}
		if !filepath.IsLocal(r.Folder()) || strings.Count(r.Folder(), "/") != 2 || r.File != "" &&
			!filepath.IsLocal(r.File) {
			t.Errorf("%q: %q %q", name, r.Folder(), r.File)
		}
	})
}

// TestChoose: the choice by memory, over the quantisations of a usual repository.
func TestChoose(t *testing.T) {
	const gib = 1 << 30
	file := func(name string, size int64) remote { return remote{path: name + ".gguf", size: size} }
	list := variants([]remote{file("m-BF16-00001-of-00002", 8*gib), file("m-BF16-00002-of-00002", 8*gib),
		file("m-IQ2_M", 3*gib), file("m-Q2_K", 33*gib/10),
		file("m-Q3_K_M", 4*gib), file("m-Q4_0", 47*gib/10), file("m-Q4_K_M", 5*gib), file("m-Q6_K",
			7*gib), file("m-Q8_0", 9*gib), file("mmproj-F16", gib)})
	if len(list) != 8 || list[0].shards != 2 || list[0].size() != 16*gib {
		t.Fatalf("%+v", list)
	}
	for memory, want := range map[uint64]string{0: "Q4_K_M", 64 * gib: "Q4_K_M", 6 * gib: "Q4_K_M",
		55 * gib / 10: "Q4_0", 5 * gib: "Q3_K_M", 4 * gib: "Q2_K", 35 * gib / 10: "IQ2_M", 3 * gib: ""} {
		if v, ok := choose(list, memory); v.quant != want || ok != (want != "") {
			t.Errorf("%d GiB: %q %v, want %q", memory>>30, v.quant, ok, want)
		}
	}
	without := slices.DeleteFunc(slices.Clone(list), func(v variant) bool { return strings.HasPrefix(v.quant, "Q4") })
	if v, _ := choose(without, 64*gib); v.quant != "Q6_K" {
		t.Errorf("without four bits: %q", v.quant)
	}
	if found := match(list, "q8_0"); len(found) != 1 || found[0].quant != "Q8_0" {
		t.Errorf("%+v", found)
	}
	for _, q := range preference {
		if got := store.QuantOf("model-" + q + ".gguf"); got != q {
			t.Errorf("the preferred %s is read as %q", q, got)
		}
	}
}

// TestProjectorOf: the projector of the model's folder or the nearest above it, of the model's name, of the best kind.
func TestProjectorOf(t *testing.T) {
	for _, c := range []struct{ model, projectors, want, at string }{
		{"m-Q4_0.gguf", "mmproj-F32.gguf mmproj-BF16.gguf mmproj-F16.gguf", "mmproj-F16.gguf", "mmproj-F16.gguf"},
		{"a/m-Q4_0.gguf", "mmproj-F32.gguf b/mmproj-F16.gguf", "mmproj-F32.gguf", "a/mmproj-F32.gguf"},
		{"a/m-Q4_0.gguf", "mmproj-F16.gguf a/mmproj-Q8_0.gguf", "a/mmproj-Q8_0.gguf", "a/mmproj-Q8_0.gguf"},
		{"small-1b-Q4_0.gguf", "mmproj-small-4b-F16.gguf mmproj-small-1b-F32.gguf", "mmproj-small-1b-F32.gguf",
			"mmproj-small-1b-F32.gguf"},
		{"m.gguf", "mmproj.gguf", "mmproj.gguf", "mmproj.gguf"},
		{"m.gguf", "b/mmproj.gguf", "", ""}, {"m.gguf", "", "", ""},
	} {
		var list []remote
		for name := range strings.FieldsSeq(c.projectors) {
			list = append(list, remote{path: name})
		}
		if got, ok := projectorOf(c.model, list); got.path != c.want || got.at != c.at || ok != (c.want != "") {
			t.Errorf("%s of %q: %+v", c.model, c.projectors, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "30", 30 * time.Second}, {"Retry-After", now.Add(time.Minute).Format(http.TimeFormat),
			time.Minute},
		{"Retry-After", now.Add(-time.Hour).Format(http.TimeFormat), 0}, {"Retry-After", "-5", 0}, {"Retry-After",
			"soon", 0},
		{"Retry-After", "99999999999999999999", 0}, {"Retry-After", "4294967295", 4294967295 * time.Second},
		{"RateLimit", `"api";r=0;t=55`, 55 * time.Second}, {"RateLimit", `"api";r=12;t=55`, 0}, {"RateLimit",
			`"pages";r=4;t=9, "api"; r=0; t=7`, 7 * time.Second},
		{"RateLimit", "x", 0}, {"Date", "30", 0},
	} {
		if got := retryAfter(http.Header{http.CanonicalHeaderKey(c.name): {c.value}}, now); got != c.want {
			t.Errorf("%s: %s: %v, want %v", c.name, c.value, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("30", `"api";r=0;t=55`)
	f.Fuzz(func(t *testing.T, after, limit string) {
		for _, h := range []http.Header{{"Retry-After": {after}}, {"Ratelimit": {limit}}} {
			if d := retryAfter(h, time.Unix(1e9, 0)); d < 0 {
				t.Error(d)
			}
		}
	})
}

func TestContentRange(t *testing.T) {
	for text, want := range map[string]string{
		"bytes 0-0/1": "[0 1] 1 true", "bytes 5-9/10": "[5 10] 10 true", " bytes 5-9/* ": "[5 10] -1 true",
		"bytes 5-10/10": "no", "bytes 9-5/10": "no", "bytes */10": "no",
		"": "no", "5-9/10": "no", "bytes 5-9": "no", "bytes -5-9/10": "no", "bytes 0-99999999999999999999/1": "no",
		"bytes 0-1/0x2": "no", "items 0-1/2": "no",
	} {
		s, size, ok := contentRange(text)
		got := fmt.Sprint(s, size, ok)
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 5-9/10")
	f.Fuzz(func(t *testing.T, text string) {
		if s, size, ok := contentRange(text); ok && (s[0] < 0 || s.len() <= 0 || size >= 0 && s[1] > size) {
			t.Errorf("%q: %v %d", text, s, size)
		}
	})
}

// TestSpans compares spans with a set of bytes.
func TestSpans(t *testing.T) {
	const size = 60
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var l spans
		var set [size]bool
		for range rng.IntN(12) {
			from := rng.Int64N(size)
			s := span{from, from + rng.Int64N(size-from+1)}
			l = l.add(s)
			for i := s[0]; i < s[1]; i++ {
				set[i] = true
			}
		}
		var total, prefix int64
		for prefix < size && set[prefix] {
			prefix++
		}
		for _, in := range set {
			if in {
				total++
			}
		}
		gap := l.gap(size, 7)
		for i := gap[0]; i < gap[1]; i++ {
			if set[i] {
				t.Fatalf("%v: gap %v", l, gap)
			}
		}
		if err := l.valid(size); err != nil || l.total() != total || l.prefix() != prefix || gap[0] != prefix ||
			(gap.len() == 0) != (prefix == size) || gap.len() > 7 {
			t.Fatalf("%v: %v, total %d want %d, prefix %d want %d, gap %v", l, err, l.total(), total, l.prefix(),
				prefix, gap)
		}
		from := rng.Int64N(size)
		asked := span{from, from + 1 + rng.Int64N(size-from)}
		var left [size]bool
		l.missing(asked, func(s span) error {
			for i := s[0]; i < s[1]; i++ {
				left[i] = true
			}
			return nil
		})
		for i := range int64(size) {
			if left[i] != (!set[i] && i >= asked[0] && i < asked[1]) {
				t.Fatalf("%v: missing of %v: %d is %v", l, asked, i, left[i])
			}
		}
	}
}

// FuzzState: a state that is taken holds its invariant, and survives writing and reading.
func FuzzState(f *testing.F) {
	of := state{Version: 1, Sum: "sha256:x", Size: 100}
	for _, s := range []state{of, {Version: 1, Sum: of.Sum, Size: 100, Spans: spans{{0, 10}, {20, 30}}, Hashed: 5,
		Hash: []byte("x")}} {
		b, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1,"sum":"sha256:x","size":100,"spans":[[0,10],[5,8]]}`))
	f.Add([]byte(`{"version":1,"sum":"sha256:x","size":100,"spans":[[-5,-1]],"hashed":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseState(b, of)
		if err != nil {
			return
		}
		if s.Hashed > s.Spans.prefix() || s.Hashed < 0 || s.Spans.total() > s.Size || s.Spans.valid(s.Size) != nil {
			t.Fatalf("%+v", s)
		}
		restoreHash(s, sum{"sha256", ""})
		path := filepath.Join(t.TempDir(), "state")
		if err := writeState(path, s, syncData); err != nil {
			t.Fatal(err)
		}
		if again, err := readState(path, of); err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
			t.Fatalf("%+v %v", again, err)
		}
	})
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(".cache/huggingface/token", "hf_default\n")
	write("hf/token", "hf_home")
	named := write("token", " hf_named \nmore\n")
	for env, want := range map[string]string{
		"HOME=" + home: "hf_default false", "HOME=" + home + " HF_TOKEN=hf_env": "hf_env false", "HOME=" + home +
			" HF_HOME=~/hf": "hf_home false",
		"HOME=" + home + " HF_TOKEN_PATH=" + named: "hf_named false", "HOME=/nonexistent": " false", "": " false",
		"HF_TOKEN_PATH=/nonexistent": "error",
		"UMA_OFFLINE=1":              " true", "HF_HUB_OFFLINE=yes": " true", "UMA_OFFLINE=0": " false",
		"HF_HUB_OFFLINE=TRUE":                " true",
		"XDG_CACHE_HOME=" + home + "/.cache": "hf_default false",
	} {
		vars := map[string]string{}
		for pair := range strings.FieldsSeq(env) {
			k, v, _ := strings.Cut(pair, "=")
			vars[k] = v
		}
		cfg, err := FromEnv(func(k string) string { return vars[k] })
		got := fmt.Sprintf("%s %v", cfg.Token, cfg.Offline)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q %v, want %q", env, got, err, want)
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Connections: 33}, "33 connections; want 1 to 32"}, {Config{Connections: -1},
			"want 1 to 32"}, {Config{Endpoint: "hub.example"}, "HF_ENDPOINT"},
		{Config{Endpoint: "https://user@hub.example"}, "HF_ENDPOINT"}, {Config{Token: "hf_x\nEvil: yes"},
			"HF_TOKEN"}, {Config{AllowHosts: []string{"a/b"}}, `"a/b"`},
		{Config{AllowHosts: []string{"cdn.example:443"}}, "no name of a host"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

// FuzzListing: whatever the hub lists, only files with a path below a folder, a size and a hash are taken, and a
// variant has all its parts.
func FuzzListing(f *testing.F) {
	oid := strings.Repeat("a", 64)
	for _, s := range []string{`[{"type":"file","path":"m-Q4_K_M.gguf","size":5,"oid":"x","lfs":{"oid":"` + oid +
		`","size":500}}]`,
		`[{"type":"file","path":"../m.gguf","size":500,"oid":"` + oid[:40] + `"},{"type":"directory","path":"x.gguf"}]`,
		`[{"type":"file","path":"a-00001-of-00002.gguf","size":500,"oid":"` + oid[:40] + `"},` +
			`{"type":"file","path":"a-00002-of-00002.gguf","size":500,"oid":"` + oid[:40] + `"}]`,
	} {
		f.Add([]byte(s), "Q4_K_M")
	}
	h := &hub{ref: Ref{Hub: true, Repo: "owner/name"}, base: "https://hub.example"}
	f.Fuzz(func(t *testing.T, text []byte, tag string) {
		var entries []treeEntry
		if json.Unmarshal(text, &entries) != nil {
			return
		}
		var files []remote
		for _, e := range entries {
			r, err := h.file(e, "commit")
			if err != nil {
				continue
			}
			if !filepath.IsLocal(r.path) || r.size < minFileBytes || len(r.sum.hex) < 40 || !strings.HasPrefix(r.url,
				h.base+"/owner/name/resolve/commit/") {
				t.Fatalf("%+v", r)
			}
			files = append(files, r)
		}
		slices.SortFunc(files, func(a, b remote) int { return strings.Compare(a.path, b.path) })
		list := variants(files)
		for _, v := range list {
			if len(v.files) != v.shards || v.shards < 1 {
				t.Fatalf("%+v", v)
			}
		}
		match(list, tag)
		if v, ok := choose(list, 0); ok != (len(list) > 0) || ok && len(v.files) == 0 {
			t.Fatalf("%+v %v of %d", v, ok, len(list))
		}
	})
}
