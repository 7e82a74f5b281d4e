package ollama

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/store"
)

// details are the properties of a model in lists.
type details struct {
	Parent   string   `json:"parent_model"`
	Format   string   `json:"format"`
	Family   string   `json:"family"`
	Families []string `json:"families"`
	Size     string   `json:"parameter_size"`
	Type     string   `json:"quantization_level"`
}

func detailsOf(f *api.Facts) details {
	arch := f.Model.Architecture
	return details{Format: "gguf", Family: arch, Families: []string{arch}, Size: count(f.Model.Parameters),
		Type: f.FileType()}
}

// count formats a number of parameters like ollama ("8.0B").
func count(n uint64) string {
	switch {
	case n == 0: // the file does not tell
		return ""
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2fK", float64(n)/1e3)
}

// digest identifies a model. It is no hash of the file, which would take long.
func digest(f *api.Facts) string {
	if f.File.Digest != "" {
		return f.File.Digest
	}
	return fmt.Sprintf("%x",
		sha256.Sum256(fmt.Appendf(nil, "%s %d %d", f.Model.Path, f.Model.Bytes, f.Model.Parameters)))
}

// Served is a model of a list.
type Served struct {
	Name  string // as other APIs have it
	Facts *api.Facts
	Since time.Time // start of the daemon: the model's time if that of its file is unknown
	// Of a loaded model.
	Expires time.Time // time of its unload; zero: never
}

func (s *Served) size() int64 {
	if n := s.Facts.File.Bytes; n > 0 {
		return n
	}
	return int64(s.Facts.Model.Bytes)
}

func (s *Served) modified() string {
	if at := s.Facts.File.Modified; !at.IsZero() {
		return at.UTC().Format(time.RFC3339)
	}
	return s.Since.UTC().Format(time.RFC3339)
}

// name returns the model's name as ollama's lists have it, with a tag: clients split it at the colon.
func (s *Served) name() string {
	if strings.Contains(s.Name[strings.LastIndexByte(s.Name, '/')+1:], ":") {
		return s.Name
	}
	return s.Name + ":" + store.Latest
}

// listed is a model of GET /api/tags.
type listed struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Modified string  `json:"modified_at"`
	Size     int64   `json:"size"`
	Digest   string  `json:"digest"`
	Details  details `json:"details"`
}

// Tags returns the answer to GET /api/tags.
func Tags(list []Served) any {
	models := []listed{}
	for i := range list {
		s := &list[i]
		models = append(models, listed{s.name(), s.name(), s.modified(), s.size(), digest(s.Facts), detailsOf(s.Facts)})
	}
	return struct {
		Models []listed `json:"models"`
	}{models}
}

func serveTags(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	s.NewWriter(w).JSON(http.StatusOK, Tags(loaded(s)))
}

// loaded returns the model that is loaded, alone.
func loaded(s *api.Server) (list []Served) {
	facts := s.Facts()
	for _, m := range s.Models() {
		if facts != nil {
			list = append(list, Served{Name: m.ID, Facts: facts, Since: time.Unix(m.Created, 0)})
		}
	}
	return list
}

// running is a model of GET /api/ps.
type running struct {
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Size    uint64  `json:"size"` // weights and KV pool, in bytes
	Digest  string  `json:"digest"`
	Details details `json:"details"`
	Expires string  `json:"expires_at"`
	VRAM    uint64  `json:"size_vram"`
	Context int     `json:"context_length"`
}

// never is the time until the model expires, in years: clients show it as "never".
const never = 100

// Running returns the answer to GET /api/ps.
func Running(list []Served, now time.Time) any {
	models := []running{}
	for i := range list {
		s, facts := &list[i], list[i].Facts
		if s.Expires.IsZero() {
			s.Expires = now.AddDate(never, 0, 0)
		}
		r := running{Name: s.name(), Model: s.name(), Size: facts.Model.Bytes +
			uint64(facts.Model.KVBytesPerToken)*uint64(facts.Cells), Digest: digest(facts),
			Details: detailsOf(facts), Expires: s.Expires.UTC().Format(time.RFC3339), Context: facts.Context}
		if facts.GPU {
			r.VRAM = r.Size
		}
		models = append(models, r)
	}
	return struct {
		Models []running `json:"models"`
	}{models}
}

