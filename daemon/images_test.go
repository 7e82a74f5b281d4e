package daemon

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// pngText is a small picture of one color as base64.
func pngText(t testing.TB, shade uint8) string {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range m.Pix {
		m.Pix[i] = shade
	}
	m.Set(0, 0, color.Gray{shade + 1})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

const rowsOfImage = 24

// imageBodies ask in each API about one image and say how many tokens the prompt has.
func imageBodies(data string) map[string][2]string {
	return map[string][2]string{
		"/v1/chat/completions": {`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":[` +
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}},` +
			`{"type":"text","text":"what?"}]}]}`, "prompt_tokens"},
		"/v1/responses": {`{"model":"m","max_output_tokens":2,"input":[{"role":"user","content":[` +
			`{"type":"input_image","image_url":"data:image/png;base64,` + data + `"},` +
			`{"type":"input_text","text":"what?"}]}]}`, "input_tokens"},
		"/v1/messages": {`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":[{"type":"image","source":` +
			`{"type":"base64","media_type":"image/png","data":"` + data + `"}},{"type":"text","text":"what?"}]}]}`,
			"input_tokens"},
		"/api/chat": {`{"model":"m","stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":` +
			`"what?","images":["` + data + `"]}]}`, "prompt_eval_count"},
		"/api/generate": {`{"model":"m","stream":false,"options":{"num_predict":2},"prompt":"what?","images":["` +
			data + `"]}`, "prompt_eval_count"},
		"/v1beta/models/m:generateContent": {`{"generationConfig":{"maxOutputTokens":2},"contents":[{"role":"user",` +
			`"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}},{"text":"what?"}]}]}`,
			"promptTokenCount"},
	}
}

// TestImagesInEveryAPI: an image is the same prompt in each of them, and is encoded once. Its rows are cached like
// others: a repeated question computes its last row alone.
func TestImagesInEveryAPI(t *testing.T) {
	for _, together := range []bool{false, true} {
		r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage, Together: together}})
		web := r.web()
		_, _, answer := post(t, web, "/v1/chat/completions",
			`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"what?"}]}`)
		alone := numberIn(t, string(answer), "prompt_tokens")
		for path, body := range imageBodies(pngText(t, 7)) {
			status, _, answer := post(t, web, path, body[0])
			n := numberIn(t, string(answer), body[1])
			if path == "/v1/messages" { // it counts cached tokens apart
				n += numberIn(t, string(answer), "cache_read_input_tokens")
			}
			if status != http.StatusOK || n != alone+rowsOfImage+2 {
				t.Errorf("%s: %d, %d prompt tokens, want %d: %s", path, status, n, alone+rowsOfImage+2, answer)
			}
		}
		encoded, cached := r.counter("images_encoded_total"), r.counter("image_cache_hits_total.host")
		if encoded != 1 || cached < 5 {
			t.Errorf("encoded %v, cached %v", encoded, cached)
		}
		_, _, first := post(t, web, "/v1/chat/completions", imageBodies(pngText(t, 7))["/v1/chat/completions"][0])
		_, _, other := post(t, web, "/v1/chat/completions", imageBodies(pngText(t, 99))["/v1/chat/completions"][0])
		if n := numberIn(t, string(first), "cached_tokens"); n != alone+rowsOfImage+1 {
			t.Errorf("of the same question %d tokens were cached, want %d", n, alone+rowsOfImage+1)
		}
		if n := numberIn(t, string(other), "cached_tokens"); n >= alone {
			t.Errorf("another picture shares %d tokens of %d", n, alone)
		}
		r.nothingLeft()
	}
}

// numberIn returns the number of a JSON text's first member of that name.
func numberIn(t testing.TB, text, name string) (n int) {
	t.Helper()
	_, rest, found := strings.Cut(text, `"`+name+`":`)
	if _, err := fmt.Sscan(rest[:min(len(rest), 12)], &n); err != nil && !found {
		t.Fatalf("no number %q in %s", name, text)
	}
	return n
}

