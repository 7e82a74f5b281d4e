// Package page holds the daemon's web page: a chat, and a live view of what the daemon is doing. Its files are written
// by hand and embedded; the page fetches nothing from elsewhere.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// Prefix begins the paths of the page's files, all but the page itself, which is "/", and those of Roots.
const Prefix = "/page/"

// Roots are the paths of files outside of Prefix. A service worker and a manifest apply to the folder that they are in.
// llama-server's page, where it still runs in a browser, looks for a newer one of itself at VersionPath and finds this
// one.
var Roots = []string{"/sw.js", "/manifest.webmanifest", VersionPath}

// VersionPath is the path of a JSON object whose version changes with the page's files.
const VersionPath = "/_app/version.json"

// Has reports whether a path is one of the page's.
func Has(path string) bool {
	return path == "/" || strings.HasPrefix(path, Prefix) || slices.Contains(Roots, path)
}

// policy is the Content-Security-Policy of every file: scripts, styles and connections of this origin only, nothing
// inline, no frame around the page. What a model writes can therefore neither run nor fetch anything.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// permissions is the Permissions-Policy of every file: the page may ask for the camera and the microphone, which it has
// buttons for, and no other origin in it. What else browsers have of this kind is off.
const permissions = "camera=(self), microphone=(self), accelerometer=(), display-capture=(), geolocation=(), " +
	"gyroscope=(), hid=(), magnetometer=(), midi=(), payment=(), serial=(), usb=(), xr-spatial-tracking=()"

// file is an embedded file as it is served.
type file struct {
	body []byte
	kind string // Content-Type
	tag  string // ETag
}

// files are the files of the folder assets, by name.
var files = load()

// kinds are the types of the files.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".webmanifest": "application/manifest+json",
}

func load() map[string]file {
	out := map[string]file{}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic("page: " + err.Error()) // embedded
	}
	for _, e := range entries {
		body, err := fs.ReadFile(assets, "assets/"+e.Name())
		if err != nil {
			panic("page: " + err.Error())
		}
		out[e.Name()] = newFile(e.Name(), body)
	}
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(out)) {
		io.WriteString(all, out[name].tag)
	}
	version := fmt.Sprintf("{\"version\":%q}\n", "uma-serve-"+hex.EncodeToString(all.Sum(nil)[:12]))
	out[path.Base(VersionPath)] = newFile(VersionPath, []byte(version))
	return out
}

func newFile(name string, body []byte) file {
	sum := sha256.Sum256(body)
	kind, ok := kinds[path.Ext(name)]
	if !ok {
		panic(fmt.Sprintf("page: %s has no type", name))
	}
	return file{body, kind, `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// place returns the path of a file.
func place(name string) string {
	if name == "index.html" {
		return "/"
	}
	for _, root := range Roots {
		if path.Base(root) == name {
			return root
		}
	}
	return Prefix + name
}

// ServeHTTP answers GET and HEAD of "/", of Roots and of the files below Prefix.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	if r.URL.Path == "/" {
		name = "index.html"
	}
	f, ok := files[name]
	if !ok || place(name) != r.URL.Path {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Permissions-Policy", permissions)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache") // a newer daemon has newer files: the browser asks, and the tag answers
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
