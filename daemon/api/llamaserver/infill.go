package llamaserver

import (
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// infillTable is completionTable with the parts of a file instead of the prompt.
var infillTable = func() api.Table {
	table := api.Of(api.Taken, "input_prefix", "input_suffix", "input_extra")
	for _, f := range completionTable {
		switch f.Name {
		case "n_cmpl", "n": // one answer to each file
			f = api.Field{Name: f.Name, Use: api.Refused, But: []string{"1"}, Why: "send several requests"}
		case "suffix":
			f.Why = "here it is input_suffix"
		}
		table = append(table, f)
	}
	return table
}()

const maxExtra = 256 // entries of input_extra

type infillBody struct {
	Prefix *string     `json:"input_prefix"`
	Suffix *string     `json:"input_suffix"`
	Extra  []extraFile `json:"input_extra"`
	Prompt string      `json:"prompt"` // the beginning of the middle
	options
}

type extraFile struct {
	Name *string `json:"filename"`
	Text *string `json:"text"`
}

// serveInfill answers POST /infill.
func (k *slots) serveInfill(s *api.Server, w http.ResponseWriter, r *http.Request) {
	c := newCompletion(s, w, k)
	var err error
	switch c.facts, err = factsOf(s, r); {
	case err != nil:
		c.fail(api.AsError(err))
		return
	case c.facts.Infill == nil:
		refuse("this model has no tokens for filling in the middle")(s, w, r)
		return
	}
	requests, err := c.readInfill(r)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	c.run(r, requests)
}

func (c *completion) readInfill(r *http.Request) ([]*wire.Request, error) {
	var in infillBody
	body, err := readTable(r, infillTable, &in, true)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Prefix == nil:
		return nil, api.Refuse(`field "input_prefix" is missing; it must be a string`)
	case in.Suffix == nil:
		return nil, api.Refuse(`field "input_suffix" is missing; it must be a string`)
	case len(in.Extra) > maxExtra:
		return nil, api.Refusef(`field "input_extra" has %d entries; it must have at most %d`, len(in.Extra), maxExtra)
	}
	for i, f := range in.Extra {
		if f.Text == nil {
			return nil, api.Refusef(`field "input_extra[%d].text" is missing; it must be a string`, i)
		}
	}
	req, err := body.Request(c.id, struct {
		Prompt string `json:"prompt"`
	}{"x"}) // a placeholder for the file
	if err != nil {
		return nil, err
	}
	if _, err := c.want(&in.options, req, 1); err != nil {
		return nil, err
	}
	if req.PromptTokens, err = c.fileTokens(r, &in); err != nil {
		return nil, err
	}
	req.Prompt = ""
	return c.add(nil, req, 1), nil
}

// fileTokens returns the prompt: the special tokens at the start of a sequence, the other files, and the file to
// complete. Control tokens in files are plain text.
func (c *completion) fileTokens(r *http.Request, in *infillBody) (tokens []int32, err error) {
	text := func(s string, special bool) {
		if err == nil {
			var more []int32
			more, err = c.s.Tokenize(r.Context(), s, special, false)
			tokens = append(tokens, more...)
		}
	}
	text("", true)
	c.extra(r, in.Extra, &tokens, func(s string) { text(s, false) })
	tokens = append(tokens, c.facts.Infill[0])
	text(*in.Prefix+in.Prompt, false)
	tokens = append(tokens, c.facts.Infill[1])
	text(*in.Suffix, false)
	return append(tokens, c.facts.Infill[2]), err
}

// Markers of repositories and files, and the separator of files for models without them.
var (
	repoMarkers = []string{"<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<reponame>"}
	fileMarkers = []string{"<|file_sep|>", "<|file_separator|>", "<file_sep>"}
)

const (
	repoName  = "myproject" // llama-server's name of every repository,
	fileName  = "filename"  // of the file to complete,
	extraName = "tmp"       // and of other files without a name
	snippet   = "\n\n--- snippet ---\n\n"
)

// extra adds the other files, which precede the file to complete.
func (c *completion) extra(r *http.Request, files []extraFile, tokens *[]int32, text func(string)) {
	if len(files) == 0 {
		return
	}
	repo, file := c.marker(r, repoMarkers), c.marker(r, fileMarkers)
	if repo != nil && file != nil {
		*tokens = append(*tokens, *repo)
		text(repoName + "\n")
	}
	for _, f := range files {
		name := extraName
		if f.Name != nil {
			name = *f.Name
		}
		if file != nil {
			*tokens = append(*tokens, *file)
			text(name + "\n")
		} else {
			text(snippet)
		}
		text(*f.Text)
	}
	if file != nil {
		*tokens = append(*tokens, *file)
		text(fileName + "\n")
	}
}

// marker returns the token of the first name that is one, nil if none is.
func (c *completion) marker(r *http.Request, names []string) *int32 {
	for _, name := range names {
		if t, err := c.s.Tokenize(r.Context(), name, false, true); err == nil && len(t) == 1 {
			return &t[0]
		}
	}
	return nil
}
