package daemon

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestLlamaServerSlotActions: a slot's conversation is saved, erased and restored, also by another process.
func TestLlamaServerSlotActions(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--parallel", "2", "--slot-save-path", dir, "--cache-ram", "0"}
	r := serve(t, fake.Config{}, args...)
	web := r.web()
	ask := func(web *http.Client, slot int, stream bool) (prompt, cached int) {
		t.Helper()
		body := fmt.Sprintf(`{%s,"n_predict":8,"temperature":0,"id_slot":%d,"cache_prompt":true,"stream":%v}`, meaning,
			slot, stream)
		var last object
		if stream {
			chunks := streamed(t, web, "/completion", body)
			last = chunks[len(chunks)-1]
		} else {
			last = complete(t, web, "/completion", body)
		}
		return number(t, last, "timings", "prompt_n"), number(t, last, "timings", "cache_n")
	}
	act := func(web *http.Client, slot int, action, file string) object {
		t.Helper()
		return complete(t, web, fmt.Sprintf("/slots/%d?action=%s", slot, action), `{"filename":"`+file+`"}`)
	}
	if n, cached := ask(web, 1, false); n != 32 || cached != 0 {
		t.Fatalf("the first prompt: %d computed, %d cached", n, cached)
	}
	saved := act(web, 1, "save", "talk.bin")
	if number(t, saved, "n_saved") != 39 || number(t, saved, "n_written") < 39 || saved["filename"] != "talk.bin" ||
		number(t, saved, "id_slot") != 1 || saved["timings"].(object)["save_ms"] == nil {
		t.Errorf("%v", saved)
	}
	if n, cached := ask(web, 0, false); n != 1 || cached != 31 {
		t.Errorf("the same prompt in another slot: %d computed, %d cached", n, cached)
	}
	if erased := act(web, 0, "erase", ""); number(t, erased, "n_erased") < 32 || number(t, erased, "id_slot") != 0 {
		t.Errorf("%v", erased)
	}
	if n, cached := ask(web, 1, true); n != 32 || cached != 0 {
		t.Errorf("after erase: %d computed, %d cached", n, cached)
	}
	act(web, 1, "save", "streamed")
	if status, _, body := post(t, web, "/slots/1?action=erase", ""); status != 200 { // without a body, as clients do
		t.Errorf("%d %s", status, body)
	}
	if erased := act(web, 1, "erase", ""); number(t, erased, "n_erased") != 0 {
		t.Errorf("an empty slot: %v", erased)
	}
	for _, file := range []string{"talk.bin", "streamed"} {
		back := act(web, 0, "restore", file)
		if number(t, back, "n_restored") != 39 || number(t, back, "n_read") < 39 ||
			back["timings"].(object)["restore_ms"] == nil {
			t.Errorf("%v", back)
		}
		if n, cached := ask(web, 0, false); n != 1 || cached != 31 {
			t.Errorf("after restore of %s: %d computed, %d cached", file, n, cached)
		}
		act(web, 0, "erase", "")
	}
	r.nothingLeft()

	again := serve(t, fake.Config{}, args...)
	if back := act(again.web(), 1, "restore", "talk.bin"); number(t, back, "n_restored") != 39 {
		t.Errorf("another process: %v", back)
	}
	if n, cached := ask(again.web(), 1, false); n != 1 || cached != 31 {
		t.Errorf("another process: %d computed, %d cached", n, cached)
	}
	again.nothingLeft()
}

