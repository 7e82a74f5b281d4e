package store

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// layers are the files of a model of ollama beside its weights, by their paths; "" or none where it has none.
type layers struct {
	template, params     string
	system               string
	licenses             []string
	adapters, projectors []string
}

// digest matches the name of a blob in a manifest.
var digest = regexp.MustCompile(`^sha256[:-]([0-9a-fA-F]{64})$`)

// maxLayers bounds the layers of a manifest, far above those of any model.
const maxLayers = 1024

// Media types of layers (ollama's server/images.go).
const (
	mediaModel     = "application/vnd.ollama.image.model"
	mediaAdapter   = "application/vnd.ollama.image.adapter"
	mediaProjector = "application/vnd.ollama.image.projector"
	mediaTemplate  = "application/vnd.ollama.image.template"
	mediaPrompt    = "application/vnd.ollama.image.prompt" // what templates were called before
	mediaParams    = "application/vnd.ollama.image.params"
	mediaSystem    = "application/vnd.ollama.image.system"
	mediaLicense   = "application/vnd.ollama.image.license"
)

// findOllama reads ollama's folder: manifests/HOST/NAMESPACE/MODEL/TAG, and the blobs that they name, blobs/sha256-….
func findOllama(s *scan) {
	top := filepath.Join(s.root.path, "manifests")
	if _, err := os.Stat(top); os.IsNotExist(err) {
		return
	}
	s.walk(top, func(f file) {
		parts := strings.Split(f.rel, "/")
		if len(parts) != 4 {
			s.problem(f.path, "it is not below manifests/HOST/NAMESPACE/MODEL")
			return
		}
		name, err := ParseName(strings.Join(parts[:3], "/") + ":" + parts[3])
		if err != nil {
			s.problem(f.path, "its path is not that of a manifest: %v", err)
			return
		}
		if m, ok := s.manifest(f, name); ok {
			s.add(m)
		}
	})
}

// manifest reads one manifest.
func (s *scan) manifest(f file, name Name) (m Model, ok bool) {
	m = Model{Name: name, Repo: Name{Host: name.Host, Path: name.Path}, Modified: f.modified,
		layers: &layers{}}
	type layer struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int64  `json:"size"`
	}
	var doc struct {
		Layers []layer `json:"layers"`
	}
	text, err := readSmall(f.path, maxSmall)
	if err == nil {
		if err = json.Unmarshal(text, &doc); err != nil {
			err = fmt.Errorf("it is not a manifest: %w", err)
		} else if len(doc.Layers) > maxLayers {
			err = fmt.Errorf("it names %d layers; the maximum is %d", len(doc.Layers), maxLayers)
		}
	}
	if err != nil {
		s.problem(f.path, "%s", reason(err))
		return m, false
	}
	l := m.layers
	var weights *layer
	for i := range doc.Layers {
		of := &doc.Layers[i]
		// A digest becomes a path: nothing but a digest may.
		hash := digest.FindStringSubmatch(of.Digest)
		if hash == nil {
			s.problem(f.path, "it names %.80q, which is no digest", of.Digest)
			return m, false
		}
		blob := filepath.Join(s.root.path, "blobs", "sha256-"+hash[1])
		switch of.MediaType {
		case mediaModel:
			weights, m.Files, m.Digest = of, []string{blob}, "sha256:"+strings.ToLower(hash[1])
		case mediaAdapter:
			l.adapters = append(l.adapters, blob)
		case mediaProjector:
			l.projectors = append(l.projectors, blob)
		case mediaTemplate, mediaPrompt:
			l.template = blob
		case mediaParams:
			l.params = blob
		case mediaSystem:
			l.system = blob
		case mediaLicense:
			l.licenses = append(l.licenses, blob)
		}
	}
	switch {
	case weights == nil: // it runs on ollama's servers, or its weights are not GGUF
		s.problem(f.path, "it has no GGUF file")
		return m, false
	case len(l.adapters) > 0:
		s.problem(f.path, "it has an adapter beside its weights, which uma-serve cannot load")
		return m, false
	}
	if len(l.projectors) > 0 {
		m.Projector = l.projectors[0]
	}
	st, err := os.Stat(m.Files[0])
	switch {
	case os.IsNotExist(err):
		m.Incomplete = "its file is missing"
	case err != nil:
		s.problem(m.Files[0], "%s", reason(err))
		return m, false
	case st.Size() != weights.Size:
		m.Incomplete = fmt.Sprintf("its file has %d of %d bytes", st.Size(), weights.Size)
		m.Bytes = st.Size()
	default:
		m.Bytes = st.Size()
		if !s.usable(file{path: m.Files[0]}) {
			return m, false
		}
	}
	return m, true
}
