package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestLoRAs(t *testing.T) {
	c := Config{LoRA: []string{"sql=/a/b.gguf", "poet=x:y.gguf:0.5", "/c/all.gguf:-2", "./d=e.gguf"}}
	got, err := c.LoRAs()
	want := []LoRA{{Name: "sql", File: "/a/b.gguf", Scale: 1}, {Name: "poet", File: "x:y.gguf", Scale: 0.5},
		{Name: "all", File: "/c/all.gguf", Scale: -2, Always: true},
		{Name: "d=e", File: "./d=e.gguf", Scale: 1, Always: true}}
	if err == nil || !strings.Contains(err.Error(), "d=e") {
		t.Errorf("%v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for text, part := range map[string]string{"": "NAME=FILE", "a=": "NAME=FILE", "a b=c": "a b",
		"a=b:2000": "-1000…1000", "=x": "the name"} {
		if _, err := (&Config{LoRA: []string{text}}).LoRAs(); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := (&Config{LoRA: []string{"a=x", "A=y"}}).LoRAs(); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("%v", err)
	}
	if _, err := (&Config{LoRA: make([]string, MaxLoRA+1)}).LoRAs(); err == nil ||
		!strings.Contains(err.Error(), "the maximum is 64") {
		t.Errorf("%v", err)
	}
}

// TestLoRAOfATable: --lora is the default model's; a table names those of its model.
func TestLoRAOfATable(t *testing.T) {
	file := write(t, "lora = [\"g=/g\"]\n[models.a]\nmodel = \"/a\"\n[models.b]\nmodel = \"/b\"\n"+
		"lora = [\"x=/x\", \"/y\"]\n")
	c, err := load(t, []string{"--config", file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for i := range c.Models {
		m, err := c.ForModel(&c.Models[i])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.LoRA)
	}
	if want := [][]string{{"g=/g"}, {"x=/x", "/y"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	for text, part := range map[string]string{"lora = [1]": "NAME=FILE", "lora = [\"a,b\"]": "without commas",
		"lora = \"a b=c\"": "a b"} {
		file := write(t, "[models.a]\n"+text+"\n")
		if _, err := load(t, []string{"--config", file}, nil); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
