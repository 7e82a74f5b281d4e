package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// AutoContext as CtxSize: the largest context that fits into the memory, up to the model's own.
const AutoContext = -1

// contextFlag is --ctx-size.
type contextFlag struct{ n *int }

func (f contextFlag) String() string {
	if f.n == nil || *f.n == AutoContext {
		return "auto"
	}
	return strconv.Itoa(*f.n)
}

func (f contextFlag) Set(text string) error {
	if strings.EqualFold(strings.TrimSpace(text), "auto") {
		*f.n = AutoContext
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case errors.Is(err, strconv.ErrRange):
		return err
	case err != nil:
		return errors.New("it must be a whole number, or auto")
	case n < 0:
		return fmt.Errorf("it must be %s", contexts)
	}
	*f.n = n
	return nil
}

func (contextFlag) Type() string { return "tokens" }

// ShareContext as RequestCtxSize: an equal part of CtxSize for each of Parallel requests, as llama-server's slots have
// it. No request waits for cells then, and none is preempted for another one's.
const ShareContext = -1

// requestContextFlag is --request-ctx-size.
type requestContextFlag struct{ n *int }

func (f requestContextFlag) String() string {
	if f.n != nil && *f.n == ShareContext {
		return "share"
	}
	if f.n == nil {
		return "0"
	}
	return strconv.Itoa(*f.n)
}

func (f requestContextFlag) Set(text string) error {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "share") {
		*f.n = ShareContext
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxContext || n > 0 && n < minCtxSize {
		return fmt.Errorf("it must be 0 for all of --ctx-size, %d…%d, or share", minCtxSize, maxContext)
	}
	*f.n = n
	return nil
}

func (requestContextFlag) Type() string { return "tokens" }

// contexts are the values of --ctx-size.
var contexts = fmt.Sprintf("%d…%d, 0 for the model's training context, or auto", minCtxSize, maxContext)

const (
	// leastContext is the smallest context, in tokens, that auto shrinks to before a model is refused.
	leastContext = 1024
	// EnoughContext is the context, in tokens, for which auto unloads other models rather than shrink further: the
	// prompt of a coding agent with its tools and some files.
	EnoughContext = 16384
	// contextStep rounds what auto finds; llama.cpp pads a context to as many tokens.
	contextStep = 256
	maxContext  = 1 << 27
	// autoUse is the part of the memory beside everything else that auto takes. The rest is for what grows: the stacks,
	// the Go heap, other programs.
	autoUse = 0.95
)

// own returns the context that a model is served with where memory does not matter: its training context.
func own(info *gguf.Info) int64 {
	n := min(info.TrainContext, maxContext)
	if n < minCtxSize { // the header does not tell it
		n = gguf.DefaultContext
	}
	return info.Limited(n)
}

// largest returns the largest context that auto may choose.
func (c *Config) largest(info *gguf.Info) int64 {
	n := own(info)
	if c.unknownDevice() {
		n = min(n, gguf.DefaultContext)
	}
	if c.MaxContext > 0 {
		n = min(n, int64(c.MaxContext))
	}
	return n
}

// Demand is the memory, in bytes, that an engine process takes, as a function of its context.
type Demand struct {
	Fixed int64 // whatever the context is: repacked weights, states, buffers, the draft model's cells
	// States is the part of Fixed for the states of recurrent layers: of each sequence that may run, and of cached
	// prefixes.
	States int64
	// For each token of context: its KV cells, and what a pass over the device needs.
	CellBytes, PassBytes int64
	Device               DeviceDemand
	// Mapped are the weights that lie in pages of files, by the file's path. Processes share them.
	Mapped map[string]int64
	// Most and Least are the context in tokens: both are the same where it is not chosen by memory.
	Most, Least int
	HostTier    bool // prefixes that leave the KV pool may be kept in host memory
}

// Private returns the memory beside Mapped with a context of so many tokens.
func (d *Demand) Private(tokens int) int64 { return d.Fixed + d.perToken()*int64(tokens) }

func (d *Demand) perToken() int64 { return d.CellBytes + d.PassBytes }

// Weights returns the sum of Mapped.
func (d *Demand) Weights() (n int64) {
	for _, bytes := range d.Mapped {
		n += bytes
	}
	return n
}

