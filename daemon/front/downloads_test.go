package front

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/models/pull/pulltest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// hub is a front with a models directory, and a hub and a registry to download from.
type hub struct {
	*running
	*pulltest.Server
	dir  string
	data []byte
	host string // of the registry
}

const hubFile = "hf.co/owner/name/name-Q8_0.gguf"

func startHub(t *testing.T, names []string, edit func(*config.Config), args ...string) *hub {
	t.Helper()
	data, err := os.ReadFile(ggufgen.Cached(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{dir: filepath.Join(t.TempDir(), "models"), data: data}
	h.Server = &pulltest.Server{Repos: map[string]*pulltest.Repo{
		"owner/name": {Files: map[string][]byte{"name-Q8_0.gguf": data}}},
		Images: map[string]*pulltest.Image{"library/image:8b": {Layers: []pulltest.Layer{
			{MediaType: pulltest.ModelLayer, Data: data}}}}}
	server := httptest.NewServer(h.Server)
	t.Cleanup(server.Close)
	h.host = strings.TrimPrefix(server.URL, "http://")
	t.Setenv("HF_ENDPOINT", server.URL)
	h.running = start(t, Options{}, names, edit, append([]string{"--models-dir", h.dir}, args...)...)
	return h
}

func (h *hub) slow() {
	h.Change(func() { h.Fault = pulltest.OfFiles(pulltest.Slow(2<<10, 20*time.Millisecond)) })
}

func (h *hub) fast() { h.Change(func() { h.Fault = nil }) }

// files are those below the models directory.
func (h *hub) files() (out []string) {
	_ = filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(h.dir, path)
			out = append(out, rel)
		}
		return nil
	})
	return out
}

// events are those of /models/sse from now on.
func (h *hub) events(t *testing.T) <-chan string {
	t.Helper()
	conn, err := net.Dial("unix", h.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	out, begun := make(chan string, 10_000), make(chan bool)
	go func() {
		defer close(out)
		in := bufio.NewScanner(conn)
		for in.Scan() {
			if strings.HasPrefix(in.Text(), ": the models") {
				close(begun)
			} else if body, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				out <- body
			}
		}
	}()
	waitfor.Recv(t, "the begin of the events", begun)
	return out
}

// until reads events up to one that has every text, and returns all.
func until(t *testing.T, events <-chan string, texts ...string) (all []string) {
	t.Helper()
	for {
		e := waitfor.Recv(t, fmt.Sprint("an event with ", texts), events)
		if all = append(all, e); e == "" {
			t.Fatalf("the events have ended before %v: %v", texts, all)
		}
		has := true
		for _, x := range texts {
			has = has && strings.Contains(e, x)
		}
		if has {
			return all
		}
	}
}

