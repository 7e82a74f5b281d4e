// Package adapters knows the LoRA adapters of an engine process's model: which of them a request has, at which scales,
// and which mix of the engine stands for them.
package adapters

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// Adapter is a loaded adapter.
type Adapter struct {
	config.LoRA
	runtime.AdapterInfo
	id     runtime.Adapter
	digest [sha256.Size]byte // of its file
}

// Part is an adapter of a Choice, by its place in the table.
type Part struct {
	Adapter int
	Scale   float32 // not 0
}

// Choice are the adapters of a request, in the order of the table. The empty one is the model itself.
type Choice []Part

// Table has the adapters of a model. Its methods may be called from any goroutine. A nil Table has none.
type Table struct {
	list   []Adapter
	scales atomic.Pointer[[]float32] // by adapter: of requests that choose none
}

// Load loads the adapters into the engine. The error names the file.
func Load(eng runtime.Engine, list []config.LoRA) (*Table, error) {
	if len(list) == 0 {
		return nil, nil
	}
	e, ok := eng.(runtime.Adapters)
	if !ok {
		return nil, errors.New("--lora: this engine takes no adapters")
	}
	t := &Table{}
	scales := make([]float32, len(list))
	for i, c := range list {
		a, err := load(e, c)
		if err != nil {
			return nil, fmt.Errorf("--lora %s: %w", c.File, err)
		}
		t.list = append(t.list, a)
		if c.Always {
			scales[i] = c.Scale
		}
	}
	t.scales.Store(&scales)
	return t, nil
}

func load(e runtime.Adapters, c config.LoRA) (Adapter, error) {
	a := Adapter{LoRA: c}
	st, err := os.Stat(c.File) // opening a named pipe waits for a writer, and a device has no end
	if err != nil {
		return a, err
	}
	if !st.Mode().IsRegular() {
		return a, errors.New("it is not a file; name an adapter, a GGUF file")
	}
	f, err := os.Open(c.File)
	if err != nil {
		return a, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return a, err
	}
	h.Sum(a.digest[:0])
	a.id, a.AdapterInfo, err = e.LoadAdapter(f)
	return a, err
}

// List returns the adapters and the scales that requests have which choose none.
func (t *Table) List() ([]Adapter, []float32) {
	if t == nil {
		return nil, nil
	}
	return t.list, *t.scales.Load()
}

// Info lists the adapters.
func (t *Table) Info() (out []wire.InfoAdapter) {
	list, scales := t.List()
	for i := range list {
		a := &list[i]
		out = append(out, wire.InfoAdapter{ID: i, Name: a.Name, Path: a.File, Scale: scales[i], Bytes: a.Bytes,
			Invocation: a.Invocation})
	}
	return out
}

// SetScales sets the scales of requests that choose no adapters: those of the list, and 0 of the others.
func (t *Table) SetScales(list []wire.LoRA) error {
	c, err := t.parts(list)
	if err != nil {
		return err
	}
	if t == nil {
		return nil
	}
	scales := make([]float32, len(t.list))
	for _, p := range c {
		scales[p.Adapter] = p.Scale
	}
	t.scales.Store(&scales)
	return nil
}

// named returns the place of the adapter of a model's name: NAME, or MODEL:NAME.
func (t *Table) named(model string) int {
	if t == nil || model == "" {
		return -1
	}
	last := model[strings.LastIndexByte(model, ':')+1:]
	return slices.IndexFunc(t.list, func(a Adapter) bool {
		return strings.EqualFold(a.Name, model) || strings.EqualFold(a.Name, last)
	})
}

// Choose returns the adapters of a request: those that it lists, or that of its model's name, or else those that apply
// to every request. The error is about the request's field.
func (t *Table) Choose(w *wire.Request) (Choice, error) {
	switch i := t.named(w.Model); {
	case w.LoRA != nil:
		return t.parts(w.LoRA)
	case t == nil:
		return nil, nil
	case i >= 0:
		return Choice{{i, t.list[i].Scale}}.withoutZero(), nil
	}
	var c Choice
	for i, scale := range *t.scales.Load() {
		c = append(c, Part{i, scale})
	}
	return c.withoutZero(), nil
}

// parts returns the adapters of a list.
func (t *Table) parts(list []wire.LoRA) (Choice, error) {
	var c Choice
	for _, l := range list {
		i := l.ID
		switch {
		case l.Name != "":
			if i = t.named(l.Name); i < 0 {
				return nil, fmt.Errorf("field \"lora_path\" names the adapter %.100q; %s", l.Name, t.have())
			}
			l.Scale = t.list[i].Scale
		case t == nil || i >= len(t.list):
			return nil, fmt.Errorf("field \"lora\" names the adapter %d; %s", i, t.have())
		}
		if slices.ContainsFunc(c, func(p Part) bool { return p.Adapter == i }) {
			return nil, fmt.Errorf("field \"lora\" names the adapter %d twice", i)
		}
		c = append(c, Part{i, l.Scale})
	}
	slices.SortFunc(c, func(a, b Part) int { return a.Adapter - b.Adapter })
	return c.withoutZero(), nil
}

// have says which adapters there are.
func (t *Table) have() string {
	if t == nil {
		return "no adapters are loaded (--lora)"
	}
	var names []string
	for i, a := range t.list {
		names = append(names, fmt.Sprintf("%d %s", i, a.Name))
	}
	return "there are " + strings.Join(names, ", ")
}

func (c Choice) withoutZero() Choice {
	return slices.DeleteFunc(c, func(p Part) bool { return p.Scale == 0 })
}

// Key tells choices apart whose answers may differ, in any process and on any machine; nil for the model itself.
func (t *Table) Key(c Choice) (key []byte) {
	for _, p := range c {
		key = append(key, t.list[p.Adapter].digest[:]...)
		key = binary.LittleEndian.AppendUint32(key, math.Float32bits(p.Scale))
	}
	return key
}

// Text returns the choice as a report shows it: "sql", "sql:0.5 poet".
func (t *Table) Text(c Choice) string {
	var parts []string
	for _, p := range c {
		text := t.list[p.Adapter].Name
		if p.Scale != 1 {
			text += fmt.Sprintf(":%v", p.Scale)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// Begins returns from which token of a prompt on the choice applies: 0 for ordinary adapters, and behind the text that
// activates an activated one (aLoRA). ok is false where the prompt does not have that text: the adapter stays out. The
// error is about a choice that cannot be computed.
func (t *Table) Begins(c Choice, prompt []runtime.Token) (from int, ok bool, err error) {
	for _, p := range c {
		text := t.list[p.Adapter].Invocation
		if len(text) == 0 {
			continue
		}
		if len(c) > 1 {
			return 0, false, fmt.Errorf("the adapter %s is activated by a text of the prompt (aLoRA): a request "+
				"cannot have others beside it", t.list[p.Adapter].Name)
		}
		for i := len(prompt) - len(text); i >= 0; i-- {
			if slices.Equal(prompt[i:i+len(text)], text) {
				return i, true, nil
			}
		}
		return 0, false, nil
	}
	return 0, true, nil
}