// Fit returns the largest context for which Private is at most room; 0: there is none.
func (d *Demand) Fit(room int64) int {
	if d.Private(d.Most) <= room {
		return d.Most
	}
	if d.perToken() <= 0 || d.Private(d.Least) > room {
		return 0
	}
	n := int((room - d.Fixed) / d.perToken())
	return max(d.Least, n/contextStep*contextStep)
}

// FitAvailable returns the context that is chosen where so many bytes are available: Fit without the last of them.
func (d *Demand) FitAvailable(bytes int64) int {
	if n := d.Fit(d.autoRoom(bytes)); n > 0 && bytes > d.Fixed {
		return n
	}
	return d.Fit(bytes)
}

// autoRoom returns the part of so many bytes that auto takes.
func (d *Demand) autoRoom(bytes int64) int64 { return d.Fixed + int64(autoUse*float64(bytes-d.Fixed)) }

// absurd is the bound on sizes that follow from a header, which can claim anything.
const absurd = 1 << 60

// passBytes returns the memory that a pass over the device needs for each token of context: the attention masks of its
// rows (F16; windowed layers have a second one), or without flash attention the masks in F32 and the scores of all
// heads. Measured: 68.5 MiB of compute buffer at 65,536 tokens and 260.5 at 262,144 with 512 rows.
func (c *Config) passBytes(info *gguf.Info) int64 {
	row := int64(2)
	if c.FlashAttn == "off" {
		heads := int64(0)
		for _, n := range info.Heads {
			heads = max(heads, n)
		}
		row = 4 * (1 + heads)
	}
	if info.SlidingWindow > 0 {
		row *= 2
	}
	return row * int64(min(c.UBatchSize, c.BatchSize))
}

// Demand returns what an engine process with this configuration takes. Model must be a file.
func (c *Config) Demand() (Demand, error) {
	info, err := gguf.Inspect(c.Model)
	if err != nil {
		return Demand{}, err
	}
	return c.demand(&info, c.processor())
}

// DemandOf is Demand for a header that has been read.
func (c *Config) DemandOf(info *gguf.Info) (Demand, error) { return c.demand(info, c.processor()) }

func (c *Config) demand(info *gguf.Info, p gguf.Processor) (Demand, error) {
	d := Demand{Mapped: map[string]int64{}, Fixed: processBytes}
	most := c.Cells(info)
	if d.Most, d.Least = most, most; c.CtxSize == AutoContext {
		d.Least = min(most, max(leastContext, c.Parallel))
	}
	add := func(info *gguf.Info, n gguf.Need) error {
		if n.Total() > absurd {
			return fmt.Errorf("%s claims sizes that no machine has", info.Path)
		}
		weights := int64(n.Anonymous(!c.NoMMap) - n.KV)
		d.Fixed += weights
		if mapped := int64(n.Total()-n.KV) - weights; mapped > 0 {
			d.Mapped[realPath(info.Path)] += mapped
		}
		return nil
	}
	n, _, _, err := c.need(info, 0, p)
	if err == nil {
		err = add(info, n)
	}
	if err != nil {
		return Demand{}, err
	}
	per, err := info.KVBytesPerToken(c.CacheTypeK, c.CacheTypeV)
	if err != nil {
		return Demand{}, err
	}
	if d.CellBytes = per; per > 0 { // an encoder has no cells
		d.PassBytes = c.passBytes(info)
	}
	d.HostTier = !c.NoPrefixCache && !info.Encoder && !c.NoHostTier() &&
		(c.CacheRAM.Auto || c.CacheRAM.Share > 0 || c.CacheRAM.Bytes > 0)
	if d.perToken() > absurd/maxContext || d.Fixed > absurd {
		return Demand{}, fmt.Errorf("%s claims sizes that no machine has", info.Path)
	}
	sequences, seals := c.sequences(info)
	d.States = seals + min(info.StateBytes, absurd/core.MaxSequences)*int64(sequences)
	d.Fixed += d.States
	if info.StateBytes > absurd/core.MaxSequences {
		return Demand{}, fmt.Errorf("%s claims sizes that no machine has", info.Path)
	}
	fixed, mapped := d.Fixed-d.States-processBytes, d.Mapped[realPath(info.Path)]
	d.Fixed += c.loraBytes() + c.headBytes(info)
	if d.Device, err = c.deviceDemand(info, &d, fixed, mapped); err != nil {
		return Demand{}, err
	}
	d.Fixed += c.projectorBytes()
	if n := c.draftNeed(p); n.Total() > 0 {
		draft, err := gguf.Inspect(c.DraftModel)
		if err == nil {
			err = add(&draft, n)
		}
		if err != nil {
			return Demand{}, err
		}
		d.Fixed += int64(n.KV)
		if len(d.Device.Layers) > 0 {
			d.Device.Draft = int64(min(n.Weights+n.KV, absurd)) + c.computeBytes(&draft)
		}
	}
	return d, nil
}

