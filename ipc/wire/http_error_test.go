package wire_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
)

func TestHTTPStatusOfEveryCode(t *testing.T) {
	for _, c := range Codes {
		status, kind := HTTPStatus(c)
		if status < 400 || kind == "" || (status == 500) != (c == RuntimeDecode || c == InternalFailure) {
			t.Errorf("%s: %d %s", c, status, kind)
		}
		var got struct{ Error struct{ Code int } }
		if b := AppendHTTPError(nil, &Error{Code: c, Message: "m\""}); json.Unmarshal(b, &got) != nil ||
			got.Error.Code != status {
			t.Errorf("%s", b)
		}
	}
}

// TestDocumentedStatuses holds docs/http.md's table of HTTP statuses against the code.
func TestDocumentedStatuses(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cols := strings.Split(strings.Trim(line, "|\n"), "|")
		status, err := strconv.Atoi(strings.TrimSpace(cols[0]))
		if err != nil || len(cols) != 3 {
			continue
		}
		rows++
		for _, c := range Codes {
			if !strings.Contains(cols[2], "`"+string(c)+"`") {
				continue
			}
			if s, kind := HTTPStatus(c); s != status || "`"+kind+"`" != strings.TrimSpace(cols[1]) {
				t.Errorf("%s: documented as %d %s, is %d %s", c, status, cols[1], s, kind)
			}
		}
	}
	if rows != 10 {
		t.Errorf("%d rows found", rows)
	}
}

// TestCheckJSON: a body is held to what a frame is held to.
func TestCheckJSON(t *testing.T) {
	for in, want := range map[string]string{`{"a":"\ud800"}`: `{"a":"\ufffd"}`, ` [1] `: ` [1] `} {
		if got, err := CheckJSON([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{``, `{`, `{"a":1}x`, "\"\xff\"", strings.Repeat("[", 65) + strings.Repeat("]", 65)} {
		var bad *RequestError
		if _, err := CheckJSON([]byte(in)); !errors.As(err, &bad) || bad.Code != InvalidJSON {
			t.Errorf("%q: %v", in, err)
		}
	}
	if !KnownField("max_completion_tokens") || KnownField("max_tokans") ||
		!strings.Contains(UnknownField("max_tokans").Error(), `"max_tokens"`) {
		t.Error("the fields of a request are not known")
	}
}
