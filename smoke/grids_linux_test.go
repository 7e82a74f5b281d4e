//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// seeing returns a model of an architecture whose positions have several dimensions, and the options of its projector.
func seeing(t *testing.T, arch ggufgen.Arch) (model string, args []string) {
	t.Helper()
	if slices.Contains(llama.LeftOut(), "images") || slices.Contains(llama.LeftOut(), "grids") {
		t.Skip("this build reads no such images")
	}
	cfg := ggufgen.TinyGrids(arch)
	projector := filepath.Join(t.TempDir(), "projector.gguf")
	if err := ggufgen.WriteProjector(projector, ggufgen.Projector{Kind: arch.Projectors()[0], Width: cfg.Embedding,
		Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return ggufgen.Cached(t, cfg), []string{"--mmproj", projector}
}

// drawn is a picture as a data URL; no two numbers have the same.
func drawn(t *testing.T, number, width, height int) string {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, color.NRGBA{uint8(x * (3 + number)), uint8(y * (5 + number)), uint8(x*y + 40*number), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// shown is compared about pictures, with a text behind each.
func shown(id string, n int, texts []string, pictures ...string) string {
	var parts []string
	for i, p := range pictures {
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":%q}`, p,
			texts[i%len(texts)]))
	}
	return fmt.Sprintf(`{"id":%q,"messages":[{"role":"user","content":[%s]}],"max_tokens":%d,"temperature":0,`+
		`"ignore_eos":true,"stream":true,"logprobs":20,"thinking":false}`, id, strings.Join(parts, ","), n)
}

// look asks for n tokens about pictures.
func (s *server) look(n int, texts []string, pictures ...string) (said, wire.Usage) {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.request(shown("a", n, texts, pictures...))
	end := c.mustEnd("a", wire.Length)
	return c.said["a"], end.Usage
}

// gallery are prompts of three pictures each, and what a model said about them first.
type gallery struct {
	t    *testing.T
	want [4]said
}

const galleryTokens = 16

func (g *gallery) ask(s *server, i int) (said, wire.Usage) {
	texts := []string{fmt.Sprintf("part %d of ", i), " and then", long(60)}
	return s.look(galleryTokens, texts, drawn(g.t, i, 160, 240), drawn(g.t, 9, 100, 60), drawn(g.t, i+4, 200, 90))
}

// first asks for the answers that later ones are compared with.
func (g *gallery) first(s *server) {
	g.t.Helper()
	for i := range g.want {
		var use wire.Usage
		if g.want[i], use = g.ask(s, i); use.PromptTokens < 250 || use.PromptTokens > 450 {
			g.t.Fatalf("a prompt of %d tokens", use.PromptTokens)
		}
	}
}

// again asks about prompt i, whose cells come from a tier.
func (g *gallery) again(s *server, tier wire.CacheTier, i int) {
	g.t.Helper()
	got, use := g.ask(s, i)
	if err := likeAlone(g.want[i], got, galleryTokens, llama.Exact()); err != nil {
		g.t.Errorf("prompt %d: %v", i, err)
	}
	if use.CacheTier != tier || use.CachedTokens < use.PromptTokens*3/4 {
		g.t.Errorf("prompt %d: %d of %d tokens were cached, in tier %s, want %s", i, use.CachedTokens, use.PromptTokens,
			use.CacheTier, tier)
	}
}

// TestGridsThroughTiers: prompts with images of a model whose positions have several dimensions are shared in the pool
// and come back from the host's memory, and by another process from disk. Each answer is the one that was given first.
func TestGridsThroughTiers(t *testing.T) {
	for _, arch := range []ggufgen.Arch{ggufgen.Qwen2VL, ggufgen.Qwen3VL, ggufgen.Qwen35} {
		t.Run(string(arch), func(t *testing.T) {
			model, args := seeing(t, arch)
			args = append(args, "-c", "1024", "--parallel", "2", "--cache-ram", "64MiB", "--cache-dir",
				filepath.Join(t.TempDir(), "cells"))
			g := gallery{t: t}
			s := startModelBare(t, model, args...)
			g.first(s)
			g.again(s, wire.TierDevice, len(g.want)-1)
			for i := range g.want { // the pool has room for two
				g.again(s, wire.TierHost, i)
			}
			if err := s.Stop(waitfor.Limit); err != nil {
				t.Fatal(err)
			}
			s = startModelBare(t, model, args...)
			for i := range g.want {
				g.again(s, wire.TierDisk, i)
			}
		})
	}
}

// TestGridsOnAFabric: such prompts come from a fabric, whose pieces end within images.
func TestGridsOnAFabric(t *testing.T) {
	store := redistest.Start(t)
	model, args := seeing(t, ggufgen.Qwen2VL)
	daemon := func() *server {
		return startModelBare(t, model, append(args, "-c", "8192", "--cache-ram", "64MiB", "--cache-dir",
			filepath.Join(t.TempDir(), "cells"), "--fabric", store.URL())...)
	}
	one, g := daemon(), gallery{t: t}
	g.first(one)
	one.stored(len(g.want) * 250 / 16)
	two := daemon()
	for i := range g.want {
		g.again(two, wire.TierFabric, i)
	}
}

// TestGridsUnderPressure: answers about images in a pool that holds three of eight. Preempted ones are computed again
// or restored; none is another one.
func TestGridsUnderPressure(t *testing.T) {
	model, args := seeing(t, ggufgen.Qwen2VL)
	s := startModel(t, model, append(args, "-c", "768", "--parallel", "8", "-b", "64")...)
	const requests, tokens = 8, 120
	texts := []string{" look at it", " and at this one, then say"}
	alone := map[string]said{}
	c := s.dial()
	var all []string
	for i := range requests {
		id := fmt.Sprint("k", i)
		r := shown(id, tokens, texts, drawn(t, i%3, 100, 160), drawn(t, 5, 60, 60))
		all = append(all, r)
		c.request(r)
		c.mustEnd(id, wire.Length)
		alone[id] = c.said[id]
		delete(c.said, id)
	}
	c.request(all...)
	for left := requests; left > 0; {
		ev, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == wire.EventError {
			t.Fatalf("%+v", ev.Error)
		}
		if ev.Kind == wire.EventEOS {
			left--
		}
	}
	for id, want := range alone {
		if err := likeAlone(want, c.said[id], tokens, llama.Exact()); err != nil {
			t.Errorf("answer %s under pressure: %v", id, err)
		}
	}
	if body, err := s.Ask("metrics"); err != nil || strings.Contains(body, `"preemptions_total":0`) {
		t.Errorf("no request was preempted: the test shows nothing (%v)", err)
	}
	c.Close()
	s.nothingLeft()
}
