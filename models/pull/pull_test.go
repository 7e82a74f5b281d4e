package pull

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
	"github.com/uma-serve/uma-serve/models/store"
)

// TestHub pulls from the hub: the quantisation that fits, split files, a file by name, a page's address.
func TestHub(t *testing.T) {
	q4, q8, root := pulltest.GGUF(100_000, 4), pulltest.GGUF(200_000, 8), pulltest.GGUF(50_000, 9)
	parts := pulltest.Shards(3, 70_000, 5)
	server := &pulltest.Server{Download: cdnAddress, Token: "hf_secret", Repos: map[string]*pulltest.Repo{
		"owner/name": {Pages: 3, Files: map[string][]byte{
			"name-Q4_K_M.gguf": q4, "name-Q8_0.gguf": q8, "mmproj-name-f16.gguf": root, "name.imatrix.gguf": root,
			"BF16/name-BF16-00001-of-00003.gguf": parts[0], "BF16/name-BF16-00002-of-00003.gguf": parts[1],
			"BF16/name-BF16-00003-of-00003.gguf": parts[2], "name-Q6_K-00001-of-00002.gguf": root,
			"README.gguf.md": root,
		}, Tags: map[string]string{"special": "name-Q8_0.gguf"}},
		"owner/plain": {Plain: true, Files: map[string][]byte{"model.gguf": root}},
		"owner/gated": {Gated: true, Files: map[string][]byte{"gated-Q4_0.gguf": q4}},
	}}
	for _, c := range []struct {
		name   string
		alone  bool // without the projector
		memory uint64
		token  string
		model  string
		files  map[string][]byte
		why    string
	}{
		{name: "hf.co/owner/name", model: "hf.co/owner/name:Q4_K_M", alone: true,
			files: map[string][]byte{"name-Q4_K_M.gguf": q4}, why: "first by preference. Others: BF16"},
		{name: "hf.co/owner/name", memory: 1 << 30, model: "hf.co/owner/name:Q4_K_M",
			files: map[string][]byte{"name-Q4_K_M.gguf": q4, "mmproj-name-f16.gguf": root},
			why:   "of the 1.00 GiB that are available"},
		{name: "hf.co/owner/name:q8_0", model: "hf.co/owner/name:Q8_0", files: map[string][]byte{"name-Q8_0.gguf": q8,
			"mmproj-name-f16.gguf": root}},
		{name: "hf.co/owner/name:special", memory: 1, model: "hf.co/owner/name:Q8_0",
			files: map[string][]byte{"name-Q8_0.gguf": q8, "mmproj-name-f16.gguf": root},
			why:   "it will be slow, or not load"},
		{name: "huggingface.co/owner/name@" + pulltest.Commit + ":BF16", model: "hf.co/owner/name@" + pulltest.Commit +
			":BF16", files: map[string][]byte{
			"BF16/name-BF16-00001-of-00003.gguf": parts[0], "BF16/name-BF16-00002-of-00003.gguf": parts[1],
			"BF16/name-BF16-00003-of-00003.gguf": parts[2], "BF16/mmproj-name-f16.gguf": root}},
		{name: "https://huggingface.co/owner/name/blob/main/BF16/name-BF16-00002-of-00003.gguf?download=true",
			model: "hf.co/owner/name@main/BF16/name-BF16-00001-of-00003.gguf", files: map[string][]byte{
				"BF16/name-BF16-00001-of-00003.gguf": parts[0], "BF16/name-BF16-00002-of-00003.gguf": parts[1],
				"BF16/name-BF16-00003-of-00003.gguf": parts[2], "BF16/mmproj-name-f16.gguf": root}},
		{name: "hf.co/owner/plain", model: "hf.co/owner/plain/model.gguf",
			files: map[string][]byte{"model.gguf": root}},
		{name: "hf.co/owner/gated", token: "hf_secret", model: "hf.co/owner/gated:Q4_0",
			files: map[string][]byte{"gated-Q4_0.gguf": q4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, server)
				defer f.close()
				f.cfg.Memory, f.cfg.Token, f.cfg.TextAlone = c.memory, c.token, c.alone
				m, err := f.pull(t.Context(), t, c.name)
				if err != nil {
					t.Fatal(err)
				}
				repo := strings.Join(strings.FieldsFunc(c.model, func(r rune) bool {
					return strings.ContainsRune("/@:",
						r)
				})[1:3], "/")
				if m.Name != c.model || len(m.Files) != len(c.files) {
					t.Errorf("%+v, want %s in %d files", m, c.model, len(c.files))
				}
				for i, path := range m.Files {
					rel, _ := filepath.Rel(filepath.Join(f.dir, "hf.co", repo), path)
					data, err := os.ReadFile(path)
					if err != nil || !bytes.Equal(data, c.files[rel]) {
						t.Errorf("%s is not the file: %v", rel, err)
					}
					projector := store.IsProjector(path)
					if i > 0 && !projector && path < m.Files[i-1] || projector && i != len(m.Files)-1 {
						t.Errorf("%q are not in order", m.Files)
					}
					r, err := ReadRecord(path)
					if err != nil || r.File != rel && (!projector || r.File != filepath.Base(rel)) ||
						r.Revision != pulltest.Commit || r.Bytes != int64(len(data)) || r.Name != m.Name ||
						r.Source != "https://huggingface.co/"+repo || r.Quantisation != store.QuantOf(rel) {
						t.Errorf("%+v, %v", r, err)
					}
				}
				if want := 2 * len(c.files); len(f.files(t)) != want {
					t.Errorf("%q, want %d files", f.files(t), want)
				}
				if !strings.Contains(f.chose[0].Why, c.why) || c.why == "" && f.chose[0].Why != "" {
					t.Errorf("why: %q, want %q", f.chose[0].Why, c.why)
				}
				if left := slices.ContainsFunc(f.chose[0].Left, func(l string) bool {
					return strings.HasPrefix(l, "mmproj-name-f16.gguf")
				}); left != c.alone {
					t.Errorf("left out: %q, the projector among them: %v", f.chose[0].Left, c.alone)
				}
				last := f.seen[len(f.seen)-1]
				if last.Done != last.Total || last.Number != len(c.files) || last.Of != len(c.files) {
					t.Errorf("the last progress is %+v", last)
				}

				before := f.Served()
				if again, err := f.pull(t.Context(), t, c.name); err != nil || !slices.Equal(again.Files, m.Files) ||
					f.Served() != before {
					t.Errorf("again: %+v, %v, %d bytes", again, err, f.Served()-before)
				}
			})
		})
	}
}

