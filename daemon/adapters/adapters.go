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
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// Adapter is a loaded adapter. Its fields are constant but for the last ones.
type Adapter struct {
	config.LoRA
	runtime.AdapterInfo
	ID     int // in lists; that of an unloaded one goes to another
	id     runtime.Adapter
	digest [sha256.Size]byte // of its file

	ofLoop
}

// Scaled is an adapter of a Choice, with its scale.
type Scaled struct {
	Adapter *Adapter
	Scale   float32 // not 0
}

// Choice are the adapters of a request, by id. The empty one is the model itself.
type Choice []Scaled

// Table has the adapters of a model. Its methods may be called from any goroutine. A nil Table has none.
type Table struct {
	changing sync.Mutex // of those who replace state
	state    atomic.Pointer[state]
}

// state is a Table's content, which does not change.
type state struct {
	list   []*Adapter // by ID
	scales []float32  // by place in list: of requests that choose none
}

// Load loads the adapters of --lora into the engine. The error names the file. optional are the names of those that are
// left out if they cannot be loaded, which failed hears: a request to the daemon has added them.
func Load(eng runtime.Engine, list []config.LoRA, optional []string, failed func(error)) (*Table, error) {
	if e, ok := eng.(runtime.Adapters); !ok || e == nil {
		if len(list) == 0 {
			return nil, nil
		}
		return nil, errors.New("--lora: this engine takes no adapters")
	}
	t := &Table{}
	t.state.Store(&state{})
	for _, c := range list {
		err := t.loadFile(eng, c)
		switch {
		case err == nil:
		case slices.Contains(optional, c.Name):
			failed(fmt.Errorf("the adapter %s, which a request has added: %s: %w", c.Name, c.File, err))
		default:
			return nil, fmt.Errorf("--lora %s: %w", c.File, err)
		}
	}
	return t, nil
}

func (t *Table) loadFile(eng runtime.Engine, c config.LoRA) error {
	f, err := Open(c.File)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := Read(c, f)
	if err != nil {
		return err
	}
	_, err = t.Add(eng, n, false)
	return err
}

// Open opens the file of an adapter. The error says what it must be.
func Open(path string) (*os.File, error) {
	st, err := os.Stat(path) // opening a named pipe waits for a writer, and a device has no end
	switch {
	case err != nil:
		return nil, plain(err)
	case st.IsDir():
		return nil, errors.New("it is a folder; name an adapter as a GGUF file: llama.cpp's convert_lora_to_gguf.py " +
			"makes one of a folder of PEFT")
	case !st.Mode().IsRegular():
		return nil, errors.New("it is not a file; name an adapter, a GGUF file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, plain(err)
}

// plain is the error without the path, which the caller's text has.
func plain(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// New is an adapter that is to be loaded.
type New struct {
	Adapter
	file *os.File
}

// Read reads the file, which stays the caller's, for Add.
func Read(c config.LoRA, f *os.File) (*New, error) {
	n := &New{Adapter: Adapter{LoRA: c}, file: f}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a file; name an adapter, a GGUF file")
	}
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, st.Size())); err != nil {
		return nil, plain(err)
	}
	h.Sum(n.digest[:0])
	return n, nil
}

// ErrTaken: an adapter has the name, and is not to be replaced.
var ErrTaken = errors.New("an adapter of this name is loaded")

// Add loads an adapter into the engine; only the decode loop calls it, or what makes the Table. With replace an adapter
// of this name gives way to it and is returned. The error is about the file; then nothing has changed.
func (t *Table) Add(eng runtime.Engine, n *New, replace bool) (old *Adapter, err error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	was := t.state.Load()
	i := was.index(n.Name)
	switch {
	case i >= 0 && !replace:
		return nil, ErrTaken
	case i < 0 && len(was.list) >= config.MaxLoRA:
		return nil, fmt.Errorf("%d adapters are loaded, which is the maximum: unload one", config.MaxLoRA)
	}
	a := n.Adapter
	if a.id, a.AdapterInfo, err = eng.(runtime.Adapters).LoadAdapter(n.file); err != nil {
		return nil, err
	}
	list := slices.Clone(was.list)
	scales := slices.Clone(was.scales)
	if i >= 0 {
		old, a.ID = list[i], list[i].ID
		list[i], scales[i] = &a, 0
	} else {
		for i = 0; i < len(list) && list[i].ID == i; i++ { // the first free id
		}
		a.ID = i
		list, scales = slices.Insert(list, i, &a), slices.Insert(scales, i, 0)
	}
	if a.Always {
		scales[i] = a.Scale
	}
	t.state.Store(&state{list, scales})
	return old, nil
}