func servePS(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	s.NewWriter(w).JSON(http.StatusOK, Running(loaded(s), s.Now()))
}

func serveVersion(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	s.NewWriter(w).JSON(http.StatusOK, struct {
		Version string `json:"version"`
		UMA     string `json:"uma_version"`
	}{APIVersion, s.Version})
}

var showTable = append(api.Of(api.Taken, "model", "name"), api.Of(api.Ignored, "verbose", "system", "template",
	"options")...)

// shown answers POST /api/show.
type shown struct {
	Modelfile    string         `json:"modelfile"`
	License      string         `json:"license,omitempty"`
	System       string         `json:"system,omitempty"`
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"` // Jinja's
	Details      details        `json:"details"`
	Info         map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	Modified     string         `json:"modified_at"`
}

// modelfile returns the model as a Modelfile of ollama.
func modelfile(f *api.Facts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\n", cmp.Or(f.Made.From, f.Model.Path))
	if f.Made.System != "" {
		fmt.Fprintf(&b, "SYSTEM %q\n", f.Made.System)
	}
	for _, line := range f.Made.Parameters {
		fmt.Fprintf(&b, "PARAMETER %s\n", line)
	}
	return b.String()
}

func serveShow(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	var in struct {
		Model string `json:"model"`
		Name  string `json:"name"` // older clients
	}
	body, err := read(r, showTable, &in)
	if err == nil && len(body.Passed()) > 0 {
		err = api.Refuse(`field "` + body.Passed()[0] + `" is unknown; docs/http.md lists the fields`)
	}
	if in.Model == "" {
		in.Model = in.Name
	}
	facts := s.Facts()
	switch {
	case err != nil:
	case in.Model == "":
		err = api.Refuse("model is required")
	case facts == nil:
		err = &api.Error{Code: wire.ModelUnready, Message: "the model is loading"}
	}
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	m := &facts.Model
	arch := m.Architecture
	sh := shown{
		Modelfile: modelfile(facts), License: strings.Join(facts.Made.Licenses, "\n\n"), System: facts.Made.System,
		Parameters: strings.Join(facts.Made.Parameters, "\n"), Template: facts.Template, Details: detailsOf(facts),
		Capabilities: []string{"completion"},
		Modified:     (&Served{Facts: facts, Since: time.Unix(s.Models()[0].Created, 0)}).modified(),
		Info: map[string]any{
			"general.architecture": arch, "general.basename": m.Name, "general.parameter_count": m.Parameters,
			arch + ".context_length":   m.TrainContext,
			arch + ".embedding_length": m.Embedding, arch + ".block_count": m.Layers,
			arch + ".attention.head_count":    m.Heads,
			arch + ".attention.head_count_kv": m.KVHeads, arch + ".vocab_size": m.VocabSize,
		},
	}
	if m.Embeddings != nil && !m.Embeddings.Assumed { // as ollama, which embeds with any model
		if sh.Capabilities = append(sh.Capabilities, "embedding"); m.Encoder {
			sh.Capabilities = []string{"embedding"}
		}
		sh.Info[arch+".pooling_type"] = m.Embeddings.Pooling
	}
	if m.ChatTemplate { // every chat template has a syntax of tool calls
		sh.Capabilities = append(sh.Capabilities, "tools")
	}
	if m.Images.See() {
		sh.Capabilities = append(sh.Capabilities, "vision")
	}
	if m.Thinks {
		sh.Capabilities = append(sh.Capabilities, "thinking")
	}
	if facts.Infill != nil {
		sh.Capabilities = append(sh.Capabilities, "insert")
	}
	out.JSON(http.StatusOK, &sh)
}