// TestRegistry pulls from a registry: with its token server, its texts, and split models.
func TestRegistry(t *testing.T) {
	model := pulltest.GGUF(100_000, 4)
	parts := pulltest.Shards(2, 50_000, 3)
	layer := func(kind string, b []byte) pulltest.Layer { return pulltest.Layer{MediaType: kind, Data: b} }
	server := &pulltest.Server{Download: cdnAddress, Images: map[string]*pulltest.Image{
		"library/seer:4b": {Layers: []pulltest.Layer{layer(pulltest.ImageLayer, parts[0]),
			layer(pulltest.ModelLayer, model)}},
		"library/qwen3:8b": {Private: true, Layers: []pulltest.Layer{layer(pulltest.ModelLayer, model),
			layer(pulltest.TemplateLayer, []byte("{{ .Prompt }}")), layer(pulltest.ParamsLayer,
				[]byte(`{"temperature":0.6}`)),
			layer(pulltest.LicenceLayer, []byte("Apache")), layer(pulltest.LicenceLayer,
				[]byte("and more")), layer(pulltest.ImageLayer, model[:50])}},
		"owner/split:latest": {Layers: []pulltest.Layer{layer(pulltest.ModelLayer, parts[0]), layer(pulltest.ModelLayer,
			parts[1])}},
	}}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		seer, err := f.pull(t.Context(), t, regAddress+"/library/seer:4b")
		folder := filepath.Join(f.dir, regAddress, "library", "seer")
		if err != nil || !slices.Equal(seer.Files, []string{filepath.Join(folder, "4b.gguf"),
			filepath.Join(folder, "mmproj-4b.gguf")}) || len(f.chose[0].Left) > 0 {
			t.Errorf("%+v, %v, left out %q", seer, err, f.chose[0].Left)
		}
		f.cfg.TextAlone, f.chose = true, nil
		m, err := f.pull(t.Context(), t, regAddress+"/library/qwen3:8b")
		if err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(f.dir, regAddress, "library", "qwen3", "8b.gguf")
		if m.Name != regAddress+"/library/qwen3:8b" || !slices.Equal(m.Files, []string{want}) {
			t.Errorf("%+v", m)
		}
		r, err := ReadRecord(want)
		if err != nil || r.Template != "{{ .Prompt }}" || string(r.Parameters) == "" ||
			r.Licence != "Apache\n\nand more" || r.Sum != pulltest.Digest(model) ||
			!strings.HasPrefix(r.Revision, "sha256:") {
			t.Errorf("%+v, %v", r, err)
		}
		if left := f.chose[0].Left; !slices.Equal(left, []string{"the projector of images"}) {
			t.Errorf("left out: %q", left)
		}
		m, err = f.pull(t.Context(), t, regAddress+"/owner/split")
		if err != nil || len(m.Files) != 2 || !strings.HasSuffix(m.Files[1],
			"/owner/split/latest-00002-of-00002.gguf") {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// TestRefusals: what cannot be pulled is refused with what to do, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	q4, q8 := pulltest.GGUF(100_000, 4), pulltest.GGUF(200_000, 8)
	broken := append([]byte("GGUF"), bytes.Repeat([]byte{0xff}, 1000)...)
	server := &pulltest.Server{Token: "hf_secret", Repos: map[string]*pulltest.Repo{
		"owner/name":         {Files: map[string][]byte{"name-Q4_K_M.gguf": q4, "name-Q8_0.gguf": q8}},
		"owner/two":          {Files: map[string][]byte{"a-Q4_K_M.gguf": q4, "b-Q4_K_M.gguf": q8}},
		"owner/gated":        {Gated: true, Files: map[string][]byte{"gated-Q4_0.gguf": q4}},
		"owner/secret":       {Secret: true, Files: map[string][]byte{"secret-Q4_0.gguf": q4}},
		"owner/weights":      {Files: map[string][]byte{"model.safetensors": q4}},
		"other/weights-GGUF": {Files: map[string][]byte{"weights-Q4_0.gguf": q4}},
		"owner/half":         {Files: map[string][]byte{"half-00001-of-00002.gguf": q4}},
		"owner/broken":       {Files: map[string][]byte{"broken.gguf": broken}},
		"owner/html":         {Files: map[string][]byte{"html.gguf": []byte("<!doctype html><title>No model</title>")}},
		"owner/lie": {Files: map[string][]byte{"lie.gguf": q4},
			Lie: map[string]string{"lie.gguf": strings.Repeat("0", 64)}},
		"owner/paths": {Files: map[string][]byte{"../../escape.gguf": q4, "/etc/absolute.gguf": q4,
			"a/../../b.gguf": q4, ".hidden.gguf": q4, "back\\slash.gguf": q4, "bell\a.gguf": q4}},
	}, Images: map[string]*pulltest.Image{
		"owner/name:8b":   {Layers: []pulltest.Layer{{MediaType: pulltest.ModelLayer, Data: q4}}},
		"owner/closed:8b": {Closed: true, Layers: []pulltest.Layer{{MediaType: pulltest.ModelLayer, Data: q4}}},
		"owner/realm:8b": {Private: true, Realm: "https://evil.example/token",
			Layers: []pulltest.Layer{{MediaType: pulltest.ModelLayer, Data: q4}}},
		"owner/tensors:8b":  {Layers: []pulltest.Layer{{MediaType: "application/vnd.ollama.image.tensor", Data: q4}}},
		"owner/lawsuit:new": {Layers: []pulltest.Layer{{MediaType: pulltest.TemplateLayer, Data: q4}}},
	}}
	for _, c := range []struct {
		name, token string
		memory      uint64
		offline     bool
		space       uint64
		kind        error
		want        []string
	}{
		{name: "", kind: ErrName, want: []string{"qwen3:8b", "hf.co/owner/repository"}},
		{name: "hf.co/owner", kind: ErrName, want: []string{"hf.co/owner/repository"}},
		{name: "../../etc/passwd", kind: ErrName},
		{name: "hf.co/owner/name/../../x.gguf", kind: ErrName},
		{name: "http://example.com/owner/name:8b", kind: ErrName, want: []string{"loopback"}},
		{name: "ftp://example.com/owner/name", kind: ErrName},
		{name: "qwen3:8b", offline: true, kind: ErrOffline, want: []string{"qwen3:8b",
			"--offline, UMA_OFFLINE or HF_HUB_OFFLINE"}},
		{name: "hf.co/owner/nme", kind: ErrNotFound, want: []string{"no public repository owner/nme",
			"https://huggingface.co/owner/nme", "HF_TOKEN"}},
		{name: "hf.co/owner/secret", kind: ErrNotFound, want: []string{"for a private repository set HF_TOKEN"}},
		{name: "hf.co/owner/name@v9", kind: ErrNotFound, want: []string{"no revision v9"}},
		{name: "hf.co/owner/name:Q8_1", kind: ErrNotFound, want: []string{"did you mean Q8_0?",
			"There are: Q4_K_M, Q8_0"}},
		{name: "hf.co/owner/name/other.gguf", kind: ErrNotFound, want: []string{"name-Q4_K_M.gguf, name-Q8_0.gguf"}},
		{name: "hf.co/owner/two", kind: ErrName,
			want: []string{"hf.co/owner/two/a-Q4_K_M.gguf, hf.co/owner/two/b-Q4_K_M.gguf"}},
		{name: "hf.co/owner/two:Q4_K_M", kind: ErrName, want: []string{"hf.co/owner/two/a-Q4_K_M.gguf"}},
		{name: "hf.co/owner/name", memory: 1 << 20, kind: ErrMemory, want: []string{"the smallest, Q4_K_M",
			"free some memory", "hf.co/owner/name/name-Q4_K_M.gguf"}},
		{name: "hf.co/owner/name", space: 1000, kind: ErrSpace, want: []string{"more on the disk", "1000 B free",
			"--models-dir"}},
		{name: "hf.co/owner/gated", kind: ErrAccess, want: []string{"gated",
			"agree at https://huggingface.co/owner/gated", "HF_TOKEN", "settings/tokens"}},
		{name: "hf.co/owner/gated", token: "hf_other", kind: ErrAccess, want: []string{"account of your token",
			"https://huggingface.co/owner/gated"}},
		{name: "hf.co/owner/weights", kind: ErrNotFound, want: []string{"no GGUF file", "similar: hf.co/o"}},
		{name: "hf.co/owner/half", kind: ErrNotFound, want: []string{"only some shards"}},
		{name: "hf.co/owner/broken", kind: ErrCorrupt, want: []string{"as its owner published it",
			"nothing of it is kept"}},
		{name: "hf.co/owner/html", kind: ErrCorrupt, want: []string{"no GGUF file", "<!doctype"}},
		{name: "hf.co/owner/lie", kind: ErrCorrupt, want: []string{"the hash of the file", "want 000000"}},
		{name: "hf.co/owner/paths", kind: ErrNotFound, want: []string{"no GGUF file"}},
		{name: regAddress + "/owner/name:9b", kind: ErrNotFound, want: []string{"no model", "did you mean 8b?"}},
		{name: regAddress + "/owner/none:8b", kind: ErrNotFound, want: []string{"no model", "see the tags"}},
		{name: regAddress + "/owner/closed:8b", kind: ErrAccess, want: []string{"not public"}},
		{name: regAddress + "/owner/realm:8b", kind: ErrRefused,
			want: []string{"https://evil.example, which is no host of this source", "--allow-host evil.example"}},
		{name: regAddress + "/owner/tensors:8b", kind: ErrServer, want: []string{"no GGUF layer"}},
		{name: regAddress + "/owner/lawsuit:new", kind: ErrServer, want: []string{"no GGUF layer"}},
	} {
		t.Run(c.name+c.token, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, server)
				defer f.close()
				f.cfg.Memory, f.cfg.Token, f.cfg.Offline = c.memory, c.token, c.offline
				if c.space > 0 {
					f.cfg.space = func(string) (uint64, error) { return c.space, nil }
				}
				if c.offline || c.kind == ErrName && c.name[:min(4, len(c.name))] != "hf.c" {
					f.cfg.dial = func(context.Context, string, string) (net.Conn, error) {
						t.Error("the network is used")
						return nil, errors.New("no network")
					}
				}
				_, err := f.pull(t.Context(), t, c.name)
				ours, ok := errors.AsType[*Error](err)
				if !ok || !errors.Is(err, c.kind) || ours.Do == "" {
					t.Fatalf("%T %v, want of kind %v", err, err, c.kind)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want %q in it", err, want)
					}
				}
				if files := f.files(t); len(files) > 0 {
					t.Errorf("%q are left behind", files)
				}
				if _, err := os.Stat(filepath.Join(filepath.Dir(f.dir), "escape.gguf")); err == nil {
					t.Error("a file was written outside of the models folder")
				}
			})
		})
	}
}

