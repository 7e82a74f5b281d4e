package front

import (
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// An adapter of a model is a model for clients: by its name, and by MODEL:NAME.

// nameAdapters adds the names of a configured model's adapters. A model's own name goes before that of an adapter.
func (f *Front) nameAdapters(m *served) {
	for _, a := range m.lora.list {
		for _, of := range append([]string{""}, m.names()...) {
			name := a.Name
			if of != "" {
				name = of + ":" + a.Name
			}
			if fold := strings.ToLower(name); f.names[fold] == nil {
				f.names[fold] = m
			}
		}
	}
}

// adaptersOf lists the adapters of a model that is not loaded.
func (m *served) adaptersOf() (out []reports.InfoAdapter) {
	if !m.configured {
		return nil
	}
	for i, a := range m.lora.list {
		info := reports.InfoAdapter{ID: i, Name: a.Name, Path: a.File}
		if a.Always {
			info.Scale = a.Scale
		}
		out = append(out, info)
	}
	return out
}
