package ollama

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/store"
)

var copyTable = api.Of(api.Taken, "source", "destination")

// copy answers POST /api/copy: the destination becomes another name for the source.
func (c *changer) copy(w *api.Writer, r *http.Request) error {
	var in struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	err := readAlone(r, copyTable, &in)
	switch {
	case err != nil:
		return err
	case in.Source == "" || in.Destination == "":
		return api.Refuse("source and destination are required")
	}
	recipe, err := c.from(r, in.Source)
	if err != nil {
		return err
	}
	recipe.Name = bare(in.Destination)
	if err := (*api.Error)(c.host.Create(r.Context(), recipe)); err != nil {
		return err
	}
	w.Empty(http.StatusOK)
	return nil
}

// bare returns a name without the tag that ollama's clients add.
func bare(name string) string { return strings.TrimSuffix(name, ":"+store.Latest) }

// from returns the recipe of a model that is like another one.
func (c *changer) from(r *http.Request, name string) (store.Recipe, error) {
	from, base, e := c.host.Base(r.Context(), name)
	if e != nil {
		return store.Recipe{}, missing(name, e)
	}
	recipe := store.Recipe{}
	if base != nil {
		recipe = *base
	}
	recipe.From, recipe.Created = from, c.Now().UTC()
	return recipe, nil
}

var createTable = append(api.Of(api.Taken, "model", "name", "from", "files", "template", "system", "license",
	"parameters", "stream"), api.Table{
	{Name: "adapters", Use: api.Refused, But: []string{"{}"}, Why: "adapters are not applied; merge them into the " +
		"model's weights first"},
	{Name: "messages", Use: api.Refused, But: []string{"[]"}, Why: "send them with each request"},
	{Name: "quantize", Use: api.Refused, But: []string{`""`}, Why: "llama.cpp's llama-quantize writes another " +
		"quantisation"},
	{Name: "quantization", Use: api.Refused, But: []string{`""`}, Why: "llama.cpp's llama-quantize writes another " +
		"quantisation"},
	{Name: "modelfile", Use: api.Refused, But: []string{`""`}, Why: `send its parts as "from", "template", "system" ` +
		`and "parameters"`},
	{Name: "path", Use: api.Refused, But: []string{`""`}, Why: `send its parts as "from", "template", "system" and ` +
		`"parameters"`},
	{Name: "renderer", Use: api.Refused, But: []string{`""`}, Why: "chat templates are in Jinja"},
	{Name: "parser", Use: api.Refused, But: []string{`""`}, Why: "the model's template tells the syntax"},
}...)

type createBody struct {
	Model      string                     `json:"model"`
	Name       string                     `json:"name"`
	From       string                     `json:"from"`
	Files      map[string]string          `json:"files"`
	Template   string                     `json:"template"`
	System     string                     `json:"system"`
	License    rawJSON                    `json:"license"`
	Parameters map[string]json.RawMessage `json:"parameters"`
	Stream     *bool                      `json:"stream"`
}

// create answers POST /api/create.
func (c *changer) create(w *api.Writer, r *http.Request) error {
	var in createBody
	err := readAlone(r, createTable, &in)
	if err != nil {
		return err
	}
	name, err := nameOf(in.Model, in.Name)
	if err != nil {
		return err
	}
	name = bare(name)
	if err := store.CheckRecipeName(name); err != nil {
		return api.Refuse("invalid model name: " + err.Error())
	}
	set, err := in.recipe()
	if err != nil {
		return err
	}
	t := newTeller(w, in.Stream)
	recipe, err := c.origin(r, t, &in)
	if err != nil {
		return err
	}
	if recipe.Name = name; set.Template != "" {
		recipe.Template = set.Template
	}
	if set.System != "" {
		recipe.System = set.System
	}
	if set.Licenses != nil {
		recipe.Licenses = set.Licenses
	}
	recipe.Parameters = merged(recipe.Parameters, set.Parameters)
	recipe.Fields = merged(recipe.Fields, set.Fields)
	options := maps.Clone(recipe.Options)
	if options == nil {
		options = map[string]string{}
	}
	maps.Copy(options, set.Options)
	if recipe.Options = options; len(options) == 0 {
		recipe.Options = nil
	}
	t.tell(status{Status: "writing manifest"})
	if err := (*api.Error)(c.host.Create(r.Context(), recipe)); err != nil {
		return err
	}
	return t.success()
}

// origin returns the recipe of the model or file of which another one is made. A model that is not here is downloaded.
func (c *changer) origin(r *http.Request, t *teller, in *createBody) (recipe store.Recipe, err error) {
	switch {
	case in.From != "" && len(in.Files) > 0:
		return recipe, api.Refuse(`"from" and "files" exclude each other: both name the weights`)
	case in.From != "":
		recipe, err := c.from(r, in.From)
		if err != nil && api.AsError(err).Code == wire.ModelNotFound {
			if err := c.fetch(r, t, in.From); err != nil {
				return recipe, err
			}
			recipe, err = c.from(r, in.From)
		}
		if err == nil {
			t.tell(status{Status: "using existing layer " + recipe.From})
		}
		return recipe, err
	case len(in.Files) == 0:
		return recipe, api.Refuse(`neither 'from' or 'files' was specified`)
	case len(in.Files) > 1:
		return recipe, api.Refusef(`"files" has %d files; one GGUF file makes a model here. Join the parts with `+
			`llama.cpp's llama-gguf-split --merge`, len(in.Files))
	}
	for file, text := range in.Files {
		sum, ok := store.ParseDigest(text)
		if !ok {
			return recipe, api.Refusef("files: the digest of %.100q is %.100q; it must be sha256: and 64 hexadecimal "+
				"digits", file, text)
		}
		from, ok := c.host.Blob(r.Context(), sum)
		if !ok {
			return recipe, api.Refusef("files: %.100q is not here; send it to POST /api/blobs/%s first", file, sum)
		}
		recipe.From, recipe.Created = from, c.Now().UTC()
		t.tell(status{Status: "using existing layer " + sum})
	}
	return recipe, nil
}