// TestToken: the hub's token goes to the hub's address alone. pulltest's download host refuses requests that carry one.
func TestToken(t *testing.T) {
	server := &pulltest.Server{Download: cdnAddress, Token: "hf_secret", Repos: map[string]*pulltest.Repo{
		"owner/gated": {Gated: true, Files: map[string][]byte{"gated-Q4_0.gguf": pulltest.GGUF(100_000, 4)}}}}
	var mu sync.Mutex
	carried := map[string]int{}
	server.Log = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			carried[r.Host]++
		}
		if r.Header.Get("Referer") != "" {
			t.Errorf("%s is told of %s", r.Host, r.Header.Get("Referer"))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		f.cfg.Token = "hf_secret"
		if _, err := f.pull(t.Context(), t, "hf.co/owner/gated"); err != nil {
			t.Fatal(err)
		}
		if len(carried) != 1 || carried["127.0.0.1:1"] == 0 {
			t.Errorf("the token went to %v", carried)
		}
	})
}

// TestRules: which addresses a source may be asked or redirected to.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		origin, address string
		ok              bool
	}{
		{"https://huggingface.co", "https://huggingface.co/x", true},
		{"https://huggingface.co", "https://cdn-lfs.huggingface.co/x", true},
		{"https://huggingface.co", "https://us.aws.cdn.hf.co/x", true},
		{"https://huggingface.co", "https://US.AWS.CDN.HF.CO/x", true},
		{"https://huggingface.co", "https://cas-bridge.xethub.hf.co/x", true},
		{"https://huggingface.co", "https://trusted.example/x", true},
		{"https://huggingface.co", "https://a.trusted.example/x", true},
		{"https://huggingface.co", "http://huggingface.co/x", false},
		{"https://huggingface.co", "http://cdn-lfs.huggingface.co/x", false},
		{"https://huggingface.co", "https://evilhf.co/x", false},
		{"https://huggingface.co", "https://hf.co.evil.example/x", false},
		{"https://huggingface.co", "https://user:password@hf.co/x", false},
		{"https://huggingface.co", "https://127.0.0.1/x", false},
		{"https://huggingface.co", "http://127.0.0.1:80/x", false},
		{"https://huggingface.co", "http://[::1]/x", false},
		{"https://huggingface.co", "https://169.254.169.254/latest/meta-data", false},
		{"https://huggingface.co", "file:///etc/passwd", false},
		{"https://huggingface.co", "ftp://hf.co/x", false},
		{"http://mirror.example:8080", "http://mirror.example:8080/x", true},
		{"http://mirror.example:8080", "https://cdn-lfs.hf.co/x", true},
		{"http://mirror.example:8080", "http://mirror.example/x", false},
		{"http://mirror.example:8080", "http://127.0.0.1/x", false},
		{"http://mirror.example:8080", "http://other.example:8080/x", false},
		{"http://127.0.0.1:1", "http://127.0.0.1:2/x", true},
		{"http://127.0.0.1:1", "http://localhost:2/x", true},
		{"http://127.0.0.1:1", "http://example.com/x", false},
	} {
		u, err := endpoint(c.origin)
		if err != nil {
			t.Fatal(err)
		}
		w := newWeb(&Config{Observer: Observer{}.serial(), AllowHosts: []string{"trusted.example"}}, u,
			slices.Clone(hubHosts))
		req, err := http.NewRequest("GET", c.address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.check(req.URL); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s to %s: %v", c.origin, c.address, err)
		}
	}
}

