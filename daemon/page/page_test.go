package page

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

// TestFiles: every file is served with its type and the policy, and everything that the files name is there.
func TestFiles(t *testing.T) {
	names := regexp.MustCompile(`(?:href|src)="((?:page/)?[a-z-]+\.[a-z]+)"|from '\./([^']+)'`)
	for name := range files {
		path := place(name)
		rec := get(t, path)
		h := rec.Header()
		if rec.Code != 200 || h.Get("Content-Security-Policy") != policy ||
			h.Get("Permissions-Policy") != permissions || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Type") != files[name].kind {
			t.Errorf("%s: %d %v", path, rec.Code, h)
		}
		for _, m := range names.FindAllStringSubmatch(rec.Body.String(), -1) {
			if used := strings.TrimPrefix(m[1]+m[2], "page/"); files[used].body == nil {
				t.Errorf("%s names %s, which is not there", name, used)
			}
		}
	}
	for _, path := range []string{"/page/", "/page/index.html", "/page/none.js", "/page/assets/main.js",
		"/page/sw.js", "/main.js", "/_app/main.js"} {
		if rec := get(t, path); rec.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

// TestPermissions: the page may ask for what it has buttons for, and frames and other origins for nothing.
func TestPermissions(t *testing.T) {
	for _, p := range strings.Split(permissions, ", ") {
		name, who, _ := strings.Cut(p, "=")
		if own := name == "camera" || name == "microphone"; own != (who == "(self)") || !own && who != "()" {
			t.Error(p)
		}
	}
	if strings.Count(permissions, "camera=(self)") != 1 || strings.Count(permissions, "microphone=(self)") != 1 {
		t.Error(permissions)
	}
}

// TestNothingFetched: no file names another host, and none has a way to turn text into markup, inline code or inline
// style.
func TestNothingFetched(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"another host": regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]`),
		"markup of text": regexp.MustCompile(
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc`),
		"code of text": regexp.MustCompile(`\beval\(|new Function|setTimeout\(['"]|javascript:`),
		"inline":       regexp.MustCompile(`<script>|<style|\sstyle="|\son[a-z]+="|setAttribute\('style'`),
	}
	for name, f := range files {
		body := strings.ReplaceAll(string(f.body), "http://www.w3.org/2000/svg", "")
		for what, pattern := range forbidden {
			if found := pattern.FindString(body); found != "" {
				t.Errorf("%s: %s: %q", name, what, found)
			}
		}
		for i, line := range strings.Split(body, "\n") {
			if len(line) > 160 {
				t.Errorf("%s:%d has %d characters", name, i+1, len(line))
			}
		}
	}
}

// TestSize: the page costs a browser little.
func TestSize(t *testing.T) {
	total := 0
	for _, f := range files {
		total += len(f.body)
	}
	if total > 160<<10 {
		t.Errorf("the page has %d bytes", total)
	}
}