// Remove takes an adapter out of the list and returns it; nil: there is none of this name.
func (t *Table) Remove(name string) *Adapter {
	if t == nil {
		return nil
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	was := t.state.Load()
	i := was.index(name)
	if i < 0 {
		return nil
	}
	t.state.Store(&state{slices.Delete(slices.Clone(was.list), i, i+1),
		slices.Delete(slices.Clone(was.scales), i, i+1)})
	return was.list[i]
}

// index returns the place of the adapter of a name; -1: there is none.
func (s *state) index(name string) int {
	return slices.IndexFunc(s.list, func(a *Adapter) bool { return strings.EqualFold(a.Name, name) })
}

// now returns the content.
func (t *Table) now() *state {
	if t == nil {
		return &state{}
	}
	return t.state.Load()
}

// Info lists the adapters.
func (t *Table) Info() (out []reports.InfoAdapter) {
	s := t.now()
	for i, a := range s.list {
		out = append(out, reports.InfoAdapter{ID: a.ID, Name: a.Name, Path: a.File, Scale: s.scales[i], Bytes: a.Bytes,
			Invocation: a.Invocation})
	}
	return out
}

// SetScales sets the scales of requests that choose no adapters: those of the list, and 0 of the others.
func (t *Table) SetScales(list []wire.LoRA) error {
	if t != nil {
		t.changing.Lock()
		defer t.changing.Unlock()
	}
	s := t.now()
	c, err := s.scaled(list)
	if err != nil || t == nil {
		return err
	}
	scales := make([]float32, len(s.list))
	for _, p := range c {
		scales[slices.Index(s.list, p.Adapter)] = p.Scale
	}
	t.state.Store(&state{s.list, scales})
	return nil
}

// named returns the adapter of a model's name: NAME, or MODEL:NAME; nil: there is none.
func (s *state) named(model string) *Adapter {
	if model == "" {
		return nil
	}
	i := s.index(model)
	if i < 0 {
		i = s.index(model[strings.LastIndexByte(model, ':')+1:])
	}
	if i < 0 {
		return nil
	}
	return s.list[i]
}

// Choose returns the adapters of a request: those that it lists, or that of its model's name, or else those that apply
// to every request. The error is about the request's field.
func (t *Table) Choose(w *wire.Request) (Choice, error) {
	s := t.now()
	if w.LoRA != nil {
		return s.scaled(w.LoRA)
	}
	if a := s.named(w.Model); a != nil {
		return Choice{{a, a.Scale}}.withoutZero(), nil
	}
	var c Choice
	for i, scale := range s.scales {
		c = append(c, Scaled{s.list[i], scale})
	}
	return c.withoutZero(), nil
}

// scaled returns the adapters of a list.
func (s *state) scaled(list []wire.LoRA) (Choice, error) {
	var c Choice
	for _, l := range list {
		var a *Adapter
		if l.Name != "" {
			if a = s.named(l.Name); a == nil {
				return nil, fmt.Errorf("field \"lora_path\" names the adapter %.100q; %s", l.Name, s.have())
			}
			l.Scale = a.Scale
		} else {
			i := slices.IndexFunc(s.list, func(a *Adapter) bool { return a.ID == l.ID })
			if i < 0 {
				return nil, fmt.Errorf("field \"lora\" names the adapter %d; %s", l.ID, s.have())
			}
			a = s.list[i]
		}
		if slices.ContainsFunc(c, func(p Scaled) bool { return p.Adapter == a }) {
			return nil, fmt.Errorf("field \"lora\" names the adapter %d twice", a.ID)
		}
		c = append(c, Scaled{a, l.Scale})
	}
	slices.SortFunc(c, func(a, b Scaled) int { return a.Adapter.ID - b.Adapter.ID })
	return c.withoutZero(), nil
}

// have says which adapters there are.
func (s *state) have() string {
	if len(s.list) == 0 {
		return "no adapters are loaded (--lora)"
	}
	var names []string
	for _, a := range s.list {
		names = append(names, fmt.Sprintf("%d %s", a.ID, a.Name))
	}
	return "there are " + strings.Join(names, ", ")
}

func (c Choice) withoutZero() Choice {
	return slices.DeleteFunc(c, func(p Scaled) bool { return p.Scale == 0 })
}

// Key tells choices apart whose answers may differ, in any process and on any machine; nil for the model itself.
func (c Choice) Key() (key []byte) {
	for _, p := range c {
		key = append(key, p.Adapter.digest[:]...)
		key = binary.LittleEndian.AppendUint32(key, math.Float32bits(p.Scale))
	}
	return key
}

// String returns the choice as a report shows it: "sql", "sql:0.5 poet".
func (c Choice) String() string {
	var parts []string
	for _, p := range c {
		text := p.Adapter.Name
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
func (c Choice) Begins(prompt []runtime.Token) (from int, ok bool, err error) {
	for _, p := range c {
		text := p.Adapter.Invocation
		if len(text) == 0 {
			continue
		}
		if len(c) > 1 {
			return 0, false, fmt.Errorf("the adapter %s is activated by a text of the prompt (aLoRA): a request "+
				"cannot have others beside it", p.Adapter.Name)
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
