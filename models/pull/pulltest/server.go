// Package pulltest is a server for tests of pulls: Hugging Face's API and files, a registry of OCI's distribution
// specification as ollama's is, and the host that both redirect downloads to. On request it misbehaves.
package pulltest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server answers requests for whichever host they name. Fill in its fields before the first request.
type Server struct {
	Repos  map[string]*Repo  // by "owner/name"
	Images map[string]*Image // by "owner/name:tag"
	// Download is the address that downloads are redirected to, such as http://cdn.test; "" = they are not redirected.
	Download string
	// Token is the bearer token that requests for a gated repository must carry.
	Token string
	// Fault returns the fault to inject into a request; nil, or a nil result, is none. It is called by many goroutines.
	Fault func(*http.Request) Fault
	// Log is called with each request; nil = not.
	Log func(*http.Request)

	mu     sync.Mutex
	served int64
}

// Fault answers a request wrongly. rest is what the server would have answered; a fault may call it or not.
type Fault func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc)

// Repo is a repository of the hub.
type Repo struct {
	Files  map[string][]byte
	Plain  bool   // its files are in git itself: their listing has no SHA-256
	Gated  bool   // requests for its files need the server's Token, as of gated repositories; its listing is public
	Secret bool   // requests without the Token are told that there is no such repository
	Pages  int    // entries of a page of the listing; 0 = all
	Commit string // "" = Commit
	// Tags are quantisations that the hub knows besides file names, for the manifest route: tag → file.
	Tags map[string]string
	// Lie replaces the SHA-256 in the listing of a file.
	Lie map[string]string
}

// Commit is the commit of repositories.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// Image is a tag of the registry.
type Image struct {
	Layers  []Layer
	Private bool   // requests need a token, which the registry's token server gives to anyone
	Closed  bool   // the token server gives none
	Realm   string // address of the token server; "" = this server
}

// Layer is a layer of an image.
type Layer struct {
	MediaType string
	Data      []byte
}

// Media types of ollama's layers.
const (
	ModelLayer    = "application/vnd.ollama.image.model"
	TemplateLayer = "application/vnd.ollama.image.template"
	ParamsLayer   = "application/vnd.ollama.image.params"
	LicenceLayer  = "application/vnd.ollama.image.license"
	ImageLayer    = "application/vnd.ollama.image.projector"
)

// Digest returns the SHA-256 of b as registries write it.
func Digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// Served returns the number of bytes of files that were sent.
func (s *Server) Served() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// Change calls f, which may set any field although s serves already. Requests that come afterwards see it.
func (s *Server) Change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// ServeHTTP answers any request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	log, fault := s.Log, s.Fault
	s.mu.Unlock()
	if log != nil {
		log(r)
	}
	if fault != nil {
		if f := fault(r); f != nil {
			f(w, r, s.answer)
			return
		}
	}
	s.answer(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case strings.HasPrefix(path, "api/models/"):
		s.api(w, r, strings.TrimPrefix(path, "api/models/"))
	case path == "api/models":
		s.search(w, r)
	case path == "token":
		s.token(w, r)
	case strings.HasPrefix(path, "v2/"):
		s.registry(w, r, strings.TrimPrefix(path, "v2/"))
	case strings.HasPrefix(path, "cdn/"):
		s.cdn(w, r, strings.TrimPrefix(path, "cdn/"))
	default:
		s.resolve(w, r, path)
	}
}

func fail(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
		w.Header().Set("X-Error-Message", message)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": message})
}