// TestCertificates: the hub and the download host are asked over TLS; a certificate for another host ends the pull.
func TestCertificates(t *testing.T) {
	model := pulltest.GGUF(100_000, 4)
	server := oneFile(model)
	server.Download = "https://cdn.example.com"
	server.Token, server.Repos["owner/name"].Gated = "hf_secret", true
	tls := httptest.NewUnstartedServer(server)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS() // its certificate is for example.com, its subdomains and 127.0.0.1
	defer tls.Close()
	roots := x509.NewCertPool()
	roots.AddCert(tls.Certificate())
	cfg := Config{Token: "hf_secret", AllowHosts: []string{"example.com"}, roots: roots,
		dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", tls.Listener.Addr().String())
		}}
	for _, c := range []struct {
		endpoint string
		kind     error
		want     string
	}{
		{"https://example.com", nil, ""},
		{"https://huggingface.co", ErrNetwork,
			"the certificate of huggingface.co or of its download host is not valid"},
	} {
		cfg.Endpoint = c.endpoint
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Pull(t.Context(), "hf.co/owner/name", t.TempDir())
		if !errors.Is(err, c.kind) || c.want != "" && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.endpoint, err, c.want)
		}
	}
}

// TestRepeats counts what a pull asks for: the hub once for each file, and again when its signed address has expired.
func TestRepeats(t *testing.T) {
	server := &pulltest.Server{Download: cdnAddress, Repos: map[string]*pulltest.Repo{
		"owner/name": {Files: map[string][]byte{"name-Q4_K_M.gguf": pulltest.GGUF(500_000, 4)}}}}
	var mu sync.Mutex
	asked := map[string]int{}
	server.Fault = func(r *http.Request) pulltest.Fault {
		mu.Lock()
		defer mu.Unlock()
		what, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		asked[what]++
		if what == "cdn" && asked[what] == 10 {
			return pulltest.Status(http.StatusForbidden)
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		f.cfg.Connections = 1
		if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
			t.Fatal(err)
		}
		if asked["owner"] != 2 || asked["api"] != 2 || asked["cdn"] < 20 {
			t.Errorf("requests: %v", asked)
		}
	})
}