// TestLlamaServerSlotRefusals: names, files and slots that cannot be.
func TestLlamaServerSlotRefusals(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, fake.Config{}, "--parallel", "2", "--slot-save-path", dir)
	web := r.web()
	complete(t, web, "/completion", `{`+meaning+`,"n_predict":2,"id_slot":1}`)
	complete(t, web, "/slots/1?action=save", `{"filename":"mine"}`)
	folder := dir
	st, err := os.Stat(filepath.Join(folder, "mine"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", st, err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	good, err := os.ReadFile(filepath.Join(folder, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{outside: string(good), filepath.Join(folder, "noise"): "\x00\x01",
		filepath.Join(folder, "empty"): "", filepath.Join(folder, "version"): `{"version":2,"tokens":[1]}`,
		filepath.Join(folder, "none"):    `{"version":1,"tokens":[]}`,
		filepath.Join(folder, "foreign"): strings.Replace(string(good), `"model":"`, `"model":"another `, 1),
		filepath.Join(folder, "unknown"): words(0x67677371, 3, 2, 5, 99999999),
		filepath.Join(folder, "images"):  words(0x67677371, 3, 6, ^uint32(0), 1, 1, 5, 1, 0),
		filepath.Join(folder, "packed"):  words(0x67677371, 3, 5, ^uint32(0), 1, 9, 5, 0),
		filepath.Join(folder, "other"):   words(0x67677371, 2, 1, 5),
		filepath.Join(folder, "cut"):     words(0x67677371, 3, 9, 5),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, body, says string
	}{
		{"/slots/1?action=save", `{"filename":"../x"}`, "filename"},
		{"/slots/1?action=save", `{"filename":".x"}`, "filename"},
		{"/slots/1?action=save", `{"filename":"a/b"}`, "filename"},
		{"/slots/1?action=save", `{"filename":""}`, "filename"},
		{"/slots/1?action=save", `{"filename":"a\u0000b"}`, "filename"}, {"/slots/1?action=save", `{}`, "filename"},
		{"/slots/1?action=save", `{"filename":"` + strings.Repeat("x", 201) + `"}`, "1…200"},
		{"/slots/1?action=save", `{"filename":7}`, "must be a string"},
		{"/slots/0?action=save", `{"filename":"x"}`, "slot 0 is empty"},
		{"/slots/2?action=save", `{"filename":"x"}`, "slots 0…1"},
		{"/slots/x?action=save", `{"filename":"x"}`, "slots 0…1"},
		{"/slots/-1?action=erase", `{}`, "slots 0…1"}, {"/slots/1?action=paint", `{}`, "save, restore or erase"},
		{"/slots/1", `{}`, "save, restore or erase"},
		{"/slots/1?action=restore", `{"filename":"nothing"}`, "there is no saved slot"},
		{"/slots/1?action=restore", `{"filename":"noise"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"empty"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"version"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"none"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"link"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"foreign"}`, "was saved for the model"},
		{"/slots/1?action=restore", `{"filename":"unknown"}`, "another model's"},
		{"/slots/1?action=restore", `{"filename":"images"}`, "images"},
		{"/slots/1?action=restore", `{"filename":"packed"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"other"}`, "no saved slot"},
		{"/slots/1?action=restore", `{"filename":"cut"}`, "no saved slot"},
	} {
		status, _, body := post(t, web, c.path, c.body)
		if status != 400 || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %.60s: %d %s", c.path, c.body, status, body)
		}
	}
	complete(t, web, "/slots/1?action=restore", `{"filename":"mine"}`)
	for i := range 300 {
		status, _, body := post(t, web, "/slots/1?action=save", fmt.Sprintf(`{"filename":"f%d"}`, i))
		if status == 400 && strings.Contains(string(body), "saved slots are here") {
			break
		}
		if status != 200 || i == 299 {
			t.Fatalf("file %d: %d %s", i, status, body)
		}
	}
	complete(t, web, "/slots/1?action=save", `{"filename":"mine"}`) // one that there is already
	r.nothingLeft()

	r = serve(t, fake.Config{})
	if status, _, body := post(t, r.web(), "/slots/1?action=save", `{"filename":"x"}`); status != 501 ||
		!strings.Contains(string(body), "--slot-save-path") {
		t.Errorf("without the option: %d %s", status, body)
	}
}

// words returns a file's text of words, as llama.cpp writes them.
func words(list ...uint32) string {
	var b []byte
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return string(b)
}

// TestSlotFilesOfOthers: those of llama-server are restored by their tokens, and so are those of older versions, which
// lie in the user's folder.
func TestSlotFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, fake.Config{}, "--parallel", "2", "--slot-save-path", dir)
	model := r.web()
	folder := filepath.Join(dir, strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	name := complete(t, model, "/completion", `{`+meaning+`,"n_predict":2,"id_slot":1}`)["model"]
	for path, text := range map[string]string{
		filepath.Join(dir, "list"):   words(0x67677371, 3, 3, 5, 6, 7) + "cells",
		filepath.Join(dir, "packed"): words(0x67677371, 3, 7, ^uint32(0), 1, 3, 5, 6, 7, 0) + "cells",
		filepath.Join(folder, "old"): fmt.Sprintf(`{"version":1,"model":%q,"n_vocab":%d,"tokens":[5,6,7]}`, name,
			r.model.Load().Vocab.Size()),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"list", "packed", "old"} {
		back := complete(t, model, "/slots/0?action=restore", `{"filename":"`+file+`"}`)
		if number(t, back, "n_restored") != 3 {
			t.Errorf("%s: %v", file, back)
		}
	}
	complete(t, model, "/slots/1?action=save", `{"filename":"old"}`)
	complete(t, model, "/slots/1?action=save", `{"filename":"7"}`) // could be the folder of a user
	for _, file := range []string{"old", "7"} {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Error(err)
		}
	}
}