// TestImagesThatAreRefused: the error names the place and says what to do, and the server goes on.
func TestImagesThatAreRefused(t *testing.T) {
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage, Encode: func(p *runtime.Picture) error {
		if p.Width == 1 {
			return errors.New("it is too narrow")
		}
		return nil
	}}})
	web := r.web()
	ask := func(url string) (int, string) {
		status, _, answer := post(t, web, "/v1/chat/completions", `{"model":"m","max_tokens":2,"messages":[`+
			`{"role":"system","content":"x"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url",`+
			`"image_url":{"url":"`+url+`"}}]}]}`)
		return status, string(answer)
	}
	narrow := image.NewGray(image.Rect(0, 0, 1, 4))
	var b bytes.Buffer
	if err := png.Encode(&b, narrow); err != nil {
		t.Fatal(err)
	}
	whole, err := base64.StdEncoding.DecodeString(pngText(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString
	for url, want := range map[string]string{
		"https://example.org/cat.png":                         "fetches nothing",
		"file:///etc/passwd":                                  "opens no files",
		"data:image/png;base64,!":                             "base64 is malformed",
		"data:image/png;base64," + text([]byte("no picture")): "PNG, JPEG, WebP and GIF",
		"data:image/png;base64," + text(whole[:40]):           "image 1",
		"data:image/png;base64," + text(b.Bytes()):            "too narrow",
	} {
		if status, answer := ask(url); status != http.StatusBadRequest || !strings.Contains(answer, want) ||
			!strings.Contains(answer, "messages[1]") || !strings.Contains(answer, "image 1") {
			t.Errorf("%.60s: %d %s", url, status, answer)
		}
	}
	if status, answer := ask("data:image/png;base64," + pngText(t, 3)); status != http.StatusOK {
		t.Errorf("after them: %d %s", status, answer)
	}
	status, _, answer := post(t, web, "/v1/chat/completions", strings.Replace(
		imageBodies(pngText(t, 3))["/v1/chat/completions"][0], `"max_tokens"`,
		`"prompt_logprobs":1,"stream":true,"max_tokens"`, 1))
	if status != http.StatusBadRequest || !strings.Contains(string(answer), "prompt_logprobs") {
		t.Errorf("prompt_logprobs: %d %s", status, answer)
	}
	r.nothingLeft()
}

// TestImagesForAModelThatSeesNone: the answer comes without them, and why says so.
func TestImagesForAModelThatSeesNone(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	for path, body := range imageBodies(pngText(t, 7)) {
		if status, _, answer := post(t, web, path, body[0]); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	r.nothingLeft()
}

// TestOthersGoOnWhileAnImageIsEncoded: encoding holds up neither intake nor the decode loop; why names it, and a cancel
// ends the request.
func TestOthersGoOnWhileAnImageIsEncoded(t *testing.T) {
	begun, goOn := make(chan bool, 4), make(chan bool)
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage, Encode: func(*runtime.Picture) error {
		begun <- true
		<-goOn
		return nil
	}}})
	web := r.web()
	done := make(chan int, 1)
	go func() {
		status, _, _ := post(t, web, "/v1/chat/completions", imageBodies(pngText(t, 7))["/v1/chat/completions"][0])
		done <- status
	}()
	<-begun
	if status, _, answer := post(t, web, "/v1/chat/completions",
		`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"what?"}]}`); status != http.StatusOK {
		t.Errorf("beside it: %d %s", status, answer)
	}
	_, answer := get(t, web, "/why")
	if !strings.Contains(string(answer), `"viewing"`) || !strings.Contains(string(answer), "being encoded") {
		t.Errorf("why: %s", answer)
	}
	close(goOn)
	if status := <-done; status != http.StatusOK {
		t.Errorf("the image's request: %d", status)
	}
	r.nothingLeft()
}