// TestDownloadByRequest: POST /models downloads a model, /models/sse and /models tell how it goes, requests can name it
// when it is here, and DELETE /models deletes it, unloading it first.
func TestDownloadByRequest(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	h.awaitReady("one")
	h.slow()
	web := h.http()
	events := h.events(t)
	if status, text := web.post("/models", `{"model":"owner/name:Q8_0"}`); status != 200 ||
		text != `{"status":{"value":"downloading"},"success":true}`+"\n" {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"model":"owner/name:Q8_0"`, `"event":"model_status"`, `"status":"downloading"`)
	progress := until(t, events, `"event":"download_progress"`)
	var e struct {
		Data struct {
			Progress map[string]struct{ Done, Total int64 }
		}
	}
	if err := json.Unmarshal([]byte(progress[len(progress)-1]), &e); err != nil ||
		e.Data.Progress["name-Q8_0.gguf"].Total != int64(len(h.data)) {
		t.Errorf("%v, %v", progress, err)
	}
	for _, path := range []string{"/models", "/v1/models"} {
		if _, text := web.do("GET", path, ""); !strings.Contains(text, `"value":"downloading","progress":{"name-Q8`) {
			t.Errorf("%s: %s", path, text)
		}
	}
	if status, _ := web.post("/v1/models", `{"model":"hf.co/owner/name:Q8_0"}`); status != 200 {
		t.Error("a second request for it:", status)
	}
	if n := len(h.downloads.List()); n != 1 {
		t.Errorf("%d downloads", n)
	}
	late := h.events(t)
	until(t, late, `"status":"downloading"`)
	h.fast()
	until(t, events, `"event":"download_finished"`)
	until(t, late, `"event":"download_finished"`)
	if got, err := wholeOf(h.dial(), "owner/name:Q8_0"); err != nil || got != "I am name-Q8_0.gguf" {
		t.Fatalf("%q, %v", got, err)
	}
	if status, text := web.post("/models", `{"model":"owner/name:Q8_0"}`); status != 400 ||
		!strings.Contains(text, "is here already") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := web.do("DELETE", "/models?model=owner/name:Q8_0", ""); status != 200 ||
		text != `{"success":true}`+"\n" {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"event":"model_remove"`, `"model":"owner/name:Q8_0"`)
	if files := h.files(); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
	if _, err := wholeOf(h.dial(), "owner/name:Q8_0"); err == nil {
		t.Error("it answers")
	}
	if status, text := web.do("DELETE", "/models?model=owner/name:Q8_0", ""); status != 404 {
		t.Errorf("%d %s", status, text)
	}
	// It can come again, under the same path.
	if status, text := web.post("/models", `{"model":"owner/name"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"event":"download_finished"`)
	if got, err := wholeOf(h.dial(), "owner/name"); err != nil || got != "I am name-Q8_0.gguf" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestDownloadCanceled: /models/unload cancels a download and keeps its parts; DELETE cancels it and deletes them.
func TestDownloadCanceled(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web, events := h.http(), h.events(t)
	h.slow()
	begin := func() {
		t.Helper()
		if status, text := web.post("/models", `{"model":"owner/name"}`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		until(t, events, `"event":"download_progress"`)
	}
	begin()
	if status, text := web.post("/models/unload", `{"model":"owner/name"}`); status != 200 ||
		!strings.Contains(text, `"value":"unloaded"`) {
		t.Errorf("%d %s", status, text)
	}
	until(t, events, `"event":"download_failed"`, "canceled")
	if _, err := os.Stat(filepath.Join(h.dir, hubFile+".part")); err != nil {
		t.Error(err)
	}
	begin()
	if status, text := web.do("DELETE", "/models?model=owner/name", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	until(t, events, `"event":"model_remove"`)
	if files := h.files(); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
	if status, _ := web.post("/models", `{"model":"owner/none"}`); status != 200 {
		t.Error(status)
	}
	until(t, events, `"event":"download_failed"`, "owner/none")
	if status, text := web.do("DELETE", "/models?model=one", ""); status != 400 ||
		!strings.Contains(text, "of the configuration") {
		t.Errorf("%d %s", status, text)
	}
	for _, x := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"POST", "/models", `{"model":"../../etc/passwd"}`, "no name of a model", 400},
		{"POST", "/models", `{"model":""}`, "no name", 400},
		{"POST", "/models", `{}`, "the body must be", 400},
		{"DELETE", "/models", "", "name the model in the query", 400},
		{"DELETE", "/models?model=..%2f..%2fetc", "", "not a model name", 400},
		{"DELETE", "/models?model=none", "", "no such model", 404},
	} {
		if status, text := web.do(x.method, x.path, x.body); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s %s %s: %d %s", x.method, x.path, x.body, status, text)
		}
	}
}

// TestDeleteWhileReplaced: a model that a download replaces by a newer file is deleted with what has arrived of that.
func TestDeleteWhileReplaced(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web, events := h.http(), h.events(t)
	if status, text := web.post("/models", `{"model":"owner/name"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"event":"download_finished"`)
	h.Change(func() {
		h.Repos["owner/name"] = &pulltest.Repo{Files: map[string][]byte{"name-Q8_0.gguf": pulltest.GGUF(400_000, 3)}}
	})
	h.slow()
	pulled, client := make(chan struct{}), h.http()
	go func() {
		defer close(pulled)
		client.do("POST", "/api/pull", `{"model":"hf.co/owner/name"}`)
	}()
	until(t, events, `"event":"download_progress"`)
	if status, text := web.do("DELETE", "/models?model=hf.co/owner/name", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	waitfor.Recv(t, "the end of the download", pulled)
	if files := h.files(); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

// TestForeignModelsStay: models of other programs' folders, and those that the configuration serves, are not deleted.
func TestForeignModelsStay(t *testing.T) {
	h := startHub(t, []string{"one"}, func(c *config.Config) {
		c.Models = append(c.Models, config.Model{Name: "mine", Model: filepath.Join(c.ModelsDir, "own.gguf"),
			IdleUnload: -1})
	})
	cache := filepath.Join(os.Getenv("LLAMA_CACHE"))
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(cache, "other.gguf"), filepath.Join(h.dir, "own.gguf")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, h.data, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
	}
	web := h.http()
	for name, want := range map[string]string{"other": "llama.cpp", "own": "by the configuration as mine"} {
		if status, text := web.do("DELETE", "/models?model="+name, ""); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// TestChangesNeedAPlace: a server that serves its configuration alone, or that must not use the network, says so.
func TestChangesNeedAPlace(t *testing.T) {
	for _, option := range []string{"--serve-found=false", "--offline"} {
		h := startHub(t, []string{"one"}, nil, option)
		if status, text := h.http().post("/models", `{"model":"owner/name"}`); status != http.StatusNotImplemented ||
			!strings.Contains(text, option) {
			t.Errorf("%s: %d %s", option, status, text)
		}
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestDeleteWhileAnswering: a model that answers is deleted when its answers have ended; new requests are refused.
func TestDeleteWhileAnswering(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	path := filepath.Join(h.dir, "slow.gguf")
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, h.data, 0o600); err != nil {
		t.Fatal(err)
	}
	c := h.dial()
	var st *wireclient.Stream
	waitfor.True(t, "it is found", func() bool { // the front's first scan may have begun before the file was written
		var err error
		if st, err = c.Stream(t.Context(), endless("slow")); err == nil {
			_, err = st.Next()
		}
		return err == nil
	})
	status := make(chan string, 1)
	go func() {
		code, text := h.http().do("DELETE", "/models?model=slow", "")
		status <- fmt.Sprint(code, text)
	}()
	waitfor.True(t, "it is being unloaded", func() (ok bool) {
		h.call(func() { ok = h.find("slow").state == unloading })
		return ok
	})
	st.Close()
	if got := waitfor.Recv(t, "the answer", status); !strings.HasPrefix(got, `200{"success":true}`) {
		t.Error(got)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there")
	}
}

// TestKilledDownloadOfAFront: the front ends with a download under way; the next one goes on from there.
func TestKilledDownloadOfAFront(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web, events := h.http(), h.events(t)
	h.slow()
	if status, text := web.post("/models", `{"model":"owner/name"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"event":"download_progress"`)
	if err := h.stop(); err != nil { // the front ends, and its download with it
		t.Fatal(err)
	}
	for _, name := range h.files() {
		if strings.HasSuffix(name, ".gguf") {
			t.Errorf("%s is there", name)
		}
	}
	h.fast()
	again := start(t, Options{}, []string{"one"}, nil, "--models-dir", h.dir)
	h2 := &hub{running: again, Server: h.Server, dir: h.dir}
	events = h2.events(t)
	if status, text := again.http().post("/models", `{"model":"owner/name"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	until(t, events, `"event":"download_finished"`)
	if got, err := os.ReadFile(filepath.Join(h.dir, hubFile)); err != nil || !bytes.Equal(got, h.data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
