package daemon

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// aboutImage is a request about an image.
func aboutImage(shade uint8, t *testing.T) func(*wire.Request) {
	data := pngText(t, shade)
	return func(q *wire.Request) {
		q.Prompt, q.MaxTokens = "", 2
		q.Messages = []wire.Message{{Role: "user", Content: wire.ImageMark + "what?",
			Images: []wire.Image{{Kind: "image_url", Data: data}}}}
	}
}

// TestImagesOfUsers: what one user has sent, another one's request does not find encoded, and so is no faster for it.
func TestImagesOfUsers(t *testing.T) {
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage}})
	for i, c := range []*as{r.as(7), r.as(7), r.as(8)} {
		c.send("x", aboutImage(5, t))
		if ev := c.end("x"); ev.Kind != wire.EventEOS {
			t.Fatal(ev.Error)
		}
		if got, want := r.counter("images_encoded_total"), []float64{1, 1, 2}[i]; got != want {
			t.Errorf("request %d: %v images were encoded, want %v", i, got, want)
		}
	}
	c := r.as(8)
	c.send("salted", func(q *wire.Request) { aboutImage(5, t)(q); q.CacheSalt = "of a tenant" })
	if c.end("salted"); r.counter("images_encoded_total") != 3 {
		t.Error("a salt does not divide images")
	}
	r.nothingLeft()
}

// TestImageWaitsAndIsCancelled: a request that waits for another one's image ends with its cancel, at once.
func TestImageWaitsAndIsCancelled(t *testing.T) {
	begun, goOn := make(chan bool, 4), make(chan bool)
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage, Encode: func(*runtime.Picture) error {
		begun <- true
		<-goOn
		return nil
	}}})
	a, b := r.as(7), r.as(8)
	a.send("first", aboutImage(5, t))
	<-begun
	b.send("second", aboutImage(6, t))
	eventually(t, "it waits", func() bool {
		rep := b.why(wire.WhyQuestion{Request: "second"})
		return len(rep.Requests) == 1 && rep.Requests[0].State == "viewing"
	})
	r.Cancel(b.Local, "second")
	if ev := b.end("second"); ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	r.Cancel(a.Local, "first") // while it is encoded: it ends with the part
	close(goOn)
	if ev := a.end("first"); ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	if r.counter("images_encoded_total") != 0 {
		t.Error("an image was kept that was cancelled")
	}
	a.send("third", aboutImage(5, t))
	if ev := a.end("third"); ev.Kind != wire.EventEOS {
		t.Error(ev.Error)
	}
	r.nothingLeft()
}

// TestCancelBeforeTheDecode: a cancel that comes when the loop has made its plan and makes way for an image ends the
// request, and no batch of its prompt is computed.
func TestCancelBeforeTheDecode(t *testing.T) {
	var r *running
	var decodes atomic.Int32
	var cancelled atomic.Bool
	conn := make(chan ipc.Client, 1)
	r = serve(t, fake.Config{Advance: func(time.Duration) { decodes.Add(1) },
		Images: &fake.Images{Rows: rowsOfImage, MakeWay: func(time.Duration) {
			if !cancelled.Swap(true) {
				r.Cancel(<-conn, "lone")
			}
		}}})
	c := r.as(7)
	conn <- c.Local
	c.send("lone", func(q *wire.Request) { q.Prompt, q.MaxTokens = text(0, 300), 1 })
	if ev := c.end("lone"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	if n := decodes.Load(); n != 0 {
		t.Errorf("%d batches were computed after the cancel", n)
	}
	r.nothingLeft()
}

// TestImagesAboveTheContext: no image is encoded behind the one with which the context is full, and images are not cut.
func TestImagesAboveTheContext(t *testing.T) {
	var encoded atomic.Int32
	r := serve(t, fake.Config{Images: &fake.Images{Rows: rowsOfImage, Encode: func(*runtime.Picture) error {
		encoded.Add(1)
		return nil
	}}}, "--ctx-size", "256")
	c := r.as(7)
	c.send("many", func(q *wire.Request) {
		aboutImage(0, t)(q)
		for k := range 60 {
			q.Messages[0].Content += wire.ImageMark
			q.Messages[0].Images = append(q.Messages[0].Images, wire.Image{Kind: "image_url",
				Data: pngText(t, uint8(k+1))})
		}
	})
	if ev := c.end("many"); ev.Error.Code != wire.ContextLength || encoded.Load() > 11 {
		t.Errorf("%+v after %d images", ev.Error, encoded.Load())
	}
	web := r.web()
	body := strings.Replace(imageBodies(pngText(t, 7))["/v1/chat/completions"][0], `"max_tokens"`,
		`"truncate_prompt_tokens":5,"max_tokens"`, 1)
	if status, _, answer := post(t, web, "/v1/chat/completions", body); status != http.StatusBadRequest ||
		!strings.Contains(string(answer), "truncate_prompt_tokens: the prompt has") {
		t.Errorf("%d %s", status, answer)
	}
	r.nothingLeft()
}
