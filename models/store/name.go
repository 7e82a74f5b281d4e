package store

import (
	"errors"
	"fmt"
	"strings"
)

// ErrName: a text is not the name of a model; the error says which part of it is wrong.
var ErrName = errors.New("not a model name")

// Hosts of names, as Name.Host has them.
const (
	HuggingFace = "hf.co"
	Ollama      = "ollama.com"
)

// Latest is the tag of a name that has none.
const Latest = "latest"

// Limits of a name, in bytes. Hugging Face allows 96 for a repository, ollama 80 for each part of a name and 350 for a
// host.
const (
	maxNameBytes = 512
	maxPartBytes = 128
	maxParts     = 12 // a file may lie in folders of its repository
)

// Name is a parsed name of a model:
//
//	NAME    = [HOST "/"] PATH [":" TAG]
//	PATH    = MODEL                      ollama's own models, files of the models directory: qwen3
//	        | OWNER "/" MODEL            Hugging Face, LM Studio, users of ollama: org/repo
//	        | ORG "/" REPO "/" FILE      one file of a repository; FILE ends in .gguf and may have folders
//	TAG     = quantisation on Hugging Face (Q4_K_M), tag on ollama (8b)
//
// HOST is hf.co (also written huggingface.co), ollama.com (registry.ollama.ai), or another registry of ollama's kind
// with its port; https:// may precede it. The letters and digits of ASCII, "_", "-" and "." make up every part but a
// host, and a part does not begin with "-" or ".", so that a name is always a local path as well. Case does not matter
// when names are compared.
type Name struct {
	Host string // "" = any
	Path string
	Tag  string // "" = the default
}

// hosts are the known hosts by the spellings of people and programs.
var hosts = map[string]string{
	"hf.co": HuggingFace, "huggingface.co": HuggingFace, "www.huggingface.co": HuggingFace,
	"ollama.com": Ollama, "registry.ollama.ai": Ollama, "www.ollama.com": Ollama,
}

// ParseName parses a name. The error wraps ErrName.
func ParseName(text string) (Name, error) {
	fail := func(format string, a ...any) (Name, error) {
		return Name{}, fmt.Errorf("%.100q is %w: %s", text, ErrName, fmt.Sprintf(format, a...))
	}
	switch {
	case text == "":
		return fail("it is empty")
	case len(text) > maxNameBytes:
		return fail("it has %d bytes; the maximum is %d", len(text), maxNameBytes)
	}
	var n Name
	rest, url := strings.CutPrefix(text, "https://")
	// A tag has no slash in it: a colon before one belongs to the host's port.
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, n.Tag = rest[:i], rest[i+1:]
		if err := checkPart(n.Tag); err != nil {
			return fail("its tag %.50q %v", n.Tag, err)
		}
	}
	parts := strings.Split(rest, "/")
	if len(parts) > maxParts {
		return fail("it has %d parts; the maximum is %d", len(parts), maxParts)
	}
	file := isGGUF(parts[len(parts)-1])
	known := hosts[strings.ToLower(parts[0])]
	if url || known != "" && len(parts) > 1 || len(parts) >= 3 && (!file || strings.ContainsAny(parts[0], ".:")) {
		if known == "" {
			if err := checkHost(parts[0]); err != nil {
				return fail("its host %.50q %v", parts[0], err)
			}
			known = strings.ToLower(parts[0])
		}
		n.Host, parts = known, parts[1:]
	}
	for _, p := range parts {
		if err := checkPart(p); err != nil {
			return fail("its part %.50q %v", p, err)
		}
	}
	if n.Host == Ollama && len(parts) == 2 && strings.EqualFold(parts[0], "library") {
		parts = parts[1:]
	}
	switch count := len(parts); {
	case n.Host == HuggingFace && (count < 2 || count > 2 && !file):
		return fail("a model of Hugging Face is written hf.co/ORG/REPO[:QUANT]")
	case n.Host == Ollama && (count < 1 || count > 2):
		return fail("a model of ollama is written MODEL[:TAG] or USER/MODEL[:TAG]")
	case n.Host != "" && n.Host != HuggingFace && n.Host != Ollama && count != 2:
		return fail("a model of another host is written HOST/USER/MODEL[:TAG]")
	case count > 2 && n.Tag != "":
		return fail("a file has no tag")
	}
	n.Path = strings.Join(parts, "/")
	return n, nil
}

// String returns the name as ParseName reads it.
func (n Name) String() string {
	text := n.Path
	if n.Host != "" {
		text = n.Host + "/" + text
	}
	if n.Tag != "" {
		text += ":" + n.Tag
	}
	return text
}

// short returns the name that lists show: without the host where the rest cannot be read as another name.
func (n Name) short() string {
	bare := Name{Path: n.Path, Tag: n.Tag}
	if back, err := ParseName(bare.String()); n.Host != HuggingFace && n.Host != Ollama || err != nil || back != bare {
		return n.String()
	}
	return bare.String()
}

// matches reports whether q, which may lack host and tag, names n.
func (n Name) matches(q Name) bool {
	return (q.Host == "" || strings.EqualFold(q.Host, n.Host)) && n.samePath(q) && strings.EqualFold(q.Tag, n.Tag)
}

// samePath compares the paths; "library/" before a model of ollama may be written without the host, too.
func (n Name) samePath(q Name) bool {
	path := q.Path
	if n.Host == Ollama && q.Host == "" {
		if rest, ok := cutPrefixFold(path, "library/"); ok {
			path = rest
		}
	}
	return strings.EqualFold(n.Path, path)
}

// IsPath reports whether text can only be the path of a file: it begins as no name does.
func IsPath(text string) bool {
	for _, prefix := range []string{"/", "./", "../", "~/"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return text == "." || text == ".."
}

// checkPart returns what is wrong with a part of a name.
func checkPart(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxPartBytes:
		return fmt.Errorf("has %d bytes; the maximum is %d", len(s), maxPartBytes)
	case !isWord(s[0]):
		return errors.New("must begin with a letter, a digit or _")
	}
	for i := range len(s) {
		if !isWord(s[i]) && s[i] != '-' && s[i] != '.' {
			return errors.New("may have letters, digits, _, - and . only")
		}
	}
	return nil
}

// checkHost returns what is wrong with a host, which may have a port.
func checkHost(s string) error {
	name, port, hasPort := strings.Cut(s, ":")
	if err := checkPart(name); err != nil {
		return err
	}
	if hasPort && (port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "") {
		return errors.New("has no number as its port")
	}
	return nil
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// isGGUF reports whether a file is named as models are.
func isGGUF(name string) bool { return len(name) > 5 && strings.EqualFold(name[len(name)-5:], ".gguf") }

// cutPrefixFold is strings.CutPrefix without regard to case.
func cutPrefixFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
