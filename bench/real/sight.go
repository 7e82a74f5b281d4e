package real

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// Sight measures what an image of 4,096 × 4,096 pixels does to streams beside it.
type Sight struct {
	Ours    *Server
	Streams int
	Target  time.Duration // of inter-token times
	Alone   time.Duration // for which the streams run before the image comes
	// Counter returns a metric of the server's by its name.
	Counter func(name string) (float64, error)
}

const (
	sightSide   = 4096
	sightTokens = 16 // of the answer to the image
)

// Seen is the result for one projector. Times are in ms.
type Seen struct {
	Name     string  `json:"name"`
	AloneP95 float64 `json:"alone_p95"`
	AloneMax float64 `json:"alone_max"`
	P95      float64 `json:"p95"` // while the image is decoded, encoded and answered
	Max      float64 `json:"max"`
	Gaps     int     `json:"gaps"`
	Answer   float64 `json:"answer"` // to the image, whole
	Again    float64 `json:"again"`  // to the same image, with another question
	Parts    float64 `json:"parts"`  // that were encoded for the first answer
	Twice    float64 `json:"twice"`  // and for the second
	// Of a daemon that was started again, alone, with nothing of the prompts cached: the time to the first token of an
	// answer about the same image and about another one, and the parts that were encoded for each.
	Stored      float64 `json:"stored"`
	Other       float64 `json:"other"`
	StoredParts float64 `json:"stored_parts"`
	OtherParts  float64 `json:"other_parts"`
}

// largePicture returns the URL of a PNG that differs everywhere, and from one with another phase.
func largePicture(phase float64) (string, error) {
	m := image.NewNRGBA(image.Rect(0, 0, sightSide, sightSide))
	wave := func(x float64) uint8 { return uint8(127 + 127*math.Sin(x+phase)) }
	for y := range sightSide {
		green := wave(float64(y) / 31)
		for x := range sightSide {
			m.SetNRGBA(x, y, color.NRGBA{wave(float64(x) / 47), green, uint8((x + y) / 40), 255})
		}
	}
	var b bytes.Buffer
	err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m)
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()), err
}

