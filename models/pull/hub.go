package pull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/models/store"
)

// Limits of the hub's answers.
const (
	maxInfoBytes  = 16 << 20 // of a repository's facts: they name every file
	maxTreeBytes  = 16 << 20 // of one page of a listing
	maxTreePages  = 50       // of a thousand entries
	maxFiles      = 20_000   // GGUF files of a repository
	maxFileBytes  = 1 << 44
	minFileBytes  = 24 // a GGUF header
	maxProjectors = 100
	maxSuggestion = 3

	suggestionTimeout = 10 * time.Second
)

// hubHosts are the hosts to which the hub redirects downloads: they are below these (huggingface.co's documentation,
// "Downloading behind a proxy or firewall").
var hubHosts = []string{hubHost, "hf.co"}

// hub is a repository of Hugging Face.
type hub struct {
	*web
	ref   Ref
	token string
	base  string // the endpoint, without a slash at the end
	mem   uint64

	textAlone  bool
	projectors []remote // of the repository
}

func newHub(cfg *Config, ref Ref) (*hub, error) {
	u, err := endpoint(cfg.Endpoint)
	if err != nil {
		return nil, &Error{Kind: ErrName, What: "the hub cannot be asked", Err: err, Do: "correct or unset HF_ENDPOINT"}
	}
	h := &hub{web: newWeb(cfg, u, slices.Clone(hubHosts)), ref: ref, base: u.String(), mem: cfg.Memory,
		textAlone: cfg.TextAlone}
	if cfg.Token != "" {
		if u.Scheme == "https" || loopback(u.Host) {
			h.token = cfg.Token
		} else {
			h.note("the token is not sent to " + u.Host + ": HF_ENDPOINT is not https")
		}
	}
	return h, nil
}

func (h *hub) rules() *web { return h.web }
func (h *hub) login() doer { return hubLogin{h.client, h.origin, h.token} }

// page returns the repository's page for people.
func (h *hub) page() string { return hubEndpoint + "/" + h.ref.Repo }

// treeEntry is an entry of the listing GET /api/models/ORG/REPO/tree/REVISION.
type treeEntry struct {
	Type string `json:"type"` // "file" or "directory"
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"` // git's
	LFS  *struct {
		OID  string `json:"oid"` // SHA-256
		Size int64  `json:"size"`
	} `json:"lfs"`
}

// plan asks for the commit of the revision, then for the commit's files: all files are of one commit, whatever is
// pushed meanwhile.
func (h *hub) plan(ctx context.Context) (*plan, error) {
	revision := h.ref.Revision
	if revision == "" {
		revision = "main"
	}
	api := h.base + "/api/models/" + h.ref.Repo
	var info struct {
		SHA      string `json:"sha"`
		Disabled bool   `json:"disabled"`
	}
	if _, err := h.fetchJSON(ctx, h.login(), api+"/revision/"+url.PathEscape(revision), nil, maxInfoBytes,
		&info); err != nil {
		return nil, h.missing(ctx, err)
	}
	if info.Disabled {
		return nil, &Error{Kind: ErrAccess, What: h.ref.Repo + " is disabled by Hugging Face", Do: "see " + h.page()}
	}
	if partRE.FindString(info.SHA) == "" {
		return nil, &Error{Kind: ErrServer, What: h.origin.Host + " names no commit of " + h.ref.Repo,
			Do: "check HF_ENDPOINT, and the page " + h.page()}
	}
	files, left, err := h.files(ctx, api, info.SHA)
	if err != nil {
		return nil, err
	}
	v, why, err := h.pick(ctx, variants(files), files)
	if err != nil {
		return nil, err
	}
	pl := &plan{files: v.files}
	if p, ok := projectorOf(v.files[0].path, h.projectors); ok && !h.textAlone {
		pl.files = append(slices.Clip(pl.files), p)
		h.projectors = slices.DeleteFunc(h.projectors, func(f remote) bool { return f.path == p.path })
	}
	for _, p := range h.projectors {
		left = append(left, p.path+" (a projector)")
	}
	name := h.ref
	if name.Tag = v.quant; v.quant == "" || name.File != "" {
		name.Tag, name.File = "", v.files[0].path
	}
	pl.Choice = Choice{Name: name.String(), Why: why, Left: left}
	for _, f := range pl.files {
		pl.Choice.Files = append(pl.Choice.Files, f.path)
		pl.Bytes += f.size
	}
	pl.record = Record{Name: pl.Name, Source: h.page(), Revision: info.SHA, Quantisation: v.quant}
	return pl, nil
}

