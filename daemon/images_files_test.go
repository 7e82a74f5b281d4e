package daemon

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestImagesInFiles: an image in a file that comes with the frame is the same prompt as one in the text, and is encoded
// once for both. The page and programs over HTTP cannot name a file.
func TestImagesInFiles(t *testing.T) {
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage}})
	data := pngText(t, 7)
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "p.png")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ask := func(image string, files ...*os.File) (prompt, cached int) {
		t.Helper()
		q := client.NewRequest(client.UserWith("what?", client.Picture(image)))
		q.MaxTokens = 2
		c, err := client.Dial(context.Background(), r.cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := c.StreamFiles(context.Background(), q, files...)
		if err != nil {
			t.Fatal(err)
		}
		for s.End() == nil {
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
		}
		return s.End().Usage.PromptTokens, s.End().Usage.CachedTokens
	}
	byText, _ := ask("data:image/png;base64," + data)
	byFile, cached := ask("fd:0", f)
	if byText != byFile || cached != byFile-1 {
		t.Errorf("%d prompt tokens of a data: URL; of a file %d, %d of them cached", byText, byFile, cached)
	}
	if n := r.counter("images_encoded_total"); n != 1 {
		t.Errorf("%v images were encoded", n)
	}
	status, _, answer := post(t, r.web(), "/v1/chat/completions", `{"messages":[{"role":"user","content":[`+
		`{"type":"image_url","image_url":{"url":"fd:0"}}]}]}`)
	if status != 400 || !strings.Contains(string(answer), "it is a URL (fd:)") {
		t.Errorf("over HTTP: %d %s", status, answer)
	}
	r.nothingLeft()
}