// TestSlowServer: a connection that brings little is no error, whatever it takes; one that brings nothing is given up
// after half a minute and begun again where it was.
func TestSlowServer(t *testing.T) {
	model := pulltest.GGUF(20_000, 4)
	server := oneFile(model)
	server.Download = ""
	for _, c := range []struct {
		name     string
		fault    pulltest.Fault
		requests int
		at, most time.Duration
	}{
		{"200 bytes a second", pulltest.Slow(200, time.Second), 1, 100 * time.Second, 105 * time.Second},
		{"50 bytes a second", pulltest.Slow(50, time.Second), 5, 120 * time.Second, 130 * time.Second},
		{"nothing after a half", pulltest.Stall(0.5), 5, 2 * time.Minute, 4 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			requests := 0
			server.Fault = func(r *http.Request) pulltest.Fault {
				mu.Lock()
				defer mu.Unlock()
				if !strings.Contains(r.URL.Path, "/resolve/") {
					return nil
				}
				if requests++; requests > 4 {
					return nil
				}
				return c.fault
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, server)
				defer f.close()
				f.cfg.Connections, f.cfg.segment = 1, 1<<20
				began := time.Now()
				_, err := f.pull(t.Context(), t, "hf.co/owner/name")
				if took := time.Since(began); err != nil || took < c.at || took > c.most || requests > c.requests {
					t.Errorf("%v after %v and %d requests", err, took, requests)
				}
			})
		})
	}
}

