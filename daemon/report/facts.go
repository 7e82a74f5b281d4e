package report

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime"
)

// Facts about a model that is not loaded come from its file's header. Answers are made from them by the same code as
// those about a loaded model.

// LoadedFacts returns the facts about the loaded model. file are those about its file.
func LoadedFacts(c *config.Config, m *prepare.Model, file api.File) *api.Facts {
	f := &api.Facts{
		Model: *m.Describe(), File: file, Context: m.Longest(), Cells: m.Caps.ContextTokens,
		Infill: m.Infill(),
		GPU:    m.Caps.Device != runtime.DeviceCPU, Parallel: c.Parallel, MaxTokens: c.MaxTokens,
		MaxPromptBytes: c.MaxPromptBytes, Seed: c.Seed, Template: m.Template(), AddsBOS: m.AddsBOS(), EOG: m.Facts.EOG,
	}
	f.BOS, f.EOS = m.Specials()
	f.Made, f.Router = madeOf(c), routerOf(c)
	return f
}

// madeOf returns the parts of a model's recipe; none of a model that is a file.
// routerOf returns what GET /props tells of a daemon without --model.
func routerOf(c *config.Config) *api.Router {
	if !c.Router {
		return nil
	}
	return &api.Router{Max: c.ModelsMax, Auto: c.Autoload}
}

func madeOf(c *config.Config) (m api.Made) {
	if r := c.Recipe; r != nil {
		m = api.Made{From: r.From, System: r.System, Parameters: r.Lines(), Licenses: r.Licenses}
	}
	return m
}

// fileOf returns the facts about a model's file that API answers have.
func fileOf(h *store.Header) api.File {
	return api.File{Type: h.FileType, Digest: h.Digest, Bytes: h.Bytes, Modified: h.Modified}
}

// LoadedFile returns the facts about the file at path from which the model was loaded; none if it was replaced since,
// or is no file.
func LoadedFile(path string) api.File {
	h, err := store.ReadHeader(path)
	if err != nil {
		return api.File{}
	}
	return fileOf(&h)
}

// ListedFacts returns the facts for lists of models, from the header of the file at path as package store has read it.
// If the header is unreadable, the file's size, time and digest are still known.
func ListedFacts(c *config.Config, path string, h *store.Header) *api.Facts {
	f := &api.Facts{Asleep: true, File: fileOf(h)}
	f.Model.Path = path
	if h.Architecture != "" {
		f.Model.ModelInfo, f.Cells = modelInfo(c, path, &h.Info), c.Cells(&h.Info)
		f.Context = longest(c, &h.Info)
	}
	return f
}

// longest returns the largest context of one request to a model that is not loaded.
func longest(c *config.Config, info *gguf.Info) int {
	if info.Encoder {
		return c.Cells(info)
	}
	return c.Longest(c.Cells(info))
}

// FileFacts returns all facts about the model at path, which is not loaded, from its header and the options.
func FileFacts(c *config.Config, path string) (*api.Facts, error) {
	info, err := gguf.Inspect(path)
	if err != nil {
		return nil, err
	}
	h, err := store.ReadHeader(path)
	if err != nil {
		return nil, err
	}
	f := &api.Facts{
		Asleep: true, File: fileOf(&h), Context: longest(c, &info), Cells: c.Cells(&info),
		Parallel: c.Parallel, MaxTokens: c.MaxTokens,
		MaxPromptBytes: c.MaxPromptBytes, Seed: c.Seed, Made: madeOf(c),
		Router: routerOf(c),
	}
	m := &f.Model
	m.ModelInfo, m.Thinks = modelInfo(c, path, &info), len(info.Think) > 0
	m.ThinkSwitch, m.ThinkPast = []string{}, []string{}
	for _, t := range info.Special {
		switch t.Role {
		case "bos":
			f.BOS = t.Text
		case "eos":
			f.EOS = t.Text
		}
	}
	switch p := runtime.Pooling(cmp.Or(c.Pooling, info.Pooling)); {
	case p == runtime.PoolRank:
		m.Ranking = &reports.InfoRanking{Longest: f.Cells}
	default:
		m.Embeddings = &reports.InfoEmbeddings{Values: m.Embedding, Pooling: cmp.Or(p, runtime.PoolMean),
			Longest: f.Cells, Assumed: p == ""}
	}
	if info.Encoder {
		return f, nil
	}
	if file := c.ProjectorOf(path); file != "" { // whether it fits, loading the model shows
		m.Images = &runtime.Images{Projector: file, Sees: true}
		if sees, hears, err := gguf.Projector(file); err == nil {
			if m.Images.Sees = sees; hears {
				m.Images.SampleRate = 16_000 // that of nearly all; loading the model shows it as well
			}
		}
	}
	text, source, err := c.TemplateFor(info.ChatTemplate, func(s string) bool { return info.Token(s) >= 0 })
	if err != nil {
		return nil, err
	}
	if _, err := c.CompileTemplate(text); err == nil {
		f.Template, m.ChatTemplate, m.TemplateSource = text, true, source
	}
	f.Infill = prepare.InfillTokens(config.InfillMarks(&info, info.VocabSize), func(s string) (runtime.Token, bool) {
		i := info.Token(s)
		return runtime.Token(i), i >= 0
	})
	return f, nil
}

// modelInfo returns the ModelInfo that the engine would report for a model, as far as its header has the facts.
func modelInfo(c *config.Config, path string, info *gguf.Info) runtime.ModelInfo {
	name := info.Name
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(path), ".gguf")
	}
	per, _ := info.KVBytesPerToken(c.CacheTypeK, c.CacheTypeV) // of a type without such cells it stays 0
	most := func(list []int64) (n int) {
		for _, x := range list {
			n = max(n, int(x))
		}
		return n
	}
	return runtime.ModelInfo{
		Path: path, Name: name, Architecture: info.Architecture,
		Description: info.Architecture + " " + strings.ReplaceAll(ui.Large(info.Parameters), " ", "") + " " +
			info.FileType,
		Parameters: info.Parameters, Bytes: info.TensorBytes, TrainContext: int(info.TrainContext),
		Positions: int(info.Positions), Layers: int(info.Layers), Embedding: int(info.Embedding),
		Heads: most(info.Heads), KVHeads: most(info.KVHeads), VocabSize: info.VocabSize, KVTypeK: c.CacheTypeK,
		KVTypeV: c.CacheTypeV, KVBytesPerToken: int(per), SlidingWindow: int(info.SlidingWindow),
		Recurrent: info.Recurrent, Pooling: runtime.Pooling(info.Pooling), Encoder: info.Encoder,
	}
}
