// Package storetest makes up the folders of other programs for tests, as those programs write them.
package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Write writes a file and the folders it is in.
func Write(t TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Copy copies a file to path, with the folders it is in.
func Copy(t TB, path, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	Write(t, path, data)
}

// Commit is the revision of main in Hub's repositories.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Hub adds files of a repository ORG/REPO, given by their paths in it, to a cache of Hugging Face's hub.
func Hub(t TB, cache, repo string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
	Write(t, filepath.Join(dir, "refs", "main"), []byte(Commit))
	Write(t, filepath.Join(cache, "CACHEDIR.TAG"), []byte("Signature: 8a477f597d28d172789f06886806bc55\n"))
	for rel, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		hash := sum(data)
		Write(t, filepath.Join(dir, "blobs", hash), data)
		link := filepath.Join(dir, "snapshots", Commit, filepath.FromSlash(rel))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		target := strings.Repeat("../", 2+strings.Count(rel, "/")) + "blobs/" + hash
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
}

// LlamaCpp adds a repository's files to a flat cache of llama.cpp, with the manifest of -hf REPO:TAG, which names the
// first of files.
func LlamaCpp(t TB, cache, repo, tag string, names []string, from []string) {
	t.Helper()
	flat := strings.ReplaceAll(repo, "/", "_") + "_"
	for i, name := range names {
		path := filepath.Join(cache, flat+strings.ReplaceAll(name, "/", "_"))
		Copy(t, path, from[i])
		Write(t, path+".etag", []byte(`"etag"`))
	}
	manifest := map[string]any{"ggufFile": map[string]any{"rfilename": names[0],
		"lfs": map[string]any{"sha256": strings.Repeat("0", 64)}}}
	Write(t, filepath.Join(cache, "manifest="+strings.ReplaceAll(repo, "/", "=")+"="+tag+".json"), toJSON(t, manifest))
}

// Layer is a layer of a model of ollama.
type Layer struct {
	Media string // the end of its media type: "model", "template", …
	Data  []byte
}

// Ollama adds a model, given by HOST/NAMESPACE/MODEL/TAG, to a folder of ollama.
func Ollama(t TB, dir, name string, layers ...Layer) {
	t.Helper()
	type entry struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	blob := func(media string, data []byte) entry {
		hash := sum(data)
		Write(t, filepath.Join(dir, "blobs", "sha256-"+hash), data)
		return entry{media, "sha256:" + hash, len(data)}
	}
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": blob("application/vnd.docker.container.image.v1+json", []byte(`{"model_format":"gguf"}`)),
	}
	list := []entry{}
	for _, l := range layers {
		list = append(list, blob("application/vnd.ollama.image."+l.Media, l.Data))
	}
	manifest["layers"] = list
	Write(t, filepath.Join(dir, "manifests", filepath.FromSlash(name)), toJSON(t, manifest))
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func toJSON(t TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