// TestBusyServer: a server that stands two connections is not asked over more for long, and its Retry-After is kept.
func TestBusyServer(t *testing.T) {
	model := pulltest.GGUF(2_000_000, 4)
	server := oneFile(model)
	server.Download = ""
	var mu sync.Mutex
	open, most, refused := 0, 0, 0
	var at, until time.Time // of the last refusal, and its end
	server.Fault = func(r *http.Request) pulltest.Fault {
		if !strings.Contains(r.URL.Path, "/resolve/") {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
			mu.Lock()
			if now := time.Now(); now.After(at) && now.Before(until) {
				t.Errorf("a request %v before Retry-After is over", until.Sub(now))
			}
			if open++; open > 2 {
				open--
				refused++
				at, until = time.Now(), time.Now().Add(20*time.Second)
				mu.Unlock()
				pulltest.Status(http.StatusTooManyRequests, "Retry-After", "20")(w, r, rest)
				return
			}
			most = max(most, open)
			mu.Unlock()
			pulltest.Slow(8<<10, 100*time.Millisecond)(w, r, rest)
			mu.Lock()
			open--
			mu.Unlock()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		f.cfg.Connections = 8
		if _, err := f.pull(t.Context(), t, "hf.co/owner/name"); err != nil {
			t.Fatal(err)
		}
		if most != 2 || refused == 0 || refused > 12 {
			t.Errorf("%d connections at most, %d refused", most, refused)
		}
	})
}