// goTemplate finds what only templates of Go's language have.
var goTemplate = regexp.MustCompile(`\{\{-?\s*(\.|\$|if\s|range\s|with\s|end\b|else\b|define\s|template\s|block\s)`)

// recipe returns what a body sets.
func (b *createBody) recipe() (r store.Recipe, err error) {
	if goTemplate.MatchString(b.Template) {
		return r, api.Refuse(`field "template" is in Go's template language; this server renders Jinja: send that of ` +
			`the model's publisher, or leave it out, and the model's file has it`)
	}
	r.Template, r.System = b.Template, b.System
	if len(b.License) > 0 {
		var one string
		if json.Unmarshal(b.License, &one) == nil {
			r.Licenses = []string{one}
		} else if json.Unmarshal(b.License, &r.Licenses) != nil {
			return r, api.Refuse(`field "license" must be a text or an array of texts`)
		}
	}
	if len(b.Parameters) == 0 {
		return r, nil
	}
	fields := map[string]json.RawMessage{}
	r.Options = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(b.Parameters)) {
		if err := parameter(name, b.Parameters[name], fields, r.Options); err != nil {
			return r, err
		}
	}
	if r.Parameters, err = json.Marshal(b.Parameters); err != nil {
		return r, err
	}
	if len(fields) == 0 {
		return r, nil
	}
	if r.Fields, err = json.Marshal(fields); err != nil {
		return r, err
	}
	if _, err := wire.DefaultsWith(r.Fields); err != nil {
		return r, api.Refuse("parameters: " + api.AsError(err).Message)
	}
	return r, nil
}

// sampling are the parameters that are fields of a request of the same name.
var sampling = []string{"temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "repeat_penalty",
	"presence_penalty", "frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "seed", "stop", "tfs_z"}

// loading are the parameters that are options of the engine, by their names there.
var loading = map[string]string{"num_ctx": "ctx-size", "num_thread": "threads", "num_batch": "batch-size",
	"num_gpu": "gpu-layers"}

// parameter adds a parameter to the fields of requests or the options of the engine.
func parameter(name string, value json.RawMessage, fields map[string]json.RawMessage, options map[string]string) error {
	if string(value) == "null" {
		return nil
	}
	option, isOption := loading[name]
	var n int
	switch {
	case isOption || name == "num_predict":
		if json.Unmarshal(value, &n) != nil {
			return api.Refusef("parameter %q is %.40s; it must be an integer", name, value)
		}
		switch {
		case isOption && (n > 0 || name == "num_gpu"):
			options[option] = strconv.Itoa(n)
		case !isOption && n > 0:
			fields["max_tokens"] = json.RawMessage(strconv.Itoa(n))
		}
		return nil
	case slices.Contains(sampling, name) && wire.KnownField(name):
		fields[name] = value
		return nil
	}
	for _, row := range optionsTable {
		if row.Name == name && row.Use == api.Ignored {
			return nil
		}
	}
	if text := string(value); slices.Contains(sampling, name) && (text == "0" || name != "mirostat" && text == "1") {
		return nil // it asks for nothing
	}
	return api.Refusef("parameter %.60q is not supported by this server; leave it out", name)
}

// merged returns the members of two objects; those of more win.
func merged(base, more json.RawMessage) json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, text := range []json.RawMessage{base, more} {
		if len(text) > 0 {
			_ = json.Unmarshal(text, &all) // objects of ours
		}
	}
	if len(all) == 0 {
		return nil
	}
	text, _ := json.Marshal(all)
	return text
}

// blobOf returns the digest in a request's path.
func blobOf(r *http.Request) (string, error) {
	sum, ok := store.ParseDigest(r.PathValue("digest"))
	if !ok {
		return "", api.Refusef("the digest in the path is %.100q; it must be sha256: and 64 hexadecimal digits",
			r.PathValue("digest"))
	}
	return sum, nil
}

// hasBlob answers HEAD /api/blobs/{digest}.
func (c *changer) hasBlob(w *api.Writer, r *http.Request) error {
	sum, err := blobOf(r)
	if err != nil {
		return err
	}
	if _, ok := c.host.Blob(r.Context(), sum); !ok {
		return &api.Error{Code: wire.ModelNotFound, Message: "blob " + sum + " not found: no file here has this digest"}
	}
	w.Empty(http.StatusOK)
	return nil
}

// putBlob answers POST /api/blobs/{digest}.
func (c *changer) putBlob(w *api.Writer, r *http.Request) error {
	sum, err := blobOf(r)
	if err != nil {
		return err
	}
	if err := (*api.Error)(c.host.PutBlob(r.Context(), sum, r.Body)); err != nil {
		return err
	}
	w.Empty(http.StatusCreated)
	return nil
}
