package pull

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// Hosts that names stand for.
const (
	hubHost      = "huggingface.co"
	ollamaHost   = "registry.ollama.ai"
	ollamaFolder = "ollama.com" // of ollama's models in the models folder, as names write it
	hubFolder    = "hf.co"      // of the hub's models in the models folder; the hub's short name
	hubEndpoint  = "https://" + hubHost
	ollamaOwner  = "library" // the owner of names without one
	ollamaLatest = "latest"  // the tag of names without one
)

// Ref names a model at its source.
type Ref struct {
	Hub      bool   // a repository of Hugging Face; otherwise of a registry
	Host     string // the registry's, with its port; "" for the hub
	Repo     string // "owner/name"
	Revision string // of the hub: branch, tag or commit; "" = main
	Tag      string // of the hub: a quantisation, "" = choose one; of a registry: its tag
	File     string // of the hub: a path in the repository, instead of a Tag
}

// Names of owners, repositories and tags: they become parts of URLs and of paths.
var (
	partRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	hostRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(:[0-9]{1,5})?$`)
)

// forms lists the forms of a name, for errors.
const forms = "a name is qwen3:8b or owner/name:tag (ollama's registry), HOST/owner/name:tag (another registry), " +
	"or hf.co/owner/repository, with :QUANTISATION, @REVISION or /FILE.gguf after it"

// Parse reads a name as users of ollama, of llama.cpp's -hf and of a browser write it:
//
//	qwen3, qwen3:8b, owner/name:tag               ollama's registry
//	registry.example.com/owner/name:tag           another registry
//	hf.co/owner/repo, hf.co/owner/repo:Q4_K_M     Hugging Face
//	hf.co/owner/repo@REVISION:Q4_K_M              at a branch, tag or commit
//	hf.co/owner/repo/folder/FILE.gguf             one file (of a split model, any shard: all are pulled)
//	https://huggingface.co/owner/repo/blob/main/FILE.gguf
//
// The error is an *Error of kind ErrName.
func Parse(name string) (Ref, error) {
	r, err := parse(strings.TrimSpace(name))
	if err != nil {
		return Ref{}, &Error{Kind: ErrName, What: fmt.Sprintf("%.200q is no name of a model", name), Err: err,
			Do: forms}
	}
	return r, nil
}

func parse(name string) (Ref, error) {
	scheme, rest, address := strings.Cut(name, "://")
	if address {
		if scheme != "https" && scheme != "http" && scheme != "hf" {
			return Ref{}, fmt.Errorf("there is no source %s://", scheme)
		}
		if scheme == "hf" {
			rest = hubFolder + "/" + rest
		}
		if name, _, _ = strings.Cut(rest, "?"); scheme == "http" && !loopback(hostOf(name)) {
			return Ref{}, fmt.Errorf("http is allowed on loopback only")
		}
	}
	name = strings.Trim(name, "/")
	if host := strings.ToLower(name); host == hubFolder || host == hubHost {
		return Ref{}, fmt.Errorf("a repository is owner/name")
	}
	switch host := hostOf(name); strings.ToLower(host) {
	case "":
		return parseRegistry(ollamaHost, name)
	case hubFolder, hubHost, "www." + hubHost:
		return parseHub(strings.TrimPrefix(name, host+"/"), address)
	case "ollama.com", "www.ollama.com", ollamaHost:
		return parseRegistry(ollamaHost, strings.TrimPrefix(name, host+"/"))
	default:
		return parseRegistry(host, strings.TrimPrefix(name, host+"/"))
	}
}

// hostOf returns the host a name begins with, "" when it begins with an owner or a model.
func hostOf(name string) string {
	first, rest, ok := strings.Cut(name, "/")
	if ok && rest != "" && (strings.ContainsAny(first, ".:") || first == "localhost") && hostRE.MatchString(first) {
		return first
	}
	return ""
}

// parseHub reads what follows the hub's host. In an address the path may have escapes.
func parseHub(rest string, address bool) (Ref, error) {
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 2 {
		return Ref{}, fmt.Errorf("a repository is owner/name")
	}
	r := Ref{Hub: true}
	repo := parts[1]
	if len(parts) == 2 {
		repo, r.Tag, _ = strings.Cut(repo, ":")
	}
	repo, r.Revision, _ = strings.Cut(repo, "@")
	r.Repo = parts[0] + "/" + repo
	if len(parts) == 3 {
		r.File = parts[2]
		// A page of the browser: blob/REVISION/FILE, resolve/REVISION/FILE, tree/REVISION.
		if page := strings.SplitN(r.File, "/", 3); r.Revision == "" && (page[0] == "blob" || page[0] == "resolve" ||
			page[0] == "tree") {
			r.File = ""
			if len(page) > 1 {
				if r.Revision = page[1]; r.Revision == "" {
					return Ref{}, fmt.Errorf("there is no revision after /%s/", page[0])
				}
			}
			if len(page) > 2 && page[0] != "tree" {
				r.File = page[2]
			}
		}
		if unescaped, err := url.PathUnescape(r.File); err == nil && address {
			r.File = unescaped
		}
	}
	for _, p := range []struct{ what, part string }{{"owner", parts[0]}, {"repository", repo},
		{"revision", cmp.Or(r.Revision, "main")}, {"quantisation", cmp.Or(r.Tag, "any")}} {
		if err := checkPart(p.what, p.part); err != nil {
			return Ref{}, err
		}
	}
	if r.File != "" {
		if err := checkPath(r.File); err != nil {
			return Ref{}, err
		}
	}
	return r, nil
}

func parseRegistry(host, rest string) (Ref, error) {
	r := Ref{Host: strings.ToLower(host), Tag: ollamaLatest}
	parts := strings.Split(rest, "/")
	last := len(parts) - 1
	if name, tag, ok := strings.Cut(parts[last], ":"); ok {
		parts[last], r.Tag = name, tag
	}
	switch {
	case len(parts) == 1 && host == ollamaHost:
		parts = []string{ollamaOwner, parts[0]}
	case len(parts) != 2:
		return Ref{}, fmt.Errorf("a registry's model is owner/name:tag")
	}
	for i, what := range []string{"owner", "name"} {
		if err := checkPart(what, parts[i]); err != nil {
			return Ref{}, err
		}
	}
	if err := checkPart("tag", r.Tag); err != nil {
		return Ref{}, err
	}
	r.Repo = parts[0] + "/" + parts[1]
	return r, nil
}

func checkPart(what, part string) error {
	if !partRE.MatchString(part) {
		return fmt.Errorf("the %s %.100q may have letters, digits, '.', '_' and '-', and at most 96 of them", what,
			part)
	}
	return nil
}

// checkPath refuses a path of a repository that could not be a path below a folder here.
func checkPath(p string) error {
	if len(p) > 512 || path.Clean(p) != p {
		return fmt.Errorf("%.100q is not a path of at most 512 bytes in a repository", p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part[0] == '.' || len(part) > 200 {
			return fmt.Errorf("%.100q has a part that is empty, hidden or longer than 200 bytes", p)
		}
	}
	for _, c := range p {
		if c < ' ' || c == 0x7f || c == '\\' || c == 0xfffd {
			return fmt.Errorf("%.100q has a character that file names must not have", p)
		}
	}
	if !strings.HasSuffix(strings.ToLower(p), ".gguf") {
		return fmt.Errorf("%.100q is not a .gguf file", p)
	}
	return nil
}

// String returns the name in its short form, which Parse reads back.
func (r Ref) String() string {
	var b strings.Builder
	switch {
	case r.Hub:
		b.WriteString(hubFolder + "/" + r.Repo)
		if r.Revision != "" {
			b.WriteString("@" + r.Revision)
		}
		if r.File != "" {
			b.WriteString("/" + r.File)
		}
	case r.Host == ollamaHost:
		b.WriteString(strings.TrimPrefix(r.Repo, ollamaOwner+"/"))
	default:
		b.WriteString(r.Host + "/" + r.Repo)
	}
	if r.Tag != "" {
		b.WriteString(":" + r.Tag)
	}
	return b.String()
}

// Folder returns the path of the model's files within the models folder, with slashes: host, owner and repository, so
// that a path tells the model's name.
func (r Ref) Folder() string {
	if r.Hub {
		return path.Join(hubFolder, r.Repo)
	}
	if r.Host == ollamaHost {
		return path.Join(ollamaFolder, r.Repo)
	}
	return path.Join(r.Host, r.Repo)
}

// loopback reports whether host, with or without a port, is this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