// repo finds a repository whose listing, or whose files, the request may see; otherwise it answers.
func (s *Server) repo(w http.ResponseWriter, r *http.Request, name string, files bool) *Repo {
	repo := s.Repos[name]
	authorised := s.Token != "" && r.Header.Get("Authorization") == "Bearer "+s.Token
	switch {
	case repo == nil || repo.Secret && !authorised:
		fail(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
	case files && repo.Gated && r.Header.Get("Authorization") == "":
		fail(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+name+" is restricted.")
	case files && repo.Gated && !authorised:
		fail(w, http.StatusForbidden, "GatedRepo",
			"Access to model "+name+" is restricted and you are not in the authorized list.")
	default:
		return repo
	}
	return nil
}

func (s *Server) api(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.SplitN(path, "/", 5)
	if len(parts) < 4 {
		fail(w, http.StatusNotFound, "", "Not Found")
		return
	}
	repo := s.repo(w, r, parts[0]+"/"+parts[1], false)
	if repo == nil {
		return
	}
	commit := repo.Commit
	if commit == "" {
		commit = Commit
	}
	if parts[3] != "main" && parts[3] != commit {
		fail(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+parts[3])
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch parts[2] {
	case "revision":
		json.NewEncoder(w).Encode(map[string]any{"id": parts[0] + "/" + parts[1], "sha": commit, "gated": repo.Gated})
	case "tree":
		s.tree(w, r, repo)
	default:
		fail(w, http.StatusNotFound, "", "Not Found")
	}
}

func (s *Server) tree(w http.ResponseWriter, r *http.Request, repo *Repo) {
	type lfs struct {
		OID         string `json:"oid"`
		Size        int    `json:"size"`
		PointerSize int    `json:"pointerSize"`
	}
	type entry struct {
		Type string `json:"type"`
		OID  string `json:"oid"`
		Size int    `json:"size"`
		Path string `json:"path"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var list []entry
	for path, data := range repo.Files {
		e := entry{Type: "file", Path: path, Size: len(data), OID: fmt.Sprintf("%x",
			sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(data))), data...)))}
		if !repo.Plain {
			e.LFS = &lfs{OID: strings.TrimPrefix(Digest(data), "sha256:"), Size: len(data), PointerSize: 134}
			if lie := repo.Lie[path]; lie != "" {
				e.LFS.OID = lie
			}
		}
		list = append(list, e)
	}
	list = append(list, entry{Type: "directory", Path: "folder"}, entry{Type: "file", Path: "README.md", Size: 10,
		OID: Commit})
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	if n := repo.Pages; n > 0 && from+n < len(list) {
		next := url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawQuery: "recursive=true&cursor=" +
			strconv.Itoa(from+n)}
		w.Header().Set("Link", "<"+next.String()+`>; rel="next"`)
		list = list[:from+n]
	}
	json.NewEncoder(w).Encode(list[from:])
}

func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	var found []map[string]string
	for name := range s.Repos {
		if strings.Contains(strings.ToLower(name), strings.ToLower(r.URL.Query().Get("search"))) {
			found = append(found, map[string]string{"id": name})
		}
	}
	json.NewEncoder(w).Encode(found)
}

// resolve is /owner/name/resolve/COMMIT/path.
func (s *Server) resolve(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.SplitN(path, "/", 5)
	if len(parts) < 5 || parts[2] != "resolve" {
		fail(w, http.StatusNotFound, "", "Not Found")
		return
	}
	repo := s.repo(w, r, parts[0]+"/"+parts[1], true)
	if repo == nil {
		return
	}
	data, ok := repo.Files[parts[4]]
	if !ok {
		fail(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", Commit)
	w.Header().Set("X-Linked-Etag", `"`+strings.TrimPrefix(Digest(data), "sha256:")+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
	s.deliver(w, r, data, http.StatusFound)
}

// deliver sends a file, or redirects to where it is sent from.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, data []byte, status int) {
	if s.Download == "" {
		s.send(w, r, data)
		return
	}
	http.Redirect(w, r, s.Download+"/cdn/"+Digest(data)+"?X-Amz-Signature=signed", status)
}

// cdn sends a file by its digest. It accepts no Authorization, as storage with signed addresses does not.
func (s *Server) cdn(w http.ResponseWriter, r *http.Request, digest string) {
	if r.Header.Get("Authorization") != "" || r.URL.Query().Get("X-Amz-Signature") != "signed" {
		http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest)
		return
	}
	for _, repo := range s.Repos {
		for _, data := range repo.Files {
			if Digest(data) == digest {
				s.send(w, r, data)
				return
			}
		}
	}
	for _, image := range s.Images {
		for _, l := range image.Layers {
			if Digest(l.Data) == digest {
				s.send(w, r, l.Data)
				return
			}
		}
	}
	http.Error(w, "NoSuchKey", http.StatusNotFound)
}

// send sends the range of data that is asked for.
func (s *Server) send(w http.ResponseWriter, r *http.Request, data []byte) {
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Type", "binary/octet-stream")
	w.Header().Set("Etag", `"`+Digest(data)[7:39]+`"`)
	from, to, status := 0, len(data), http.StatusOK
	if text := r.Header.Get("Range"); text != "" {
		if n, _ := fmt.Sscanf(text, "bytes=%d-%d", &from, &to); n != 2 || from > to || from >= len(data) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(data)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		to, status = min(to+1, len(data)), http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(to-from))
	w.WriteHeader(status)
	n, _ := w.Write(data[from:to])
	s.mu.Lock()
	s.served += int64(n)
	s.mu.Unlock()
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	scope := r.URL.Query().Get("scope")
	name, _, _ := strings.Cut(strings.TrimPrefix(scope, "repository:"), ":")
	for key, image := range s.Images {
		if strings.HasPrefix(key, name+":") && !image.Closed {
			json.NewEncoder(w).Encode(map[string]string{"token": "anonymous-" + name})
			return
		}
	}
	w.WriteHeader(http.StatusUnauthorized)
	w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`))
}

// registry is /v2/owner/name/manifests/TAG, …/blobs/DIGEST and …/tags/list; the hub has the first, too.
func (s *Server) registry(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 4 {
		fail(w, http.StatusNotFound, "", "not found")
		return
	}
	name, what, ref := parts[0]+"/"+parts[1], parts[2], parts[3]
	if repo := s.Repos[name]; repo != nil && what == "manifests" {
		s.manifest(w, []Layer{{ModelLayer, repo.Files[repo.Tags[ref]]}}, repo.Tags[ref] != "")
		return
	}
	var image *Image
	var tags []string
	for key, i := range s.Images {
		if tag, ok := strings.CutPrefix(key, name+":"); ok {
			tags = append(tags, tag)
			if image == nil || tag == ref {
				image = i
			}
		}
	}
	if image != nil && (image.Private || image.Closed) && r.Header.Get("Authorization") != "Bearer anonymous-"+name {
		realm := image.Realm
		if realm == "" {
			realm = "http://" + r.Host + "/token"
		}
		w.Header().Set("Www-Authenticate",
			fmt.Sprintf(`Bearer realm="%s",service="pulltest",scope="repository:%s:pull"`, realm, name))
		fail(w, http.StatusUnauthorized, "", "authentication required")
		return
	}
	switch {
	case what == "tags" && len(tags) > 0:
		slices.Sort(tags)
		json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags})
	case what == "manifests" && s.Images[name+":"+ref] != nil:
		s.manifest(w, s.Images[name+":"+ref].Layers, true)
	case what == "blobs" && image != nil:
		for key, i := range s.Images {
			for _, l := range i.Layers {
				if strings.HasPrefix(key, name+":") && Digest(l.Data) == ref {
					s.deliver(w, r, l.Data, http.StatusTemporaryRedirect)
					return
				}
			}
		}
		fail(w, http.StatusNotFound, "", "blob unknown")
	default:
		w.WriteHeader(http.StatusNotFound)
		w.Write([]byte(`{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`))
	}
}

func (s *Server) manifest(w http.ResponseWriter, layers []Layer, ok bool) {
	if !ok {
		fail(w, http.StatusNotFound, "", "manifest unknown")
		return
	}
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	m := struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Layers        []descriptor `json:"layers"`
	}{2, "application/vnd.docker.distribution.manifest.v2+json", nil}
	for _, l := range layers {
		m.Layers = append(m.Layers, descriptor{l.MediaType, Digest(l.Data), len(l.Data)})
	}
	b, _ := json.Marshal(m)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as registry.ollama.ai
	w.Header().Set("Docker-Content-Digest", Digest(b))
	w.Write(b)
}

// GGUF returns a file of size bytes or a few more with a valid header and one tensor, whose bytes depend on seed.
func GGUF(size int, seed uint64) []byte { return part(size, seed, 0, 0) }

// Shards returns a split model of n files, each of size bytes or a few more.
func Shards(n, size int, seed uint64) (files [][]byte) {
	for i := range n {
		files = append(files, part(size, seed+uint64(i), i, n))
	}
	return files
}

func part(size int, seed uint64, no, of int) []byte {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				binary.Write(&b, binary.LittleEndian, uint64(len(s)))
				b.WriteString(s)
				continue
			}
			binary.Write(&b, binary.LittleEndian, v)
		}
	}
	const typeU16, typeString, typeF32 = uint32(2), uint32(8), uint32(0)
	pairs := 0
	var kv bytes.Buffer
	b, kv = kv, b
	if no == 0 {
		put("general.architecture", typeString, "llama")
		pairs++
	}
	if of > 1 {
		put("split.no", typeU16, uint16(no), "split.count", typeU16, uint16(of))
		pairs += 2
	}
	b, kv = kv, b
	b.WriteString("GGUF")
	put(uint32(3), uint64(1), uint64(pairs))
	b.Write(kv.Bytes())
	elements := uint64(max(size-b.Len()-64, 32)) / 128 * 32
	elements = max(elements, 32)
	put("blk."+strconv.Itoa(no)+".weight", uint32(1), elements, typeF32, uint64(0))
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	for range elements * 4 {
		seed = seed*6364136223846793005 + 1442695040888963407
		b.WriteByte(byte(seed >> 56))
	}
	return b.Bytes()
}
