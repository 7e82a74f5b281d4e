package daemon

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// soundBodies ask in each API about one sound and say how many tokens the prompt has.
func soundBodies(data string) map[string][2]string {
	return map[string][2]string{
		"/v1/chat/completions": {`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":[` +
			`{"type":"input_audio","input_audio":{"format":"wav","data":"` + data + `"}},` +
			`{"type":"text","text":"what?"}]}]}`, "prompt_tokens"},
		"/v1/responses": {`{"model":"m","max_output_tokens":2,"input":[{"role":"user","content":[` +
			`{"type":"input_audio","input_audio":{"format":"wav","data":"` + data + `"}},` +
			`{"type":"input_text","text":"what?"}]}]}`, "input_tokens"},
		"/v1beta/models/m:generateContent": {`{"generationConfig":{"maxOutputTokens":2},"contents":[{"role":"user",` +
			`"parts":[{"inlineData":{"mimeType":"audio/wav","data":"` + data + `"}},{"text":"what?"}]}]}`,
			"promptTokenCount"},
	}
}

func hearing() fake.Config {
	return fake.Config{Images: &fake.Images{Rows: rowsOfImage, Together: true, SampleRate: 16000, Blind: true}}
}

// TestSoundsInEveryAPI: a sound is the same prompt in each of them, is encoded once, and its rows are cached like
// others.
func TestSoundsInEveryAPI(t *testing.T) {
	r := serve(t, hearing())
	web := r.web()
	_, _, answer := post(t, web, "/v1/chat/completions",
		`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"what?"}]}`)
	alone := numberIn(t, string(answer), "prompt_tokens")
	data := base64.StdEncoding.EncodeToString(ggufgen.Chirp(1))
	bodies := soundBodies(data)
	for path, body := range bodies {
		status, _, answer := post(t, web, path, body[0])
		if n := numberIn(t, string(answer), body[1]); status != http.StatusOK || n != alone+rowsOfImage+2 {
			t.Errorf("%s: %d, %d prompt tokens, want %d: %s", path, status, n, alone+rowsOfImage+2, answer)
		}
	}
	if encoded, hits, images := r.counter("sounds_encoded_total"), r.counter("image_cache_hits_total.host"),
		r.counter("images_encoded_total"); encoded != 1 || hits != 2 || images != 0 {
		t.Errorf("encoded %v, cached %v, images %v", encoded, hits, images)
	}
	_, _, again := post(t, web, "/v1/chat/completions", bodies["/v1/chat/completions"][0])
	if n := numberIn(t, string(again), "cached_tokens"); n != alone+rowsOfImage+1 {
		t.Errorf("of the same question %d tokens were cached, want %d", n, alone+rowsOfImage+1)
	}
	if _, answer := get(t, web, "/props"); !strings.Contains(string(answer), `"vision":false`) ||
		!strings.Contains(string(answer), `"audio":true`) {
		t.Errorf("props: %s", answer)
	}
	// A model that hears and does not see leaves images out.
	status, header, answer := post(t, web, "/v1/chat/completions",
		imageBodies(pngText(t, 7))["/v1/chat/completions"][0])
	if status != http.StatusOK || !strings.Contains(header.Get("Warning"), "image_url") {
		t.Errorf("an image: %d %v %s", status, header, answer)
	}
	r.nothingLeft()
}

// TestSoundsThatAreRefused: the error names the place and says what to do, and the server goes on.
func TestSoundsThatAreRefused(t *testing.T) {
	r := serve(t, hearing())
	web := r.web()
	text := base64.StdEncoding.EncodeToString
	whole := ggufgen.Chirp(1)
	for data, want := range map[string]string{
		"https://example.org/a.wav": "fetches nothing",
		"file:///etc/passwd":        "opens no files",
		"!":                         "base64 is malformed",
		text([]byte("no sound")):    "WAV, FLAC and MP3",
		text(whole[:40]):            "no samples",
	} {
		status, _, answer := post(t, web, "/v1/chat/completions", soundBodies(data)["/v1/chat/completions"][0])
		if status != http.StatusBadRequest || !strings.Contains(string(answer), want) ||
			!strings.Contains(string(answer), "sound 1 (input_audio)") {
			t.Errorf("%.60s: %d %s", data, status, answer)
		}
	}
	status, _, answer := post(t, web, "/v1/chat/completions", soundBodies(text(whole))["/v1/chat/completions"][0])
	if status != http.StatusOK {
		t.Errorf("after them: %d %s", status, answer)
	}
	r.nothingLeft()
}

// TestSoundsForAModelThatHearsNone: a question that is a sound is refused; where an older message had one, the
// conversation goes on without it.
func TestSoundsForAModelThatHearsNone(t *testing.T) {
	for _, cfg := range []fake.Config{{}, {Images: &fake.Images{Rows: rowsOfImage}}} {
		r := serve(t, cfg)
		web := r.web()
		data := base64.StdEncoding.EncodeToString(ggufgen.Chirp(1))
		for path, body := range soundBodies(data) {
			if status, _, answer := post(t, web, path, body[0]); status != http.StatusBadRequest ||
				!strings.Contains(string(answer), "this model hears nothing") {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
		body := strings.Replace(soundBodies(data)["/v1/chat/completions"][0], `]}]}`,
			`]},{"role":"assistant","content":"a tone"},{"role":"user","content":"and now?"}]}`, 1)
		status, header, answer := post(t, web, "/v1/chat/completions", body)
		if status != http.StatusOK || !strings.Contains(header.Get("Warning"), "input_audio") {
			t.Errorf("later: %d %v %s", status, header, answer)
		}
		r.nothingLeft()
	}
}
