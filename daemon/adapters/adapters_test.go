package adapters

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

func adapterFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loaded(t *testing.T, eng runtime.Engine) *Table {
	t.Helper()
	table, err := Load(eng, []config.LoRA{{Name: "sql", File: adapterFile(t, "GGUF 1"), Scale: 1},
		{Name: "poet", File: adapterFile(t, "GGUF 2"), Scale: 0.5},
		{Name: "all", File: adapterFile(t, "GGUF 3"), Scale: 2, Always: true}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// choice returns the choice of pairs of an adapter's id and a scale.
func (t *Table) choice(parts ...float32) (c Choice) {
	for i := 0; i < len(parts); i += 2 {
		c = append(c, Scaled{t.now().list[int(parts[i])], parts[i+1]})
	}
	return c
}

func TestChoose(t *testing.T) {
	table := loaded(t, fake.New(fake.Config{}))
	of := table.choice
	for _, c := range []struct {
		w    wire.Request
		want Choice
	}{
		{wire.Request{}, of(2, 2)},
		{wire.Request{Model: "any"}, of(2, 2)},
		{wire.Request{Model: "SQL"}, of(0, 1)},
		{wire.Request{Model: "qwen:0.5b:poet"}, of(1, 0.5)},
		{wire.Request{Model: "sql", LoRA: []wire.LoRA{}}, nil},
		{wire.Request{LoRA: []wire.LoRA{{ID: 2, Scale: 0}, {ID: 1, Scale: -1}, {ID: 0, Scale: 3}}},
			of(0, 3, 1, -1)},
		{wire.Request{LoRA: []wire.LoRA{{Name: "model:poet"}}}, of(1, 0.5)},
	} {
		if got, err := table.Choose(&c.w); err != nil || len(got) != len(c.want) ||
			len(got) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, %v, want %v", c.w, got, err, c.want)
		}
	}
	for _, w := range []wire.Request{{LoRA: []wire.LoRA{{ID: 3, Scale: 1}}}, {LoRA: []wire.LoRA{{Name: "x"}}}} {
		if _, err := table.Choose(&w); err == nil || !strings.Contains(err.Error(), "0 sql, 1 poet, 2 all") {
			t.Errorf("%+v: %v", w, err)
		}
		if _, err := (*Table)(nil).Choose(&w); err == nil || !strings.Contains(err.Error(), "--lora") {
			t.Errorf("without adapters: %v", err)
		}
	}
	if got := of(0, 1, 1, 0.5).String(); got != "sql poet:0.5" {
		t.Error(got)
	}
	if a, b := of(0, 1).Key(), of(0, 2).Key(); string(a) == string(b) || Choice(nil).Key() != nil {
		t.Error("keys do not tell scales apart")
	}
}

// TestBegins: an activated adapter applies from the last text that activates it on.
func TestBegins(t *testing.T) {
	table := loaded(t, fake.New(fake.Config{}))
	of := table.choice
	table.now().list[1].Invocation = []runtime.Token{7, 8}
	for _, c := range []struct {
		choice Choice
		prompt []runtime.Token
		from   int
		ok     bool
	}{
		{nil, []runtime.Token{1}, 0, true},
		{of(0, 1), []runtime.Token{7, 8}, 0, true},
		{of(1, 1), []runtime.Token{1, 7, 8, 2, 7, 8, 3}, 4, true},
		{of(1, 1), []runtime.Token{7, 8}, 0, true},
		{of(1, 1), []runtime.Token{8, 7}, 0, false},
		{of(1, 1), []runtime.Token{7}, 0, false},
	} {
		if from, ok, err := c.choice.Begins(c.prompt); from != c.from || ok != c.ok || err != nil {
			t.Errorf("%v in %v: %d %v %v", c.choice, c.prompt, from, ok, err)
		}
	}
	if _, _, err := of(0, 1, 1, 1).Begins(nil); err == nil || !strings.Contains(err.Error(), "poet") {
		t.Errorf("an activated adapter beside another: %v", err)
	}
}

// TestMixes: a mix is used again, and goes to another choice when no request has it.
func TestMixes(t *testing.T) {
	eng := fake.New(fake.Config{})
	table := loaded(t, eng)
	m := NewMixes(eng)
	if mix, ok := m.Take(nil, nil); mix != 0 || !ok {
		t.Errorf("%d %v", mix, ok)
	}
	choice := func(i int) Choice { return table.choice(0, float32(i+1)) }
	for range 2 {
		for i := range runtime.MaxMixes {
			if mix, ok := m.Take(choice(i), nil); int(mix) != i+1 || !ok {
				t.Fatalf("choice %d: %d %v", i, mix, ok)
			}
		}
	}
	if _, ok := m.Take(choice(1000), func(uint8) bool { return true }); ok {
		t.Error("more mixes than there are")
	}
	if mix, ok := m.Take(choice(1000), func(mix uint8) bool { return mix != 9 }); mix != 9 || !ok {
		t.Errorf("%d %v", mix, ok)
	}
	b := eng.Batch()
	for _, mix := range []uint8{0, 1, 1, 9, 0} {
		b.UseMix(mix)
		b.Add(1, 0, 0, false)
	}
	if n := m.Passes(b); n != 2 {
		t.Errorf("%d passes more", n)
	}
}

func TestAdapterThatCannotBeLoaded(t *testing.T) {
	path := adapterFile(t, "no adapter")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "x", pipe, "/dev/zero", t.TempDir()} {
		_, err := Load(fake.New(fake.Config{}), []config.LoRA{{Name: "a", File: file}}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "--lora "+file) {
			t.Errorf("%v", err)
		}
	}
}
