package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	ociregistry "oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
)

// Limits of a registry's answers.
const (
	maxManifestBytes = 4 << 20
	maxLayers        = 64
	maxTextBytes     = 1 << 20 // of a layer that is kept in the Record
)

// manifestTypes is the Accept header of requests for a manifest: one image, not an index of them.
const manifestTypes = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"

// ollamaHosts are the hosts to which ollama's registry redirects downloads: its own, and the storage that its
// maintainers name for allow lists (ollama/ollama#4307).
var ollamaHosts = []string{"ollama.ai", "ollama.com", "r2.cloudflarestorage.com"}

// manifest lists the layers of a tag.
type manifest struct {
	MediaType string  `json:"mediaType"`
	Layers    []layer `json:"layers"`
	Manifests []layer `json:"manifests"` // of an index
}

type layer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// isModelLayer reports whether the layer is a GGUF model: of ollama, or of Docker's model runner.
func isModelLayer(mediaType string) bool {
	return mediaType == "application/vnd.ollama.image.model" || mediaType == "application/vnd.docker.ai.gguf.v3"
}

// besideLayers are layers that are left out, with the reason.
var besideLayers = map[string]string{
	"application/vnd.ollama.image.adapter": "a LoRA adapter: the model is served without it",
}

// isProjectorLayer reports whether the layer is a projector of images.
func isProjectorLayer(mediaType string) bool {
	return mediaType == "application/vnd.ollama.image.projector" || mediaType == "application/vnd.docker.ai.mmproj"
}

// registry is a tag of a registry that speaks the protocol of OCI's distribution specification, as ollama's does.
type registry struct {
	*web
	ref  Ref
	base string // of /v2/ORG/REPO
	auth *auth.Client
	mem  uint64

	textAlone bool
}

func newRegistry(cfg *Config, ref Ref) *registry {
	u := &url.URL{Scheme: "https", Host: ref.Host}
	if loopback(ref.Host) {
		u.Scheme = "http"
	}
	var allow []string
	if ref.Host == ollamaHost {
		allow = slices.Clone(ollamaHosts)
	}
	r := &registry{web: newWeb(cfg, u, allow), ref: ref, base: u.String() + "/v2/" + ref.Repo, mem: cfg.Memory,
		textAlone: cfg.TextAlone}
	// The rules of web are stricter than the blocked prefixes, which would look names up.
	r.auth = &auth.Client{Client: r.client, Cache: auth.NewCache(), BlockedRealmPrefixes: []netip.Prefix{}}
	return r
}

func (r *registry) rules() *web { return r.web }
func (r *registry) login() doer { return tokens{r} }

// tokens answers a registry that asks to log in: it fetches an anonymous token for reading the one repository, and
// keeps it.
type tokens struct{ r *registry }

func (t tokens) Do(req *http.Request) (*http.Response, error) {
	of := ociregistry.Reference{Registry: t.r.ref.Host, Repository: t.r.ref.Repo}
	ctx := auth.AppendRepositoryScope(req.Context(), of, auth.ActionPull)
	resp, err := t.r.auth.Do(req.WithContext(ctx))
	if refused, ok := errors.AsType[*errcode.ErrorResponse](err); ok { // by the token server
		return nil, statusFault(refused.StatusCode, refused)
	}
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return nil, statusFault(http.StatusUnauthorized, errors.New("the registry asks for a password"))
	}
	return resp, err
}