// TestRetryAfterTooLong: a server that asks for hours ends the pull, which says for how long.
func TestRetryAfterTooLong(t *testing.T) {
	server := &pulltest.Server{Fault: func(*http.Request) pulltest.Fault {
		return pulltest.Status(http.StatusTooManyRequests, "Retry-After", "7200")
	}}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		_, err := f.pull(t.Context(), t, "hf.co/owner/name")
		if !errors.Is(err, ErrNetwork) || !strings.Contains(fmt.Sprint(err), "2h0m0s") {
			t.Errorf("%v", err)
		}
	})
}

// TestStalledPullGivesUp: a pull whose connections bring nothing any more gives up after about two minutes, as
// docs/models.md says, also when each of them is open until it is found to be silent.
func TestStalledPullGivesUp(t *testing.T) {
	stalls := false
	server := oneFile(pulltest.GGUF(300_000, 1))
	server.Fault = func(r *http.Request) pulltest.Fault {
		if !strings.Contains(r.URL.Path, ".gguf") {
			return nil
		}
		if stalls {
			return pulltest.Stall(0)
		}
		stalls = true
		return pulltest.Cut(0.5)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, server)
		defer f.close()
		f.cfg.Connections = 1
		began := time.Now()
		_, err := f.pull(t.Context(), t, "hf.co/owner/name")
		if took := time.Since(began); !errors.Is(err, ErrNetwork) || took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}
