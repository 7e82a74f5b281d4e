package ollama

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
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
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2fK", float64(n)/1e3)
}

// digest identifies a model. It is no hash of the file, which would take long.
func digest(f *api.Facts) string {
	return fmt.Sprintf("%x",
		sha256.Sum256(fmt.Appendf(nil, "%s %d %d", f.Model.Path, f.Model.Bytes, f.Model.Parameters)))
}

// listed is a model of GET /api/tags.
type listed struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Modified string  `json:"modified_at"` // when the server started
	Size     uint64  `json:"size"`
	Digest   string  `json:"digest"`
	Details  details `json:"details"`
}

func serveTags(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	models, facts := []listed{}, s.Facts()
	for _, m := range s.Models() {
		if facts != nil {
			models = append(models, listed{m.ID, m.ID, stamp(m.Created), facts.Model.Bytes, digest(facts),
				detailsOf(facts)})
		}
	}
	s.NewWriter(w).JSON(http.StatusOK, struct {
		Models []listed `json:"models"`
	}{models})
}

func stamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

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

func servePS(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	models, facts := []running{}, s.Facts()
	for _, m := range s.Models() {
		if facts == nil {
			break
		}
		r := running{Name: m.ID, Model: m.ID, Size: facts.Model.Bytes +
			uint64(facts.Model.KVBytesPerToken)*uint64(facts.Context), Digest: digest(facts),
			Details: detailsOf(facts), Expires: s.Now().UTC().AddDate(never, 0, 0).Format(time.RFC3339),
			Context: facts.Context}
		if facts.GPU {
			r.VRAM = r.Size
		}
		models = append(models, r)
	}
	s.NewWriter(w).JSON(http.StatusOK, struct {
		Models []running `json:"models"`
	}{models})
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
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"` // Jinja's
	Details      details        `json:"details"`
	Info         map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	Modified     string         `json:"modified_at"`
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
	case !strings.EqualFold(strings.TrimSuffix(in.Model, ":latest"), s.Model()):
		out.Refuse(&api.Error{Code: wire.ModelNotFound})
		out.JSON(http.StatusNotFound, failure{fmt.Sprintf("model %.100q not found", in.Model)})
		return
	}
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	m := &facts.Model
	arch := m.Architecture
	sh := shown{
		Modelfile: "FROM " + m.Path + "\n", Template: facts.Template, Details: detailsOf(facts),
		Capabilities: []string{"completion"},
		Modified:     stamp(s.Models()[0].Created),
		Info: map[string]any{
			"general.architecture": arch, "general.basename": m.Name, "general.parameter_count": m.Parameters,
			arch + ".context_length":   m.TrainContext,
			arch + ".embedding_length": m.Embedding, arch + ".block_count": m.Layers,
			arch + ".attention.head_count":    m.Heads,
			arch + ".attention.head_count_kv": m.KVHeads, arch + ".vocab_size": m.VocabSize,
		},
	}
	if m.Embeddings != nil {
		if sh.Capabilities = append(sh.Capabilities, "embedding"); m.Encoder {
			sh.Capabilities = []string{"embedding"}
		}
		sh.Info[arch+".pooling_type"] = m.Embeddings.Pooling
	}
	if m.ChatTemplate { // every chat template has a syntax of tool calls
		sh.Capabilities = append(sh.Capabilities, "tools")
	}
	if m.Thinks {
		sh.Capabilities = append(sh.Capabilities, "thinking")
	}
	if facts.Infill != nil {
		sh.Capabilities = append(sh.Capabilities, "insert")
	}
	out.JSON(http.StatusOK, &sh)
}