func (r *registry) plan(ctx context.Context) (*plan, error) {
	var m manifest
	header := http.Header{"Accept": {manifestTypes}}
	answered, err := r.fetchJSON(ctx, r.login(), r.base+"/manifests/"+r.ref.Tag, header, maxManifestBytes, &m)
	if err != nil {
		return nil, r.missing(ctx, err)
	}
	pl := &plan{Choice: Choice{Name: r.ref.String()}}
	pl.record = Record{Name: pl.Name, Source: r.page(), Revision: answered.Get("Docker-Content-Digest")}
	if len(m.Layers) > maxLayers {
		return nil, r.unusable(fmt.Sprintf("has %d layers, and at most %d are read", len(m.Layers), maxLayers))
	}
	var projector []remote // one at most
	for _, l := range m.Layers {
		switch why, beside := besideLayers[l.MediaType]; {
		case beside:
			pl.Left = append(pl.Left, why)
		case isProjectorLayer(l.MediaType) && (r.textAlone || len(projector) > 0):
			pl.Left = append(pl.Left, "the projector of images")
		case isModelLayer(l.MediaType), isProjectorLayer(l.MediaType):
			s, err := parseSum(l.Digest)
			if err != nil || l.Size < minFileBytes || l.Size > maxFileBytes || s.kind != "sha256" {
				return nil, r.unusable("has a layer without a usable size and digest")
			}
			f := remote{path: r.ref.Tag + ".gguf", size: l.Size, sum: s, url: r.base + "/blobs/" + s.String()}
			if isProjectorLayer(l.MediaType) {
				f.path = "mmproj-" + f.path
				projector = append(projector, f)
			} else {
				pl.files = append(pl.files, f)
			}
		default:
			if err := r.text(ctx, l, &pl.record); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case len(pl.files) == 0 && len(m.Manifests) > 0:
		return nil, r.unusable("is an index of several images, not a model")
	case len(pl.files) == 0:
		return nil, r.unusable("has no GGUF layer")
	}
	var weights int64
	for i := range pl.files { // a split model has a layer for each shard
		if n := len(pl.files); n > 1 {
			pl.files[i].path = gguf.ShardName(r.ref.Tag, i+1, n)
		}
	}
	for _, f := range pl.files {
		weights += f.size
	}
	pl.files = append(pl.files, projector...)
	for i := range pl.files {
		pl.Choice.Files = append(pl.Choice.Files, pl.files[i].path)
		pl.Bytes += pl.files[i].size
	}
	pl.record.Quantisation = store.QuantOf(r.ref.Tag + ".gguf")
	pl.Why = tight(weights, r.mem)
	return pl, nil
}

// text keeps a layer that is a text in the record. Other layers are of no use here.
func (r *registry) text(ctx context.Context, l layer, to *Record) error {
	kind := path.Ext(l.MediaType)
	if !strings.HasPrefix(l.MediaType, "application/vnd.ollama.image.") ||
		!slices.Contains([]string{".template", ".system", ".params", ".license"}, kind) || l.Size > maxTextBytes {
		return nil
	}
	s, err := parseSum(l.Digest)
	if err != nil {
		return r.unusable("has a layer without a usable digest")
	}
	b, err := r.fetchBytes(ctx, r.login(), r.base+"/blobs/"+s.String(), nil, maxTextBytes, nil)
	if err != nil {
		return err
	}
	h := s.new(int64(len(b)))
	h.Write(b)
	if fmt.Sprintf("%x", h.Sum(nil)) != s.hex {
		return &Error{Kind: ErrCorrupt, What: fmt.Sprintf("the %s of %s is not what its digest says", kind[1:], r.ref),
			Do: "pull again later, or from another source: the server, or a proxy in between, changes it"}
	}
	switch kind {
	case ".template":
		to.Template = string(b)
	case ".system":
		to.System = string(b)
	case ".license":
		to.Licence = strings.TrimPrefix(to.Licence+"\n\n"+string(b), "\n\n")
	case ".params":
		if json.Valid(b) {
			to.Parameters = b
		}
	}
	return nil
}

// page returns the model's page for people.
func (r *registry) page() string {
	if r.ref.Host != ollamaHost {
		return r.origin.String() + "/" + r.ref.Repo
	}
	return "https://ollama.com/" + r.ref.Repo
}

func (r *registry) unusable(what string) error {
	return &Error{Kind: ErrServer, What: fmt.Sprintf("%s %s", r.ref, what), Do: "see " + r.page() +
		"; pull another tag, or a GGUF repository: hf.co/owner/name"}
}

// missing explains an error of the first question about a tag. If the registry lists its tags, the error does.
func (r *registry) missing(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok || f.temporary {
		return err
	}
	explained := r.explain(f)
	ours, ok := errors.AsType[*Error](explained)
	if !ok || ours.Kind != ErrNotFound {
		return explained
	}
	var list struct {
		Tags []string `json:"tags"`
	}
	if f.status == http.StatusNotFound && r.ref.Host != ollamaHost { // ollama's lists no tags
		if _, err := r.fetchJSON(ctx, r.login(), r.base+"/tags/list", nil, maxManifestBytes, &list); err == nil &&
			len(list.Tags) > 0 {
			tags := slices.DeleteFunc(list.Tags, func(t string) bool { return !partRE.MatchString(t) })
			ours.Do = "pull one of its tags: " + strings.Join(tags[:min(len(tags), 30)], ", ")
			if near := clierr.Nearest(r.ref.Tag, tags); near != "" {
				ours.Do = "did you mean " + near + "? " + ours.Do
			}
		}
	}
	return ours
}

// explain says what a refusal of the registry means.
func (r *registry) explain(err error) error {
	f, _ := errors.AsType[*fault](err)
	switch {
	case f == nil:
		return err
	case f.status == http.StatusNotFound:
		do := "see the tags at " + r.page() + "/tags"
		if r.ref.Host == ollamaHost && !strings.HasPrefix(r.ref.Repo, ollamaOwner+"/") {
			do += fmt.Sprintf("; of Hugging Face: %s/%s", hubFolder, r.ref.Repo)
		}
		return &Error{Kind: ErrNotFound, What: fmt.Sprintf("%s has no model %s", r.origin.Host, r.ref), Do: do}
	case f.status == http.StatusUnauthorized, f.status == http.StatusForbidden:
		return &Error{Kind: ErrAccess, What: fmt.Sprintf("%s is not public, or does not exist", r.ref), Err: f.err,
			Do: "check the name at " + r.page() + "; private models of a registry cannot be pulled"}
	}
	return &Error{Kind: ErrServer, What: fmt.Sprintf("%s cannot be pulled", r.ref), Err: f.err, Do: "see " + r.page() +
		"; pull again later"}
}