// stream generates until ctx is done and calls token for each event with tokens.
func (s *Server) stream(ctx context.Context, prompt string, token func(at time.Time)) error {
	resp, err := daemonproc.Stream(ctx, s.client(), daemonproc.Base+"/completion", map[string]any{"prompt": prompt,
		"n_predict": 100_000, "temperature": 0, "ignore_eos": true, "stream": true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			token(time.Now())
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("the stream ended by itself"), lines.Err())
}

// gap is the time between two tokens of a stream.
type gap struct {
	end time.Time
	ms  float64
}

// Measure measures with one projector.
func (c *Sight) Measure(ctx context.Context, name string) (*Seen, error) {
	url, err := largePicture(0)
	if err != nil {
		return nil, err
	}
	streams, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	var gaps []gap
	var wg sync.WaitGroup
	begun := make(chan bool, c.Streams)
	for i := range c.Streams {
		wg.Go(func() {
			n, last := 0, time.Time{}
			err := c.Ours.stream(streams, fmt.Sprintf("Story number %d: once upon a time", i), func(at time.Time) {
				mu.Lock()
				if !last.IsZero() {
					gaps = append(gaps, gap{at, float64(at.Sub(last).Microseconds()) / 1000})
				}
				mu.Unlock()
				if last = at; n == 10 {
					begun <- true
				}
				n++
			})
			if err != nil {
				stop(fmt.Errorf("stream %d: %w", i, err))
			}
		})
	}
	for range c.Streams {
		select {
		case <-begun:
		case <-streams.Done():
			return nil, context.Cause(streams)
		}
	}
	out := &Seen{Name: name}
	from := time.Now()
	select {
	case <-time.After(c.Alone):
	case <-streams.Done():
		return nil, context.Cause(streams)
	}
	alone := time.Now()
	if out.Answer, out.Parts, err = c.ask(streams, "", url, "what is this", sightTokens); err != nil {
		return nil, err
	}
	answered := time.Now()
	if out.Again, out.Twice, err = c.ask(streams, "", url, "which colours has it", sightTokens); err != nil {
		return nil, err
	}
	stop(nil)
	wg.Wait()
	of := func(from, to time.Time) (ms []float64) {
		for _, g := range gaps {
			if g.end.After(from) && !g.end.After(to) {
				ms = append(ms, g.ms)
			}
		}
		slices.Sort(ms)
		return ms
	}
	before, beside := of(from, alone), of(alone, answered)
	if len(before) == 0 || len(beside) == 0 {
		return nil, fmt.Errorf("%d and %d inter-token times", len(before), len(beside))
	}
	out.AloneP95, out.AloneMax = before[len(before)*95/100], before[len(before)-1]
	out.P95, out.Max, out.Gaps = beside[len(beside)*95/100], beside[len(beside)-1], len(beside)
	return out, nil
}

// Restarted measures a daemon that has the --cache-dir of the one of Measure, and adds to its result.
func (c *Sight) Restarted(ctx context.Context, out *Seen) error {
	for _, of := range []struct {
		phase     float64
		ms, parts *float64
	}{{0, &out.Stored, &out.StoredParts}, {1, &out.Other, &out.OtherParts}} {
		url, err := largePicture(of.phase)
		if err != nil {
			return err
		}
		// Cells of the other prompts are of no use behind a text before the image.
		text := fmt.Sprintf("This is picture %.0f of two.", of.phase+1)
		if *of.ms, *of.parts, err = c.ask(ctx, text, url, "what is this", 1); err != nil {
			return err
		}
	}
	return nil
}

// ask asks about an image, which stands between two texts, and returns the time to the end of an answer of so many
// tokens, in ms, and the parts that were encoded.
func (c *Sight) ask(ctx context.Context, text, url, question string, tokens int) (ms, parts float64, err error) {
	const encoded = "images_encoded_total"
	before, err := c.Counter(encoded)
	if err != nil {
		return 0, 0, err
	}
	content := []any{map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}},
		map[string]string{"type": "text", "text": question}}
	if text != "" {
		content = append([]any{map[string]string{"type": "text", "text": text}}, content...)
	}
	body := map[string]any{"max_tokens": tokens, "temperature": 0,
		"messages": []any{map[string]any{"role": "user", "content": content}}}
	start := time.Now()
	var answer struct{}
	if err := c.Ours.post(ctx, "/v1/chat/completions", body, &answer); err != nil {
		return 0, 0, err
	}
	ms = float64(time.Since(start).Milliseconds())
	after, err := c.Counter(encoded)
	return ms, after - before, err
}

// Judge says whether the streams kept their target and the image was encoded once.
func (c *Sight) Judge(all []*Seen, seconds float64) Check {
	check := Check{Name: "images", OK: true, Details: all, Seconds: seconds}
	var said []string
	for _, s := range all {
		said = append(said, fmt.Sprintf("%s: ITL p95 %.1f ms, at most %.1f (alone %.1f and %.1f), the answer after "+
			"%.1f s, again after %.1f s, %.0f parts encoded, then %.0f; after a restart the first token after %.2f s, "+
			"of another image after %.2f s", s.Name, s.P95, s.Max, s.AloneP95, s.AloneMax,
			s.Answer/1000, s.Again/1000, s.Parts, s.Twice, s.Stored/1000, s.Other/1000))
		if target := float64(c.Target.Milliseconds()); s.P95 > target {
			check.Fail("%s: the inter-token time's p95 is %.1f ms, the target is %.0f ms", s.Name, s.P95, target)
		}
		if s.Parts == 0 || s.Twice != 0 {
			check.Fail("%s: %.0f parts were encoded, and %.0f for the same image", s.Name, s.Parts, s.Twice)
		}
		if s.StoredParts != 0 || s.OtherParts == 0 {
			check.Fail("%s: after a restart %.0f parts were encoded for the same image, and %.0f for another one",
				s.Name, s.StoredParts, s.OtherParts)
		}
	}
	check.Summary = strings.Join(said, "; ")
	return check
}
