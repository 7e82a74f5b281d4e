package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

func TestStore(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	dir := filepath.Join(t.TempDir(), "files")
	open := func() *Store {
		t.Helper()
		s, err := Open(dir, func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	a, err := s.Create(7, File{Name: "a.txt", Purpose: "user_data"}, strings.NewReader("hello"))
	if err != nil || a.Bytes != 5 {
		t.Fatalf("%+v %v", a, err)
	}
	b, err := s.Create(7, File{Name: "b", Purpose: "batch", Expires: now.Unix() + 100}, strings.NewReader("there"))
	if err != nil {
		t.Fatal(err)
	}
	content := func(s *Store, owner uint32, id string) string {
		_, in, err := s.Read(owner, id)
		if err != nil {
			return err.Error()
		}
		defer in.Close()
		text, _ := io.ReadAll(in)
		return string(text)
	}
	for range 2 { // before and after a restart
		if got := content(s, 7, a.ID) + content(s, 7, b.ID); got != "hellothere" {
			t.Errorf("%q", got)
		}
		if content(s, 8, a.ID) != ErrNone.Error() || len(s.List(8)) != 0 || len(s.List(7)) != 2 {
			t.Error("owners are not apart")
		}
		s = open()
	}
	now = now.Add(101 * time.Second)
	if got := content(s, 7, b.ID); got != ErrNone.Error() {
		t.Errorf("an expired file: %q", got)
	}
	if l := s.List(7); len(l) != 1 || l[0].ID != a.ID || s.all != 5 {
		t.Errorf("%+v, %d bytes", l, s.all)
	}
	if s.Delete(8, a.ID) == nil || s.Delete(7, a.ID) != nil || s.Delete(7, a.ID) == nil || s.all != 0 {
		t.Error("delete")
	}
	for _, f := range []File{{Name: "", Purpose: "x"}, {Name: "a\nb", Purpose: "x"}, {Name: "a", Purpose: ""},
		{Name: strings.Repeat("x", 256), Purpose: "x"}} {
		if _, err := s.Create(7, f, strings.NewReader("")); !errors.As(err, new(*wire.RequestError)) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if _, err := s.Create(7, File{Name: "a", Purpose: "x"}, io.MultiReader(strings.NewReader("half"),
		&broken{})); !errors.As(err, new(*wire.RequestError)) || s.all != 0 {
		t.Errorf("an upload that breaks off: %v, %d bytes", err, s.all)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "7")); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

// TestHalves: whatever a process that was killed, or a disk that was full, leaves is no file.
func TestHalves(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Create(7, File{Name: "a", Purpose: "x"}, strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "7", f.ID)
	meta, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	for n := range meta { // a description of any length, beside the data
		if err := os.WriteFile(path+".json", meta[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir, time.Now); err != nil || len(s.List(7)) != 0 {
			t.Fatalf("%d bytes of a description are a file: %v", n, err)
		}
		if err := os.WriteFile(path, []byte("whole"), 0o600); err != nil { // Open has removed it
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+".json", meta, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("who"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, time.Now); err != nil || len(s.List(7)) != 0 || s.all != 0 {
		t.Errorf("data that was cut is a file: %v", err)
	}
}

// uploaded posts a form to the API and returns the status and the answer.
func uploaded(t *testing.T, h http.Handler, anthropic bool, fields [][2]string, name, content string) (int,
	map[string]any) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range fields {
		form.WriteField(f[0], f[1])
	}
	if name != "" {
		p, err := form.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, content)
	}
	form.Close()
	req := httptest.NewRequest(http.MethodPost, Path, &body)
	req.Header.Set("Content-Type", form.FormDataContentType())
	return sent(t, h, req, anthropic)
}

func sent(t *testing.T, h http.Handler, req *http.Request, anthropic bool) (int, map[string]any) {
	t.Helper()
	if anthropic {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	out := map[string]any{}
	if json.Unmarshal(w.Body.Bytes(), &out) != nil {
		out["text"] = w.Body.String()
	}
	return w.Code, out
}

func handler(t testing.TB) http.Handler {
	t.Helper()
	s, err := Open(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	a := &API{Store: s, Owner: func(*http.Request) uint32 { return 1 },
		Fail: func(w http.ResponseWriter, _ *http.Request, e *wire.Error) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "{\"error\":%q}", e.Message)
		}}
	mux := http.NewServeMux()
	for _, r := range a.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, r.Handle)
	}
	return mux
}

func TestAPI(t *testing.T) {
	h := handler(t)
	purpose := [][2]string{{"purpose", "batch"}, {"expires_after[anchor]", "created_at"},
		{"expires_after[seconds]", "3600"}}
	status, f := uploaded(t, h, false, purpose, "in.jsonl", "{}\n")
	if status != 200 || f["object"] != "file" || f["bytes"] != 3.0 || f["purpose"] != "batch" ||
		f["expires_at"] == nil {
		t.Fatalf("%d %v", status, f)
	}
	id := f["id"].(string)
	_, g := uploaded(t, h, true, nil, "doc.txt", "text")
	if g["type"] != "file" || g["size_bytes"] != 4.0 || g["filename"] != "doc.txt" {
		t.Errorf("%v", g)
	}
	get := func(path string, anthropic bool) (int, map[string]any) {
		return sent(t, h, httptest.NewRequest(http.MethodGet, path, nil), anthropic)
	}
	if _, got := get(Path+"/"+id+"/content", false); len(got) != 0 {
		t.Errorf("the content is %v", got)
	}
	if _, got := get(Path+"/"+id, true); got["type"] != "file" {
		t.Errorf("%v", got)
	}
	if _, got := get(Path, false); len(got["data"].([]any)) != 2 || got["object"] != "list" {
		t.Errorf("%v", got)
	}
	if _, got := get(Path+"?purpose=batch", false); len(got["data"].([]any)) != 1 {
		t.Errorf("%v", got)
	}
	_, page := get(Path+"?limit=1", true)
	if _, rest := get(Path+"?limit=1&after_id="+page["last_id"].(string), true); page["has_more"] != true ||
		rest["has_more"] != false || rest["first_id"] == page["first_id"] {
		t.Errorf("%v, then %v", page, rest)
	}
	if status, got := sent(t, h, httptest.NewRequest(http.MethodDelete, Path+"/"+id, nil), false); status != 200 ||
		got["deleted"] != true {
		t.Errorf("%d %v", status, got)
	}
	if status, got := get(Path+"/"+id, false); status != 400 || !strings.Contains(fmt.Sprint(got), id) {
		t.Errorf("%d %v", status, got)
	}
	for _, c := range []struct {
		fields [][2]string
		name   string
		want   string
	}{{nil, "a", "purpose"}, {purpose, "", "no field"},
		{[][2]string{{"purpose", "x"}, {"expires_after[seconds]", "5"}}, "a", "3600"},
		{[][2]string{{"purpose", strings.Repeat("x", 2000)}}, "a", "1024"}} {
		if status, got := uploaded(t, h, false, c.fields, c.name, "x"); status != 400 ||
			!strings.Contains(fmt.Sprint(got), c.want) {
			t.Errorf("%v: %d %v, want %q", c.fields, status, got, c.want)
		}
	}
	req := httptest.NewRequest(http.MethodPost, Path, strings.NewReader("{}"))
	if status, got := sent(t, h, req, false); status != 400 || !strings.Contains(fmt.Sprint(got), "multipart") {
		t.Errorf("%d %v", status, got)
	}
}

// TestPurposeBehindFile: openai's JavaScript client sends the fields in the order in which its caller names them.
func TestPurposeBehindFile(t *testing.T) {
	h := handler(t)
	part := func(name, content string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + content + "\r\n"
	}
	file := part("file\"; filename=\"a.jsonl", "{}")
	for body, want := range map[string]string{
		file + part("purpose", "batch") + part("expires_after[seconds]", "3600") + "--x--\r\n": "purpose:batch",
		file + "--x--\r\n": "field \"purpose\"",
		file + part("purpose", "batch") + file + "--x--\r\n": "two fields",
		file + part("purpose", "batch"):                      "whole",
	} {
		req := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
		req.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		_, got := sent(t, h, req, false)
		if !strings.Contains(fmt.Sprint(got), want) || want == "purpose:batch" && got["expires_at"] == nil {
			t.Errorf("%q: %v, want %q", body, got, want)
		}
	}
	if _, got := sent(t, h, httptest.NewRequest(http.MethodGet, Path, nil), false); len(got["data"].([]any)) != 1 {
		t.Errorf("what was refused is kept: %v", got)
	}
}

// TestPages: pages are in the order of creation, in both directions, and go on after files that have been deleted.
func TestPages(t *testing.T) {
	h := handler(t)
	for _, name := range []string{"0", "1", "2", "3", "4"} {
		if status, got := uploaded(t, h, false, [][2]string{{"purpose", "x"}}, name, "x"); status != 200 {
			t.Fatal(got)
		}
	}
	ask := func(method, query string, anthropic bool) map[string]any {
		_, got := sent(t, h, httptest.NewRequest(method, Path+query, nil), anthropic)
		return got
	}
	names := func(page map[string]any) (s string) {
		for _, f := range page["data"].([]any) {
			s += f.(map[string]any)["filename"].(string)
		}
		return s
	}
	id := map[string]string{}
	for _, f := range ask(http.MethodGet, "", false)["data"].([]any) {
		id[f.(map[string]any)["filename"].(string)] = f.(map[string]any)["id"].(string)
	}
	for _, c := range []struct {
		query, want string
		more        bool
	}{{"", "43210", false}, {"?order=asc&limit=2", "01", true}, {"?order=asc&limit=3&after=" + id["1"], "234", false},
		{"?limit=2&after_id=" + id["3"], "21", true}, {"?limit=2&before_id=" + id["1"], "32", true},
		{"?limit=2&before_id=" + id["3"], "4", false}, {"?after_id=" + id["4"] + "&before_id=" + id["1"], "32", false},
		{"?limit=2&after=" + id["0"], "", false}} {
		if got := ask(http.MethodGet, c.query, true); names(got) != c.want || got["has_more"] != c.more {
			t.Errorf("%s: %v, want %s", c.query, got, c.want)
		}
	}
	read, query := "", ""
	for range 9 { // a client that deletes what it has read
		page := ask(http.MethodGet, "?limit=2"+query, false)
		read += names(page)
		for _, f := range page["data"].([]any) {
			ask(http.MethodDelete, "/"+f.(map[string]any)["id"].(string), false)
		}
		if page["has_more"] == false {
			break
		}
		query = "&after=" + page["last_id"].(string)
	}
	if read != "43210" {
		t.Errorf("%q was read", read)
	}
	for _, query := range []string{"?limit=0", "?limit=x", "?order=down"} {
		if got := ask(http.MethodGet, query, false); got["error"] == nil {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// TestMostFiles: uploads that run count for the limit, and files of others that have expired do not.
func TestMostFiles(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s, err := Open(t.TempDir(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	old := File{Name: "a", Purpose: "x", Expires: now.Unix() + 1}
	if _, err := s.Create(9, old, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	s.files[7] = map[string]File{}
	for i := range MaxOwnerFiles - 1 {
		s.files[7][fmt.Sprint(i)] = File{}
	}
	now = now.Add(time.Minute)
	_, err = s.CreateThen(7, File{Name: "a", Purpose: "x"}, strings.NewReader("new"), func(*File) error {
		_, err := s.Create(7, File{Name: "b", Purpose: "x"}, strings.NewReader(""))
		if !errors.As(err, new(*wire.RequestError)) {
			t.Errorf("one file too many: %v", err)
		}
		return nil
	})
	if err != nil || s.all != 3 || s.used[9] != 0 || len(s.begun) != 0 {
		t.Errorf("%v, %d bytes, %d of the other user, %v", err, s.all, s.used[9], s.begun)
	}
}

func FuzzUpload(f *testing.F) {
	f.Add("--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\n" +
		"Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ntext\r\n--x--\r\n")
	f.Add("--x\r\n\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		h := handler(t)
		req := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
		req.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		h.ServeHTTP(httptest.NewRecorder(), req)
	})
}