// files returns the GGUF files of a commit, sorted by path, and those that are left out.
func (h *hub) files(ctx context.Context, api, sha string) (files []remote, left []string, err error) {
	next := api + "/tree/" + sha + "?recursive=true"
	for page := 0; next != ""; page++ {
		if page == maxTreePages {
			return nil, nil, &Error{Kind: ErrServer, What: fmt.Sprintf("the listing of %s has more than %d pages",
				h.ref.Repo, maxTreePages),
				Do: "pull from another repository"}
		}
		var entries []treeEntry
		header, err := h.fetchJSON(ctx, h.login(), next, nil, maxTreeBytes, &entries)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range entries {
			if e.Type != "file" || !strings.HasSuffix(strings.ToLower(e.Path), ".gguf") {
				continue
			}
			f, err := h.file(e, sha)
			switch {
			case err != nil:
				left = append(left, err.Error())
			case store.IsProjector(f.path) && len(h.projectors) < maxProjectors:
				h.projectors = append(h.projectors, f)
			case !store.IsModel(f.path):
				left = append(left, f.path+" (a projector, draft head or importance matrix)")
			case len(files) == maxFiles:
				return nil, nil, &Error{Kind: ErrServer, What: fmt.Sprintf("%s has more than %d GGUF files", h.ref.Repo,
					maxFiles),
					Do: "pull from another repository"}
			default:
				files = append(files, f)
			}
		}
		next = nextPage(header)
	}
	slices.SortFunc(files, func(a, b remote) int { return strings.Compare(a.path, b.path) })
	files = slices.CompactFunc(files, func(a, b remote) bool { return a.path == b.path })
	return files, left, nil
}

// file returns an entry as a remote. The error says why it cannot be pulled.
func (h *hub) file(e treeEntry, sha string) (remote, error) {
	if err := checkPath(e.Path); err != nil {
		return remote{}, err
	}
	f := remote{path: e.Path, size: e.Size, sum: sum{"git-sha1", e.OID}, url: h.base + "/" + h.ref.Repo + "/resolve/" +
		sha + "/" + escapePath(e.Path)}
	if e.LFS != nil {
		f.size, f.sum = e.LFS.Size, sum{"sha256", e.LFS.OID}
	}
	s, err := parseSum(f.sum.String())
	if f.sum = s; err != nil || f.size < minFileBytes || f.size > maxFileBytes {
		return remote{}, fmt.Errorf("%s (its listing has no usable size and hash)", f.path)
	}
	return f, nil
}

func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// nextPage returns the address in Link: <…>; rel="next" (RFC 8288), "" = none.
func nextPage(h http.Header) string {
	for _, line := range h.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			address, params, _ := strings.Cut(strings.TrimSpace(link), ">")
			if strings.Contains(params, `rel="next"`) {
				return strings.TrimPrefix(address, "<")
			}
		}
	}
	return ""
}