// realPath returns the file that a path means: names of other programs' stores are links to one file.
func realPath(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path
}

// unknownDevice reports whether layers may be on devices whose memory the drivers do not tell.
func (c *Config) unknownDevice() bool {
	_, host := c.hostMemory()
	return c.OnDevice() && !host && len(c.Rooms()) == 0
}

// FitMemory makes an automatic context of the model at path a number and chooses the layers on devices: what fits into
// the memory that is available now. Where a front has chosen, it takes that. note says what limits the context, for the
// log and for info; "" where it was given.
func (c *Config) FitMemory(path string) (note string) {
	info, err := gguf.Inspect(path)
	if err != nil { // the engine reports it
		if c.CtxSize == AutoContext {
			c.CtxSize = gguf.DefaultContext
		}
		return ""
	}
	most := c.Cells(&info)
	tokens, note := c.fitMemory(&info, most, int64(hostmem.Read().Available), c.processor())
	if c.CtxSize != AutoContext {
		return ""
	}
	c.CtxSize, c.contextNote = tokens, note
	return note
}

// fitMemory returns the largest context up to most for which the memory beside mapped weights fits into available
// bytes, and what limits it. It sets Place.
func (c *Config) fitMemory(info *gguf.Info, most int, available int64, p gguf.Processor) (tokens int, note string) {
	switch {
	case int64(most) == own(info):
		note = "auto: the model's own"
	case c.unknownDevice():
		return most, fmt.Sprintf("auto: little, as a device may be used whose memory is not known; the model's own "+
			"is %d", own(info))
	default:
		note = fmt.Sprintf("auto: as --memory allows; the model's own is %d", own(info))
	}
	rooms := c.Rooms()
	d, err := c.demand(info, p)
	if err != nil || available <= 0 && len(rooms) == 0 {
		return most, note // the engine reports the error
	}
	d.Most, d.Least = most, min(d.Least, most)
	room := available
	if limit, used, limited := hostmem.AddressSpace(); limited && !c.OnDevice() {
		room = min(room, int64(min(limit-min(limit, used), math.MaxInt64))-d.Weights()-addressMargin)
	}
	if bytes, ok := c.hostMemory(); ok && bytes > 0 {
		room = min(room, int64(min(bytes, math.MaxInt64)))
	}
	limit := ui.Bytes(uint64(available))
	switch {
	case c.Place != nil: // the front's, of all models' memory
		tokens = min(most, c.Place.Tokens)
		limit = "the memory that other models leave"
	case len(rooms) > 0:
		place := d.Place(func(on *Demand) int64 {
			if available <= 0 { // the host's memory is not known
				return math.MaxInt64
			}
			return on.autoRoom(room)
		}, rooms)
		if tokens = place.Tokens; tokens > 0 {
			c.Place = &place
		}
		limit = fmt.Sprintf("%s of the device's memory", ui.Bytes(uint64(total(rooms))))
	default:
		tokens = d.FitAvailable(room)
	}
	if tokens == 0 { // the check of the memory reports it, or the engine
		tokens = min(d.Least, most)
	}
	if tokens < most {
		note = fmt.Sprintf("auto: what fits into %s; the model's own is %d", limit, own(info))
	}
	return tokens, note
}

// total returns the sum of rooms.
func total(rooms []Room) (bytes int64) {
	for _, r := range rooms {
		bytes += r.Bytes
	}
	return bytes
}