// pick chooses the files: the one that the name says, those of the quantisation that it says, or those of one that
// fits.
func (h *hub) pick(ctx context.Context, list []variant, files []remote) (v variant, why string, err error) {
	fail := func(what, do string) (variant, string, error) {
		return variant{}, "", &Error{Kind: ErrNotFound, What: what, Do: do}
	}
	switch {
	case len(files) == 0:
		return fail(fmt.Sprintf("%s has no GGUF file", h.ref.Repo), "pull a conversion of it"+h.similar(ctx))
	case len(list) == 0:
		return fail(fmt.Sprintf("%s has only some shards of split models", h.ref.Repo),
			"pull from another repository: this one is not complete")
	case h.ref.File != "":
		for _, v := range list {
			if slices.ContainsFunc(v.files, func(f remote) bool { return f.path == h.ref.File }) {
				return v, h.tight(v), nil
			}
		}
		return fail(fmt.Sprintf("%s has no file %s", h.ref.Repo, h.ref.File), "pull one of: "+h.labels(list,
			func(v variant) string { return v.files[0].path }))
	case h.ref.Tag != "" && !strings.EqualFold(h.ref.Tag, ollamaLatest):
		found := match(list, h.ref.Tag)
		if len(found) == 0 {
			found = h.byManifest(ctx, list)
		}
		if len(found) == 0 {
			do := "pull one of: " + h.labels(list, variant.label)
			if near := clierr.Nearest(strings.ToUpper(h.ref.Tag), labels(list)); near != "" {
				do = "did you mean " + near + "? There are: " + h.labels(list, variant.label)
			}
			return fail(fmt.Sprintf("%s has no quantisation %s", h.ref.Repo, h.ref.Tag), do)
		}
		if len(found) > 1 {
			return h.several(found)
		}
		return found[0], h.tight(found[0]), nil
	}
	v, ok := choose(list, h.mem)
	if !ok {
		small := slices.MinFunc(list, func(a, b variant) int { return int(min(max(a.size()-b.size(), -1), 1)) })
		return variant{}, "", &Error{Kind: ErrMemory,
			What: fmt.Sprintf("nothing of %s fits in the %s that are available: the smallest, %s, takes about %s",
				h.ref.Repo, ui.Bytes(h.mem), small.label(), ui.Bytes(need(small.size()))),
			Do: fmt.Sprintf("free some memory, pull a smaller model, or name it to pull it nevertheless: %s",
				h.named(small))}
	}
	if same := slices.DeleteFunc(slices.Clone(list),
		func(o variant) bool { return o.quant != v.quant }); len(same) > 1 {
		return h.several(same)
	}
	return v, h.reason(list, v), nil
}

// several returns the error for a name that means more than one model.
func (h *hub) several(found []variant) (variant, string, error) {
	return variant{}, "", &Error{Kind: ErrName, What: fmt.Sprintf("%s has %d models of that quantisation", h.ref.Repo,
		len(found)),
		Do: "name the file: " + h.labels(found, h.named)}
}

// named returns the name of one variant, by its file.
func (h *hub) named(v variant) string {
	r := h.ref
	r.Tag, r.File = "", v.files[0].path
	return r.String()
}

// reason says why v was chosen.
func (h *hub) reason(list []variant, v variant) string {
	if len(list) == 1 {
		return h.tight(v)
	}
	why := "the repository's first by preference"
	if h.mem > 0 {
		why = fmt.Sprintf("it takes about %s of the %s that are available", ui.Bytes(need(v.size())), ui.Bytes(h.mem))
		if first, ok := choose(list, 0); ok && first.name != v.name {
			why += fmt.Sprintf("; %s takes %s", first.label(), ui.Bytes(need(first.size())))
		}
	}
	others := slices.DeleteFunc(slices.Clone(list), func(o variant) bool { return o.name == v.name })
	return why + ". Others: " + h.labels(others, func(v variant) string {
		return v.label() + " " +
			ui.Bytes(uint64(v.size()))
	})
}

// tight says that v was asked for and does not fit; "" = it does.
func (h *hub) tight(v variant) string { return tight(v.size(), h.mem) }

func tight(size int64, memory uint64) string {
	if memory == 0 || need(size) <= memory {
		return ""
	}
	return fmt.Sprintf("it takes about %s of memory, and %s are available: it will be slow, or not load",
		ui.Bytes(need(size)), ui.Bytes(memory))
}

func labels(list []variant) (all []string) {
	for _, v := range list {
		all = append(all, v.label())
	}
	return all
}

// labels lists at most 30 variants.
func (h *hub) labels(list []variant, label func(variant) string) string {
	const most = 30
	var all []string
	for _, v := range list[:min(len(list), most)] {
		all = append(all, label(v))
	}
	if len(list) > most {
		all = append(all, fmt.Sprintf("and %d more: %s/tree/main", len(list)-most, h.page()))
	}
	return strings.Join(all, ", ")
}

// byManifest asks the hub which file a tag means, by the route that ollama uses: the hub knows quantisations that file
// names do not say. It finds the file by its SHA-256; nothing when the hub knows no such tag.
func (h *hub) byManifest(ctx context.Context, list []variant) []variant {
	var m manifest
	header := http.Header{"Accept": {manifestTypes}}
	if _, err := h.fetchJSON(ctx, h.login(), h.base+"/v2/"+h.ref.Repo+"/manifests/"+h.ref.Tag, header, maxManifestBytes,
		&m); err != nil {
		return nil
	}
	for _, l := range m.Layers {
		for _, v := range list {
			if isModelLayer(l.MediaType) && v.files[0].sum.String() == l.Digest {
				return []variant{v}
			}
		}
	}
	return nil
}

// missing explains an error of the first question about a repository. The hub answers 401 for a repository that does
// not exist and for a private one alike.
func (h *hub) missing(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok || f.temporary {
		return err
	}
	explained := h.explain(f)
	if ours, ok := errors.AsType[*Error](explained); ok && ours.Kind == ErrNotFound {
		ours.Do += h.similar(ctx)
	}
	return explained
}

// explain says what a refusal of the hub means, by its status and its X-Error-Code.
func (h *hub) explain(err error) error {
	f, _ := errors.AsType[*fault](err)
	const tokens = "https://huggingface.co/settings/tokens"
	switch {
	case f == nil:
		return err
	case f.code == "GatedRepo" && h.token == "":
		return &Error{Kind: ErrAccess, What: h.ref.Repo + " is gated: its owner asks you to agree to terms first",
			Do: fmt.Sprintf("agree at %s, make a token at %s, and pull again with HF_TOKEN=hf_…", h.page(), tokens)}
	case f.code == "GatedRepo", f.status == http.StatusForbidden && h.token != "":
		return &Error{Kind: ErrAccess, What: "the account of your token has no access to " + h.ref.Repo, Err: f.err,
			Do: fmt.Sprintf("agree to its terms at %s, or wait until its owner has agreed; "+
				"a fine-grained token also needs the right to read gated repositories (%s)",
				h.page(), tokens)}
	case f.code == "RevisionNotFound":
		return &Error{Kind: ErrNotFound, What: fmt.Sprintf("%s has no revision %s", h.ref.Repo, h.ref.Revision),
			Do: "see " + h.page() + "/commits"}
	case f.code == "EntryNotFound":
		return &Error{Kind: ErrNotFound, What: h.ref.Repo + " has lost the file while it was pulled", Do: "pull again"}
	case f.status == http.StatusUnauthorized && h.token != "" && f.code != "RepoNotFound":
		return &Error{Kind: ErrAccess, What: "Hugging Face does not accept your token", Err: f.err,
			Do: "make a new one at " + tokens +
				" and set HF_TOKEN, or unset HF_TOKEN and remove the token file for public models"}
	case f.status == http.StatusUnauthorized, f.status == http.StatusForbidden, f.status == http.StatusNotFound,
		f.code == "RepoNotFound":
		do := "check the name at " + h.page()
		if h.token == "" {
			do += "; for a private repository set HF_TOKEN (" + tokens + ")"
		}
		return &Error{Kind: ErrNotFound, What: "there is no public repository " + h.ref.Repo, Err: f.err, Do: do}
	}
	return &Error{Kind: ErrServer, What: h.ref.Repo + " cannot be pulled", Err: f.err, Do: "see " + h.page() +
		"; pull again later"}
}

// similar names repositories with GGUF files and a similar name, for errors; "" when the hub knows none, or does not
// answer.
func (h *hub) similar(ctx context.Context) string {
	_, name, _ := strings.Cut(h.ref.Repo, "/")
	query := url.Values{"search": {strings.TrimSuffix(strings.TrimSuffix(name, "-GGUF"), "-gguf")}, "filter": {"gguf"},
		"sort": {"downloads"}, "direction": {"-1"}, "limit": {"10"}}
	ctx, cancel := context.WithTimeout(ctx, suggestionTimeout)
	defer cancel()
	var found []struct {
		ID string `json:"id"`
	}
	if _, err := h.fetchJSON(ctx, h.login(), h.base+"/api/models?"+query.Encode(), nil, maxInfoBytes,
		&found); err != nil {
		return ""
	}
	var names []string
	for _, f := range found {
		if _, err := parseHub(f.ID, false); err == nil && len(names) < maxSuggestion {
			names = append(names, hubFolder+"/"+f.ID)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; similar: " + strings.Join(names, ", ")
}

// hubLogin adds the hub's token to requests to the hub. A listing may have its next page elsewhere.
type hubLogin struct {
	client *http.Client
	origin *url.URL
	token  string
}

func (l hubLogin) Do(req *http.Request) (*http.Response, error) {
	if l.token != "" && req.URL.Host == l.origin.Host && req.URL.Scheme == l.origin.Scheme {
		req.Header.Set("Authorization", "Bearer "+l.token)
	}
	return l.client.Do(req)
}
